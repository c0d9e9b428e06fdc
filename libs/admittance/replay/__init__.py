"""Replays differential scenarios, which have a known outcome, and decisions of the scheduler from
the log.

A replay of a scenario and a replay of a decision both run the scheduler's core. Only
`admittance.replay.past_inputs` reads the bus; all other modules get messages as arguments.
"""
