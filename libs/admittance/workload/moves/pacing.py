"""How retries without a delay are paced: a check that says Retry at once again and again, with
nothing else changed, would make a workload go round hundreds of times in a second.

The first two in a row are immediate, as KEP-3258 has it; from the third on the workload waits 1, 2,
4, … seconds. The count is stored, so that a restart goes on with it. It starts over with a Ready,
an admission, a Retry with a delay, a deactivation, and an edit of the workload, its queues, the
check or its parameters.
"""

from __future__ import annotations

from typing import Final

from admittance.api.workload import ImmediateRetries
from admittance.workload.change import with_status
from admittance.workload.moves.backoff import Asked
from admittance.workload.stored import StoredWorkload, head
from admittance.workload.transition_context import Occasion

IMMEDIATE: Final = 2
"""So many Retries without a delay in a row are immediate."""


def paced(
    workload: StoredWorkload, check: str, cycle: int, want: Asked, at: Occasion
) -> tuple[StoredWorkload, Asked]:
    """The workload with this Retry counted, and what it comes to. The same Retry heard again in its
    cycle counts once."""
    most = int(at.around.limits.pacing_max.total_seconds())
    if want.delay is not None or not most:
        return forgotten(workload, check), want
    edition = _edition(workload, check, at)
    known = workload.status.immediate_retries.get(check)
    count = 1
    if known is not None and known.edition == edition:
        count = known.count if known.cycle == cycle else known.count + 1
    new = ImmediateRetries(count=count, cycle=cycle, edition=edition)
    counted = with_status(
        workload, immediate_retries={**workload.status.immediate_retries, check: new}
    )
    if count <= IMMEDIATE:
        return counted, want
    # More doublings than these are beyond any limit.
    delay = min(1 << min(count - IMMEDIATE - 1, 20), most)
    delay = min(delay, int(at.around.limits.check_delay.total_seconds()))
    remark = f"{count} Retries without a delay in a row: it waits {delay} s"
    joined = "; ".join(part for part in (want.remark, remark) if part)
    return counted, want._replace(delay=delay or None, remark=joined)


def forgotten(workload: StoredWorkload, check: str) -> StoredWorkload:
    """The workload with the count of that check at 0."""
    counts = workload.status.immediate_retries
    if check not in counts:
        return workload
    left = {name: one for name, one in counts.items() if name != check}
    return with_status(workload, immediate_retries=left)


def _edition(workload: StoredWorkload, check: str, at: Occasion) -> str:
    meta = workload.metadata
    around = at.around.edition(meta.namespace, head(workload).queue_name, check)
    return f"{meta.generation}-{around}"
