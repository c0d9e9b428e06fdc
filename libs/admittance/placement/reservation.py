"""What placement reads of a stored workload: its reservation, and the runners that it has."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final, NamedTuple, Protocol

from admittance.api.checks import MACHINES_CONTROLLER, PREEMPTS_AFTER_CHECK
from admittance.api.workload import CheckState
from admittance.events.placement import Placement
from admittance.events.requests.machines import LackingRow
from admittance.placement.search.ledger import Shares, shares_of
from admittance.placement.search.request import (
    Demands,
    PlacementRequest,
    RememberedRefusal,
    family_of,
    pod_requests,
    request_of,
    workload_key,
)
from admittance.workload.checks.rows import placement_of
from admittance.workload.conditions import Type, find, find_false, is_true
from admittance.workload.phase import holds_quota, is_stopping
from admittance.workload.stored import PARENT, StoredWorkload, head
from admittance.workload.transition_context import CheckRules, FlavorParts

_LONG_AGO: Final = datetime(1, 1, 1, tzinfo=UTC)


class PlacementView(Protocol):
    """What placement reads beside the workload."""

    def check(self, name: str) -> CheckRules | None:
        """The rules of the AdmissionCheck with that name; None: the check does not exist."""
        ...

    def flavor(self, name: str) -> FlavorParts:
        """What the ResourceFlavor adds to pods; empty if the flavor does not exist."""
        ...

    def demands(self, workload: StoredWorkload) -> Demands:
        """What the job asks of its runner."""
        ...


class Held(NamedTuple):
    """What a workload holds by its stored state. ``revision``: of its admission, 0: it is not
    admitted."""

    family: str
    parts: Placement
    shares: Shares
    revision: int


class Judged(NamedTuple):
    """A workload whose row of the check is judged. ``admitted``: its job may run. ``row``: of our
    check, in the cycle ``cycle``."""

    key: str
    namespace: str
    name: str
    uid: str
    cycle: int
    row: CheckState
    admitted: bool


class Reservation(NamedTuple):
    """A workload that waits for its runners. ``deferring_ready``, ``others_ready``: whether the
    other deferring checks, and all other checks, are Ready. ``since``: when the last of the other
    rows changed its state, or the quota was reserved. ``idle_since``: since when its job does not
    run. ``victims``: the keys of the workloads to be preempted. ``flavors``: those of its quota.
    """

    judged: Judged
    request: PlacementRequest
    priority: int
    since: datetime
    reserved_at: datetime
    idle_since: datetime
    deferring_ready: bool
    others_ready: bool
    victims: frozenset[str]
    flavors: frozenset[str]


def lacking_row(reservation: Reservation, since: datetime, message: str) -> LackingRow:
    """The reservation as a workload that lacks room since a time; ``message``: what is missing."""
    return LackingRow(
        namespace=reservation.judged.namespace,
        name=reservation.judged.name,
        priority=reservation.priority,
        since=since,
        message=message,
    )


def held_by(workload: StoredWorkload, revision: int) -> Held | None:
    """The runners of the workload: those of its job, or those that the check has assigned; None:
    it has none. ``revision``: of the stored workload. A parent holds what its variant holds.

    Raises as `admittance.api.pod_requests.needs`."""
    if not holds_quota(workload):
        return None
    status = workload.status
    parts = status.placement
    if not parts and not is_stopping(workload):
        parts = placement_of(status.admission_checks)
    if not parts:
        return None
    admitted = 0
    if is_true(workload, Type.ADMITTED):
        admitted = status.admitted_revision or revision
    return Held(family_of(workload), parts, shares_of(parts, pod_requests(workload)), admitted)


def has_rows(workload: StoredWorkload) -> bool:
    """Whether one of the workload's rows may turn out to be of our check, and then matters: it
    waits for its checks, or its job has runners."""
    status = workload.status
    if not status.admission_checks or not holds_quota(workload) or is_stopping(workload):
        return False
    if head(workload).role == PARENT:
        return False
    return bool(status.placement) or not is_true(workload, Type.ADMITTED)


def judged_by(workload: StoredWorkload, view: PlacementView) -> Judged | None:
    """The row of our check, while the workload is judged; None: it holds no quota, is being
    evicted, or has no such row."""
    if not holds_quota(workload) or is_stopping(workload) or head(workload).role == PARENT:
        return None
    for row in workload.status.admission_checks:
        rules = view.check(row.name)
        if rules is not None and rules.controller == MACHINES_CONTROLLER:
            meta = workload.metadata
            return Judged(
                workload_key(workload),
                meta.namespace,
                meta.name,
                meta.uid,
                workload.status.admission_cycle,
                row,
                is_true(workload, Type.ADMITTED),
            )
    return None


def reservation_of(workload: StoredWorkload, judged: Judged, view: PlacementView) -> Reservation:
    """The reservation of a workload that is not admitted. Raises as
    `admittance.api.pod_requests.needs`."""
    status = workload.status
    assert status.admission is not None, "a workload that is judged holds quota"
    others = [row for row in status.admission_checks if row.name != judged.row.name]
    reserved = find(workload, Type.QUOTA_RESERVED)
    assert reserved is not None, "a workload that is judged holds quota"
    reserved_at = reserved.last_transition_time or _LONG_AGO
    idle = find_false(workload, Type.ADMITTED)
    idle_since = idle.last_transition_time if idle is not None else None
    times = [row.last_transition_time or _LONG_AGO for row in others]
    pending = status.pending_preemption
    demands = view.demands(workload)
    demands = demands._replace(refusal=RememberedRefusal(demands.refusal))
    return Reservation(
        judged,
        request_of(workload, view.flavor, demands),
        head(workload).priority or 0,
        max(reserved_at, *times) if times else reserved_at,
        reserved_at,
        min(idle_since or reserved_at, reserved_at),
        all(row.state == "Ready" for row in others if _defers(row, view)),
        all(row.state == "Ready" for row in others),
        frozenset(f"{v.namespace}/{v.name}" for v in pending.victims) if pending else frozenset(),
        frozenset(_flavors(workload)),
    )


def _defers(row: CheckState, view: PlacementView) -> bool:
    rules = view.check(row.name)
    return rules is not None and rules.preemption_policy == PREEMPTS_AFTER_CHECK


def _flavors(workload: StoredWorkload) -> Iterator[str]:
    admission = workload.status.admission
    for place in admission.pod_set_assignments if admission is not None else ():
        yield from place.flavors.values()
