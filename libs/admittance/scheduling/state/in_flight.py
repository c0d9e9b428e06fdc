"""What the scheduler has decided and assumes, and what the log has not confirmed yet: quota that is
handed on in one decision, and admissions whose pods are not ready."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from admittance.events.shapes import Refusal
from admittance.scheduling.state.shared_quota import Overlap, put_back, take_out
from admittance.scheduling.state.workload_info import Charge, Ranked, WorkloadInfo

if TYPE_CHECKING:
    from admittance.scheduling.state.queue import Domain
    from admittance.scheduling.state.workload_info import Family


class Given(NamedTuple):
    """What one of them held, and its place among the possible victims."""

    charge: Charge
    ranked: Ranked | None


class Joint:
    """``member`` gets what ``given`` held; those of whom the picture has heard since are not in it
    any more."""

    __slots__ = ("_overlaps", "domain", "given", "member")

    def __init__(self, member: WorkloadInfo, domain: Domain) -> None:
        self.member = member
        self.domain = domain
        self.given: dict[WorkloadInfo, Given] = {}
        self._overlaps: dict[Family, Overlap[WorkloadInfo]] = {}

    def turn_back(self, *, again: bool = False) -> None:
        """Charges as if it did not hold, and again as if it did."""
        (put_back if again else take_out)(self.member)
        sign = -1 if again else 1
        for giver, given in self.given.items():
            for cell, amount in given.charge.cells:
                cell.charge(sign * amount)
            if giver.family is not None:
                overlap = giver.family.held or self._overlaps.setdefault(giver.family, Overlap())
                (overlap.leave if again else overlap.join)(giver, given.charge.cells)


WAITS_FOR_PODS_READY: Final = Refusal(
    reason="WaitingForPodsReady",
    message="Waits until the pods of all admitted workloads are ready",
)


class Starting:
    """Who was admitted and is not ready; nobody, unless ``counts``."""

    def __init__(self, counts: bool) -> None:
        self._counts = counts
        self._known: dict[WorkloadInfo, None] = {}
        self._assumed: dict[WorkloadInfo, Domain | None] = {}

    def blocks(self, domain: Domain) -> bool:
        """Nobody may get quota afresh in the domain now."""
        if self._known:
            return True
        return bool(self._assumed) and domain in self._assumed.values()

    def begins(self, member: WorkloadInfo, domain: Domain | None) -> None:
        """It is about to be admitted, as far as is assumed."""
        if self._counts:
            self._assumed[member] = domain

    def heard(self, member: WorkloadInfo, starting: bool) -> bool:
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
