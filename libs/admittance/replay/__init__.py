"""Replays differential scenarios, which have a known outcome, and decisions of the scheduler from
the log.

A replay of a scenario and a replay of a decision both run the scheduler's core. This package does
not read the log itself: the caller, `admittance.cli.replay.decision`, reads the messages and passes
them as arguments.
"""
