"""Decisions that the scheduler assumes and the log has not confirmed: quota that is handed on in
one decision, and admissions whose pods are not ready."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from admittance.events.shapes import Refusal
from admittance.scheduling.state.shared_quota import Overlap, put_back, take_out
from admittance.scheduling.state.workload_info import Charge, Ranked, WorkloadInfo

if TYPE_CHECKING:
    from admittance.scheduling.state.queue import Domain
    from admittance.scheduling.state.workload_info import Family


class Given(NamedTuple):
    """What a giver held, and its place among the possible victims."""

    charge: Charge
    ranked: Ranked | None


class Joint:
    """A handover of quota: ``member`` gets what the workloads in ``given`` held. A giver leaves
    ``given`` when its new stored state arrives."""

    __slots__ = ("_overlaps", "domain", "given", "member")

    def __init__(self, member: WorkloadInfo, domain: Domain) -> None:
        self.member = member
        self.domain = domain
        self.given: dict[WorkloadInfo, Given] = {}
        self._overlaps: dict[Family, Overlap[WorkloadInfo]] = {}

    def turn_back(self, *, again: bool = False) -> None:
        """Charges as if the handover had failed; with ``again``, as if it held."""
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
    """Admitted workloads whose pods are not ready; empty unless ``counts``."""

    def __init__(self, counts: bool) -> None:
        self._counts = counts
        self._known: dict[WorkloadInfo, None] = {}
        self._assumed: dict[WorkloadInfo, Domain | None] = {}

    def blocks(self, domain: Domain) -> bool:
        """Returns whether no workload of the domain may get new quota now."""
        if self._known:
            return True
        return bool(self._assumed) and domain in self._assumed.values()

    def begins(self, member: WorkloadInfo, domain: Domain | None) -> None:
        """Notes that the workload is assumed to be admitted."""
        if self._counts:
            self._assumed[member] = domain

    def heard(self, member: WorkloadInfo, starting: bool) -> bool:
        """Notes whether the stored workload is admitted and not ready. Returns whether other
        workloads may get quota again."""
        if not self._counts:
            return False
        was = member in self._assumed or member in self._known
        self._assumed.pop(member, None)
        self._known.pop(member, None)
        if starting:
            self._known[member] = None
        return was and not self._known
