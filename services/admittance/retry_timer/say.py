"""An order as the bus takes it: the schedule, and the fact that becomes of it."""

from __future__ import annotations

from admittance.events import facts
from admittance.events.codec import encode
from admittance.retry_timer.slots import SetTimer


def due(order: SetTimer) -> bytes:
    """The fact that the workload-controller hears when the time has come."""
    slot, want = order
    fact = facts.TimerDue(
        namespace=slot.namespace,
        name=slot.name,
        uid=want.uid,
        kind=slot.kind,
        at=want.at,
        revision=want.revision,
    )
    return encode(fact)
