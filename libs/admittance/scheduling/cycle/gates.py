"""Gates on preemption: who may take quota only if it takes it from nobody. Source: SCHEDULING 6.8.

A gate of the spec is closed as long as the status has no open one of its name. Closed, the workload
gets quota where it fits, and waits where others would have to go for it: nobody is told anything.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from admittance.scheduling.state.workload_info import Aside
from admittance.scheduling.state.workload_view import GATED

if TYPE_CHECKING:
    from admittance.scheduling.cycle.process import Entry


def park(entry: Entry, now: datetime) -> bool:
    """The entry would have to preempt and may not. It waits alone, since its equals may have no
    gate; in a StrictFIFO queue it stays the head. True: somebody else is the head now."""
    member, queue = entry.member, entry.queue
    member.cursor = None
    if queue.strict:
        return False
    message = (
        f"Others would have to go for it, and its preemption gate {member.closed_gate} is closed"
    )
    queue.set_aside(member, Aside(GATED, message), now)
    return True
