"""Replays differential scenarios with a known outcome, and decisions from the log.

Both run the code that decides in the live system. Imports the cores but no bus: what it needs from
the log comes as values (`admittance.cli.replay.decision` collects them).
"""
