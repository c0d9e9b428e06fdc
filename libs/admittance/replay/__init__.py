"""Replays differential scenarios with a known outcome, and decisions from the log.

Replays of scenarios and of decisions run the scheduler's core. This package imports no bus:
messages of the log come as values, which `admittance.cli.replay.decision` collects.
"""
