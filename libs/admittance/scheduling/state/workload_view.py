"""`WorkloadView`: what the scheduler reads from a stored workload, in one pass over its
conditions."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final, NamedTuple

from admittance.api.meta import Condition
from admittance.api.workload import (
    ALLOWED_FLAVORS,
    FAMILY_GATE,
    GATED_BY,
    GatePosition,
    PreemptionCount,
)
from admittance.events import reasons
from admittance.events.shapes import Admission, PendingPreemption, PreemptedBy, Scan
from admittance.family import ParentState, VariantState
from admittance.scheduling.state.config import Config
from admittance.scheduling.state.requests import Needs, Shapes
from admittance.workload.family_info import parent_state, variant_state
from admittance.workload.stored import ARRAY, PARENT, VARIANT, StoredWorkload

LONG_AGO: Final = datetime(1, 1, 1, tzinfo=UTC)
PROMISED: Final = "Promised"
"""State of a variant that gets its quota as soon as its sibling's job has stopped."""


class Inadmissible(NamedTuple):
    """Why one workload is parked alone, without its class. ``reason``: the reason for waiting that
    its status gets. ``is_silent``: no refusal of the workload is published, so its status does not
    get the reason. ``ignores_flush``: freed quota does not help the workload, so a flush leaves it
    parked. ``scan``: what a replay of the refusal needs; None: the stored state is enough."""

    reason: str
    message: str
    is_silent: bool = False
    ignores_flush: bool = False
    scan: Scan | None = None


BACKOFF = Inadmissible(reasons.BACKOFF, "Waits before it competes again", is_silent=True)


LAST_PLACE: Final = 9_999
"""The place in the family's order of preference for a variant that the rules of its queue do not
define."""


class VariantInfo(NamedTuple):
    """What the scheduler keeps of a stored variant besides its name. Variants with equal values
    share one object.

    ``is_open``: the preemption gate of the variant is open, so the variant may preempt."""

    tag: str
    stopped_by: str = ""
    active: bool = True
    is_open: bool = False


class Run(NamedTuple):
    """The run of an admitted workload. ``since``: when its pods were ready for the first time, or
    its admission as long as they were not. ``priority_class``: its WorkloadPriorityClass; "": it
    has none."""

    since: datetime
    priority_class: str


class WorkloadView(NamedTuple):
    """A stored workload as the scheduler sees it.

    ``admission``: the quota that the workload holds since ``reserved_at``. ``admitted_at``: since
    when the workload is admitted. ``competes``: the workload may wait in a queue.
    ``requeue_blocked``: the workload may not compete before its Requeued condition changes.
    ``queued_at``: the time that stands for the workload's age in its queue. ``signature``: a hash
    of the fields that decide about the workload's place in its queue: if the hash changes, the
    workload must be queued again. ``checks``: name and state of the checks that a reservation waits
    for; ``preemption_required_by``: the checks that ask to preempt the victims now.
    ``pending_preemption``: the victims that must stop before the workload is admitted.
    ``awaits_pods_ready``: the workload is admitted and not all of its pods are ready.
    ``seconds_left``: how long an admission lasts at most, because of the maximum execution time;
    None: without limit.

    ``parent``, ``variant``: the fields that the family policy reads, of a parent or of a variant;
    both None: the workload is regular. A parent workload holds no quota and only waits.
    ``promised``: quota that is kept for a variant until its sibling's job has stopped.
    ``gate_open``: whether the family's gate lets the variant preempt."""

    needs: Needs
    finished: bool
    admission: Admission | None
    admitted_at: datetime | None
    reserved_at: datetime | None
    competes: bool
    requeue_blocked: bool
    requeue_at: datetime | None
    problem: Inadmissible | None
    queued_at: datetime
    created_at: datetime
    status_reason: str
    state: str
    reclaimable: tuple[tuple[str, int], ...]
    signature: int
    run: Run | None = None
    preempted_by: PreemptedBy | None = None
    checks: tuple[tuple[str, str], ...] = ()
    closed_gate: str = ""
    pending_preemption: PendingPreemption | None = None
    preemption_required_by: tuple[str, ...] = ()
    awaits_pods_ready: bool = False
    preemptions: tuple[PreemptionCount, ...] = ()
    parent: ParentState | None = None
    variant: VariantState | None = None
    promised: Admission | None = None
    gate_open: bool = False
    seconds_left: int | None = None


