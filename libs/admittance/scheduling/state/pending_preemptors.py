"""Preemptors whose victims still stop, read from stored workloads so that a new leader knows them.

The leader keeps such a preemptor at the head of its queue, in memory only. A standby or the next
leader finds the preemptor in the status of its victims. Source: `docs/spec/scheduling.md#3.8, #8`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from admittance.events.shapes import PreemptedBy
from admittance.scheduling.state.workload_info import Key, WorkloadInfo

VictimsByPreemptor = dict[str, dict[WorkloadInfo, None]]
"""By the uid of a preemptor: the workloads that were preempted for it."""

WAITING: Final = "WaitingForPreemptedWorkloads"
"""Reason in the status of a preemptor while its victims stop."""


def note(
    promises: VictimsByPreemptor,
    workloads: Mapping[Key, WorkloadInfo],
    giver: WorkloadInfo,
    by: PreemptedBy | None,
) -> None:
    """Notes the preemptor in the status of a victim; None: the status names none."""
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
        restore(promises, preemptor)


def restore(promises: VictimsByPreemptor, preemptor: WorkloadInfo) -> None:
    """Keeps the preemptor at the head of its queue while its victims stop. Does nothing where this
    process leads the domain: the leader has kept the place itself."""
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
    """Returns when the last victim was preempted for it; None: no victim counts."""
    return max(
        (
            giver.preempted_by.at
            for giver in promises.get(preemptor.uid, ())
            if giver.preempted_by is not None
            and giver.preempted_by.at is not None
            and (giver.is_leaving or preemptor.status_reason == WAITING)
        ),
        default=None,
    )
