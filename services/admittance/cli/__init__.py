"""The command ``admit``.

``main`` is the script; ``program`` has the tree of commands and how each ends. ``commands/`` says
what can be typed, and imports nothing heavy, so that help and completion come at once; the modules
beside it do the work, and import what they need when it is needed. ``link`` is how all of them
reach the bus.
"""
