"""What a cycle does with workloads that are over a limit of their person. The module
`state.held.person_limits` has the limits. Source: `docs/spec/scheduling.md#3.10`."""

from __future__ import annotations

from datetime import datetime

from admittance.events import reasons
from admittance.events.shapes import Refusal
from admittance.scheduling.cycle.refusals import WITH_FEWEST
from admittance.scheduling.state.equivalence import EquivalenceClass, ScanRecord
from admittance.scheduling.state.held.person_limits import PersonLimits
from admittance.scheduling.state.workload_info import Domain, Queue, WorkloadInfo


def limit_refusal(limits: PersonLimits, workload: WorkloadInfo) -> Refusal | None:
    """Returns the refusal of a workload that is over a limit of its person with the fewest pods
    with which it may start; None: it is not."""
    shape = workload.shape
    assert shape is not None
    excess = limits.excess(workload, limits.fewest(shape))
    if excess is None:
        return None
    fewest = WITH_FEWEST if limits.partial and shape.is_flexible else ""
    return Refusal(reason=reasons.WAITING_FOR_USER_LIMIT, message=f"{excess}{fewest}")


def still_limited(
    domain: Domain, queue: Queue, now: datetime
) -> set[EquivalenceClass[WorkloadInfo]]:
    """Returns the parked classes of which the person still holds too much. Their refusals get the
    present numbers."""
    assert queue.limits is not None
    limited = set()
    for cls in queue.parked_classes:
        first = cls.first()
        assert first is not None
        refusal = limit_refusal(queue.limits, first[3])
        if refusal is not None:
            cls.parked = refusal
            cls.scan = ScanRecord(domain.seen, now, first[3], None)
            limited.add(cls)
    return limited
