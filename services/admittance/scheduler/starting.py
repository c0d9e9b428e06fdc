"""``waitForPodsReady.blockAdmission``: nobody gets quota afresh while the pods of somebody who was
admitted are not ready. Source: LIFECYCLE 6, SCHEDULING 3.6.

It counts over all queues. Who is assigned quota without any check to pass, or confirmed, is on the
way to be admitted, and counts from then on. A reservation that is there already may go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from admittance.events.shapes import Refusal

if TYPE_CHECKING:
    from admittance.scheduler.picture import Member

WAITS: Final = Refusal(
    reason="WaitingForPodsReady",
    message="Waits until the pods of all admitted workloads are ready",
)


class Starting:
    """Who was admitted and is not ready; nobody, unless ``counts``."""

    def __init__(self, counts: bool) -> None:
        self._counts = counts
        self._members: dict[Member, None] = {}

    def __bool__(self) -> bool:
        return bool(self._members)

    def begins(self, member: Member) -> None:
        """It is about to be admitted."""
        if self._counts:
            self._members[member] = None

    def heard(self, member: Member, starting: bool) -> bool:
        """Whether the member is one of them now. True: it was the last one, so that all go on."""
        if starting:
            self.begins(member)
            return False
        if member not in self._members:
            return False
        del self._members[member]
        return not self._members
