"""The command ``admit``.

``main`` is the script. ``commands/`` has names, arguments and options of all commands and imports
nothing heavy, so that help and completion are fast. Each module beside it does the work of the
command that it is named after. ``support/link`` is their connection to the bus, ``show/`` prints
objects.
"""
