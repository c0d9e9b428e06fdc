"""What keeps the promises, each to be taken out for a test that shows what it is good for."""

from __future__ import annotations

from typing import NamedTuple


class Mechanisms(NamedTuple):
    """All in place unless said."""

    fence_at_the_log: bool = True
    """The server refuses what carries an old epoch."""
    barrier: bool = True
    """A new leader of a domain waits until its predecessor's decisions are in its picture."""
    skip_applied: bool = True
    """A fact that is in the object already is not applied again."""
    say_again: bool = True
    """A new leader publishes facts that may not have been published."""
    seen: bool = True
    """A decision made from older queues than those that are in the bucket is void."""
    joint: bool = True
    """What follows from several workloads at once is written as a whole or not at all."""
    claims: bool = True
    """An admission is started by the runner that has its claim."""
    lease: bool = True
    """A job ends, or does not start, when its runner has not renewed its lease."""
    timers_compared: bool = True
    """The schedules that stand are compared with those that should, now and then."""
