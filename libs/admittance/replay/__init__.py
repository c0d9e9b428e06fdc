"""Replays differential scenarios, which have a known outcome, and decisions of the scheduler from
the log.

A replay of a scenario and a replay of a decision both run the scheduler's core. Only `past_inputs`
reads the bus, for `answer`, which a process of its own runs; all other modules get messages as
arguments.
"""
