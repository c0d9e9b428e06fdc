"""Replays differential scenarios, which have a known outcome, and decisions of the scheduler from
the log.

Both kinds of replay run the scheduler's core. This package does not read the log itself: the
caller, `admittance.cli.replay.decision`, reads the messages and passes them as arguments.
"""
