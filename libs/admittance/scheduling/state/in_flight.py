"""Decisions that the scheduler assumes and the log has not confirmed: quota that is handed on in
one decision, and admissions whose pods are not ready."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from admittance.events.shapes import Refusal
from admittance.scheduling.state.shared_quota import FamilyQuota, remove_usage, restore_usage
from admittance.scheduling.state.workload_info import CandidateEntry, Charge, WorkloadInfo

if TYPE_CHECKING:
    from admittance.scheduling.state.queue import Domain
    from admittance.scheduling.state.workload_info import FamilyInfo


class GivenQuota(NamedTuple):
    """What a giver held, and its place among the possible victims."""

    charge: Charge
    ranked: CandidateEntry | None


class QuotaHandover:
    """A handover of quota: ``receiver`` gets what the workloads in ``given`` held. A giver leaves
    ``given`` when its new stored state arrives."""

    __slots__ = ("_overlaps", "domain", "given", "receiver")

    def __init__(self, workload: WorkloadInfo, domain: Domain) -> None:
        self.receiver = workload
        self.domain = domain
        self.given: dict[WorkloadInfo, GivenQuota] = {}
        self._overlaps: dict[FamilyInfo, FamilyQuota[WorkloadInfo]] = {}

    def pretend_failed(self, *, again: bool = False) -> None:
        """Charges as if the handover had failed; with ``again``, as if it held."""
        (restore_usage if again else remove_usage)(self.receiver)
        sign = -1 if again else 1
        for giver, given in self.given.items():
            for cell, amount in given.charge.cells:
                cell.charge(sign * amount)
            if giver.family is not None:
                overlap = giver.family.quota or self._overlaps.setdefault(
                    giver.family, FamilyQuota()
                )
                (overlap.leave if again else overlap.join)(giver, given.charge.cells)


WAITS_FOR_PODS_READY: Final = Refusal(
    reason="WaitingForPodsReady",
    message="Waits until the pods of all admitted workloads are ready",
)


class PodsReadyTracker:
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

    def assume_admitted(self, workload: WorkloadInfo, domain: Domain | None) -> None:
        """Notes that the workload is assumed to be admitted."""
        if self._counts:
            self._assumed[workload] = domain

    def update(self, workload: WorkloadInfo, starting: bool) -> bool:
        """Notes whether the stored workload is admitted and not ready. Returns whether other
        workloads may get quota again."""
        if not self._counts:
            return False
        was = workload in self._assumed or workload in self._known
        self._assumed.pop(workload, None)
        self._known.pop(workload, None)
        if starting:
            self._known[workload] = None
        return was and not self._known
