"""``waitForPodsReady.blockAdmission``: nobody gets quota afresh while the pods of somebody who was
admitted are not ready. Source: LIFECYCLE 6, SCHEDULING 4.5.

It counts over all queues. Who is assigned quota without any check to pass, or confirmed, is on the
way to be admitted, and counts from then on in its own domain: of others only what is written
counts, so that a decision can be made again from the bucket and from what its domain had on its
way. A reservation that is there already may go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from admittance.events.shapes import Refusal

if TYPE_CHECKING:
    from admittance.scheduler.domain import Domain
    from admittance.scheduler.picture import Member

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
