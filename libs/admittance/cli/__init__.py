"""The command ``admit``.

``commands/`` says what can be typed, and imports nothing heavy, so that help and completion come
at once; the modules beside it do the work. ``link`` is how all of them reach the bus.
"""
