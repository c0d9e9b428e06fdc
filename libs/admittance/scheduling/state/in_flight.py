"""What the scheduler assumes until stored workloads confirm it: handovers of quota, admitted
workloads with pods that are not ready, and preemptors that stay the head of their queue while their
victims stop.

Only in memory the leader knows which preemptor stays the head of its queue while its victims stop;
another instance of the scheduler, or the next leader, finds the preemptor in the status of its
victims. Source: `docs/spec/scheduling.md#3.8, #8`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final, NamedTuple

from admittance.events import reasons
from admittance.events.shapes import PreemptedBy, Refusal
from admittance.scheduling.state.equivalence import Key
from admittance.scheduling.state.shared_quota import FamilyQuota, remove_usage, restore_usage
from admittance.scheduling.state.workload_info import (
    CandidateEntry,
    Charge,
    Domain,
    FamilyInfo,
    WorkloadInfo,
)


class GivenQuota(NamedTuple):
    """The quota that a workload gives up in a handover, and the former place of that workload among
    the candidates for preemption."""

    charge: Charge
    candidate: CandidateEntry | None


class QuotaHandover:
    """A handover of quota that is in flight: ``receiver`` gets what the workloads in ``given``
    held. A workload is removed from ``given`` when its new stored state arrives."""

    __slots__ = ("_family_quotas", "domain", "given", "receiver")

    def __init__(self, workload: WorkloadInfo, domain: Domain) -> None:
        self.receiver = workload
        self.domain = domain
        self.given: dict[WorkloadInfo, GivenQuota] = {}
        self._family_quotas: dict[FamilyInfo, FamilyQuota[WorkloadInfo]] = {}

    def pretend_failed(self, *, again: bool = False) -> None:
        """Moves the quota of the handover from the receiver back to the givers, as if the handover
        had failed. ``again``: moves the quota from the givers to the receiver again."""
        (restore_usage if again else remove_usage)(self.receiver)
        sign = -1 if again else 1
        for giver, given in self.given.items():
            for cell, amount in given.charge.cells:
                cell.charge(sign * amount)
            if giver.family is not None:
                family_quota = giver.family.quota or self._family_quotas.setdefault(
                    giver.family, FamilyQuota()
                )
                (family_quota.leave if again else family_quota.join)(giver, given.charge.cells)


WAITS_FOR_PODS_READY: Final = Refusal(
    reason=reasons.WAITING_FOR_PODS_READY,
    message="Waits until the pods of all admitted workloads are ready",
)


class PodsReadyTracker:
    """Tracks the admitted workloads with pods that are not ready. Stays empty unless
    ``Config.block_admission`` is set."""

    def __init__(self, block_admission: bool) -> None:
        self._block_admission = block_admission
        self._known: dict[WorkloadInfo, None] = {}
        self._assumed: dict[WorkloadInfo, Domain | None] = {}

    def blocks(self, domain: Domain) -> bool:
        """Returns whether no workload of the domain may get new quota now, because of pods that are
        not ready."""
        if self._known:
            return True
        return bool(self._assumed) and domain in self._assumed.values()

    def assume_admitted(self, workload: WorkloadInfo, domain: Domain | None) -> None:
        """Records that the workload is assumed to be admitted, with pods that are not ready yet."""
        if self._block_admission:
            self._assumed[workload] = domain

    def update(self, workload: WorkloadInfo, awaits_pods: bool) -> bool:
        """Records whether the workload is stored as admitted with pods that are not ready. Returns
        whether no workload with such pods is left, so that other workloads may get quota again."""
        if not self._block_admission:
            return False
        was = workload in self._assumed or workload in self._known
        self._assumed.pop(workload, None)
        self._known.pop(workload, None)
        if awaits_pods:
            self._known[workload] = None
        return was and not self._known


VictimsByPreemptor = dict[str, dict[WorkloadInfo, None]]
"""The workloads that were preempted for a preemptor, by the preemptor's uid."""


def note_preemptor(
    promises: VictimsByPreemptor,
    workloads: Mapping[Key, WorkloadInfo],
    giver: WorkloadInfo,
    by: PreemptedBy | None,
) -> None:
    """Records the preemptor that the status of a victim names; None: the status names no
    preemptor."""
    before = giver.preempted_by
    giver.preempted_by = by
    if before is not None and (by is None or by.by_uid != before.by_uid):
        givers = promises[before.by_uid]
        del givers[giver]
        if not givers:
            del promises[before.by_uid]
    if by is None:
        return
    promises.setdefault(by.by_uid, {})[giver] = None
    namespace, _, name = by.by.partition("/")
    preemptor = workloads.get((namespace, name))
    if preemptor is not None:
        restore_preemptor(promises, preemptor)


def restore_preemptor(promises: VictimsByPreemptor, preemptor: WorkloadInfo) -> None:
    """Keeps the preemptor at the head of its queue while its victims stop.

    Does nothing if this process leads the domain: the leader puts the preemptor at the head when it
    preempts."""
    queue = preemptor.queue
    if queue is None or queue.strict or queue.domain is None or queue.domain.owned:
        return
    since = _since(promises, preemptor)
    if since is None:
        return
    other = queue.preemptor
    if other is not None and other is not preemptor and other.queue is queue:
        later = _since(promises, other)
        if later is not None and later > since:
            return
    queue.preemptor = preemptor


def _since(promises: VictimsByPreemptor, preemptor: WorkloadInfo) -> datetime | None:
    """Returns when the last victim for which the preemptor still waits was preempted; None: it
    waits for none."""
    return max(
        (
            giver.preempted_by.at
            for giver in promises.get(preemptor.uid, ())
            if giver.preempted_by is not None
            and giver.preempted_by.at is not None
            and (
                giver.is_leaving
                or preemptor.status_reason == reasons.WAITING_FOR_PREEMPTED_WORKLOADS
            )
        ),
        default=None,
    )
