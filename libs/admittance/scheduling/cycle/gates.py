"""Gates on preemption: who may take quota only if it takes it from nobody. Source: SCHEDULING 6.8.

A gate of the spec is closed as long as the status has no open one of its name. Closed, the workload
gets quota where it fits, and waits where others would have to go for it: nobody is told anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Final

from admittance.api.workload import GatePosition
from admittance.events.shapes import Refusal
from admittance.scheduling.state.workload_info import Aside

if TYPE_CHECKING:
    from admittance.scheduling.cycle.process import Entry
    from admittance.scheduling.state.domain import Domain
    from admittance.scheduling.state.workload_info import Member


REASON = "AdmissionGated"


def closed(names: Iterable[str], positions: Iterable[GatePosition]) -> str:
    """The first gate that is closed; "" when all are open."""
    opened = {gate.name for gate in positions if gate.position == "Open"}
    return next((name for name in names if name not in opened), "")


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
    queue.set_aside(member, Aside(REASON, message), now)
    return True


WAITS: Final = Refusal(
    reason="WaitingForPodsReady",
    message="Waits until the pods of all admitted workloads are ready",
)


class Starting:
    """Who was admitted and is not ready; nobody, unless ``counts``."""

    def __init__(self, counts: bool) -> None:
        self._counts = counts
        self._known: dict[Member, None] = {}
        self._assumed: dict[Member, Domain | None] = {}

    def blocks(self, domain: Domain) -> bool:
        """Nobody may get quota afresh in the domain now."""
        if self._known:
            return True
        return bool(self._assumed) and domain in self._assumed.values()

    def begins(self, member: Member, domain: Domain | None) -> None:
        """It is about to be admitted, as far as is assumed."""
        if self._counts:
            self._assumed[member] = domain

    def heard(self, member: Member, starting: bool) -> bool:
        """Whether it is written that the member was admitted and is not ready. True: others may go
        on."""
        if not self._counts:
            return False
        was = member in self._assumed or member in self._known
        self._assumed.pop(member, None)
        self._known.pop(member, None)
        if starting:
            self._known[member] = None
        return was and not self._known
