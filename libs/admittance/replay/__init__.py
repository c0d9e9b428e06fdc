"""Plays again what was decided: scenarios with a known outcome, and decisions that are on the log.

Both run the very code that decides in the live system. Imports the cores; knows no bus: what it
needs of one comes as values (`admittance.cli.replay.decision` gathers them).
"""
