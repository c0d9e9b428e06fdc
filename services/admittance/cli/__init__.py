"""The command ``admit``.

``main`` is what the installed script `admit` runs. ``commands/`` has names, arguments and options
of all commands and imports nothing heavy, so that help and completion are fast. Each other module
does the work of the command that the module is named after. ``support/link`` connects commands to
the bus, ``show/`` prints objects.
"""
