"""The common base of check controllers and providers.

Both kinds of programs receive requests from a durable consumer, publish answers on the log, and
send heartbeats. A delivery is acknowledged only when its answer is on the log, so a crash loses
nothing.
"""