def view_of(stored: StoredWorkload, shapes: Shapes, config: Config) -> WorkloadView:
    """Returns the view of a stored workload. Raises msgspec.MsgspecError or BadQuantity for a spec
    that validation would have refused."""
    meta, status = stored.metadata, stored.status
    reserved = evicted = requeued = admitted = finished = ready = None
    for condition in status.conditions:
        match condition.type:
            case "QuotaReserved":
                reserved = condition
            case "Evicted":
                evicted = condition
            case "Requeued":
                requeued = condition
            case "Admitted":
                admitted = condition
            case "PodsReady":
                ready = condition
            case "Finished":
                finished = condition
    allowed = None
    gated = False
    if meta.annotations:
        names = meta.annotations.get(ALLOWED_FLAVORS)
        if names is not None:
            allowed = frozenset(name.strip() for name in names.split(",") if name.strip())
        gated = bool(meta.annotations.get(GATED_BY))
    needs = shapes.needs(stored.spec, allowed)
    is_parent = needs.role == PARENT
    reclaimable = tuple((pod.name, pod.count) for pod in status.reclaimable_pods)
    holds = status.admission is not None and _true(reserved)
    is_admitted = holds and _true(admitted)
    said = reserved.reason if reserved is not None and reserved.status == "False" else ""
    # For a workload that holds or is promised quota, the reclaimable pods are subtracted later,
    # when the quota is charged.
    if reclaimable and not holds and (needs.role != VARIANT or status.promised is None):
        needs = needs._replace(shape=shapes.reduced(needs.shape, dict(reclaimable)))
    problem = None
    for row in status.admission_checks:
        # A check in Retry keeps the state Retry until the wait of the workload is over; then the
        # check becomes Pending.
        if row.state in ("Retry", "Rejected"):
            problem = Inadmissible(
                reasons.PENDING_EVALUATION,
                f"The admission check {row.name} is in state {row.state}",
            )
            break
    state = "Pending"
    if holds:
        state = "Evicting" if _true(evicted) else "Admitted" if is_admitted else "QuotaReserved"
    waits_for_checks = holds and not is_admitted
    closed_gate = closed_gate_of(needs.gates, status.preemption_gates) if needs.gates else ""
    created = meta.creation_timestamp or LONG_AGO
    requeue = status.requeue_state
    waits = requeued is not None and requeued.status == "False"
    requeue_at = requeue.requeue_at if requeue is not None else None
    admitted_at = None
    if is_admitted and admitted is not None:
        admitted_at = admitted.last_transition_time or created
    view = WorkloadView(
        needs=needs,
        finished=_true(finished),
        admission=status.admission if holds and not is_parent else None,
        admitted_at=admitted_at,
        reserved_at=reserved.last_transition_time if reserved is not None else None,
        competes=(
            needs.active
            and not holds
            and needs.role != ARRAY
            and not gated
            and said != reasons.ON_HOLD
            and meta.deletion_timestamp is None
        ),
        requeue_blocked=waits,
        requeue_at=requeue_at,
        problem=problem,
        queued_at=_stamp(evicted, created, config),
        created_at=created,
        status_reason=said,
        state=state,
        reclaimable=reclaimable,
        signature=hash(
            (
                needs,
                gated,
                said == reasons.ON_HOLD,
                reclaimable,
                problem,
                requeue_at,
                closed_gate,
                _mark(evicted),
                _mark(requeued),
            )
        ),
        run=Run(status.started_at or admitted_at, needs.priority_class) if admitted_at else None,
        preempted_by=status.preempted_by,
        checks=tuple([(row.name, row.state) for row in status.admission_checks])
        if waits_for_checks and status.admission_checks
        else (),
        closed_gate=closed_gate,
        pending_preemption=status.pending_preemption if waits_for_checks else None,
        preemption_required_by=tuple(
            [
                row.name
                for row in status.admission_checks
                if row.state == "Pending" and row.reason == reasons.PREEMPTION_REQUIRED
            ]
        )
        if waits_for_checks and status.pending_preemption is not None
        else (),
        # In a family only the pods of the admitted variant count as not ready. The admitted variant
        # has a PodsReady condition like its parent.
        awaits_pods_ready=state == "Admitted" and not is_parent and not _true(ready),
        preemptions=status.preemptions,
        seconds_left=max(
            0, needs.max_seconds - (status.accumulated_past_execution_time_seconds or 0)
        )
        if needs.max_seconds is not None
        else None,
    )
    if needs.role == "regular":
        return view
    return _of_family(view, stored)


def _of_family(view: WorkloadView, stored: StoredWorkload) -> WorkloadView:
    if view.needs.role == PARENT:
        return view._replace(parent=parent_state(stored))
    if view.needs.role != VARIANT:
        return view
    status = stored.status
    promised = status.promised if view.admission is None and not view.finished else None
    return view._replace(
        variant=variant_state(stored),
        promised=promised,
        competes=view.competes and promised is None,
        state=PROMISED if promised is not None else view.state,
        gate_open=any(
            gate.name == FAMILY_GATE and gate.position == "Open" for gate in status.preemption_gates
        ),
    )


def _true(condition: Condition | None) -> bool:
    return condition is not None and condition.status == "True"


def _mark(condition: Condition | None) -> tuple[str, str, datetime | None] | None:
    if condition is None:
        return None
    return condition.status, condition.reason, condition.last_transition_time


def _stamp(evicted: Condition | None, created: datetime, config: Config) -> datetime:
    """Returns the time by which the workload's age in its queue counts: its creation, or the
    eviction after which it was queued behind other workloads."""
    if evicted is None or evicted.status != "True":
        return created
    at_eviction = evicted.reason == reasons.ADMISSION_CHECK or (
        evicted.reason == reasons.PODS_READY_TIMEOUT and config.requeuing_timestamp == "Eviction"
    )
    return evicted.last_transition_time or created if at_eviction else created


def closed_gate_of(names: Iterable[str], positions: Iterable[GatePosition]) -> str:
    """Returns the name of the workload's first closed preemption gate; "" if all its gates are
    open."""
    opened = {gate.name for gate in positions if gate.position == "Open"}
    return next((name for name in names if name not in opened), "")
