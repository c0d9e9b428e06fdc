"""What must hold where a workload passes a gate: into its reservation, and into admission.

Required checks are computed again from the present manifests. Source:
docs/spec/lifecycle.md#2.2, #2.3, #2.5, #2.6.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import msgspec

from admittance.api.queues import ClusterQueue
from admittance.events.shapes import Admission
from admittance.workload.conditions import Type, find, is_false, is_true
from admittance.workload.stored import StoredWorkload, head
from simulation.invariants.effects import Effects
from simulation.invariants.seen import Manifests
from simulation.invariants.siblings import VARIANT


def broken(
    key: str,
    before: StoredWorkload | None,
    after: StoredWorkload,
    now: datetime,
    around: Manifests,
    effects: Effects,
) -> list[str]:
    """The broken invariants of this write. ``now``: the latest that any clock may show."""
    broken_rules: list[str] = []
    admitted = is_true(after, Type.ADMITTED)
    was = before.status.admission if before is not None else None
    if was is None and after.status.admission is not None:
        broken_rules += _reservation(before, after, now, around)
    if admitted and (before is None or not is_true(before, Type.ADMITTED)):
        broken_rules += _admission(key, after, around, effects)
    broken_rules += _placement(before, after)
    return broken_rules


def _placement(before: StoredWorkload | None, after: StoredWorkload) -> Iterator[str]:
    """The runners of an admission are known from its first write until its job has stopped."""
    placed = after.status.placement
    if placed and after.status.admission is None:
        yield "it has runners without quota (1.1)"
    if before is None or not before.status.admitted_revision:
        return
    same = before.status.admitted_revision == after.status.admitted_revision
    if same and placed != before.status.placement:
        yield f"its runners are {placed}, and they were {before.status.placement} (1.1)"


def required(admission: Admission, around: Manifests) -> dict[str, str] | None:
    """Checks of a workload with that admission, with their controllers; None: two of one
    controller, which no assigner would combine, or the controller is unknown."""
    queue = around.queues.get(admission.cluster_queue)
    if queue is None:
        return None
    used = {f for place in admission.pod_set_assignments for f in place.flavors.values()}
    spec = queue.spec
    named = {
        name
        for group in spec.resource_groups
        for flavor in group.flavors
        if flavor.name in used
        for name in flavor.admission_checks
    }
    taken_flavors: dict[str, str] = {}
    for name in sorted(named):
        check = around.checks.get(name)
        taken_flavors[name] = check.spec.controller_name if check is not None else ""
    taken = {controller for controller in taken_flavors.values() if controller}
    if len(taken) < len([flavor for flavor in taken_flavors.values() if flavor]):
        return None
    for name in spec.admission_checks:
        check = around.checks.get(name)
        controller = check.spec.controller_name if check is not None else ""
        if name not in taken_flavors and controller not in taken:
            taken_flavors[name] = controller
    if used & covered(queue, around) and "admittance.dev/machines" not in taken_flavors.values():
        taken_flavors["machines"] = "admittance.dev/machines"
    return taken_flavors


def covered(queue: ClusterQueue, around: Manifests) -> set[str]:
    """The flavors of the queue whose workloads must pass the check ``machines`` although the queue
    does not name it. 2.2."""
    check = around.checks.get("machines")
    if check is None or check.spec.controller_name != "admittance.dev/machines":
        return set()
    if queue.spec.machines == "Off":
        return set()
    offered = {flavor.name for group in queue.spec.resource_groups for flavor in group.flavors}
    return offered & set(check.spec.on_flavors)


def unsettled(workload: StoredWorkload, around: Manifests) -> set[str]:
    """The checks that another service has written, and that may not have counted yet when the
    workload's last fact was read."""
    fact = workload.status.log.fact
    return {name for name, counts_from in around.counts_from.items() if fact < counts_from}


def _reservation(
    before: StoredWorkload | None, after: StoredWorkload, now: datetime, around: Manifests
) -> Iterator[str]:
    if before is None:
        yield "it was reserved before it was there"
        return
    if not head(before).active:
        yield "it was reserved while it was turned off"
    if is_false(before, Type.REQUEUED):
        yield "it was reserved before it was requeued (T03)"
    waits = find(before, Type.QUOTA_RESERVED)
    if waits is not None and waits.reason == "OnHold":
        yield "it was reserved on hold (T30)"
    state = before.status.requeue_state
    until = state.requeue_at if state is not None else None
    if until is not None and now < until:
        yield f"it was reserved before {until.isoformat()} (3.2)"
    assert after.status.admission is not None
    yield from _inactive(after, after.status.admission.cluster_queue, around)
    names = required(after.status.admission, around)
    rows = {row.name: row for row in after.status.admission_checks}
    unsure = unsettled(after, around)
    if names is not None and set(names) - unsure != set(rows) - unsure:
        yield f"it was reserved with rows {sorted(rows)}, required are {sorted(names)} (2.3)"
    for row in rows.values():
        if row.state != "Pending":
            yield f"{row.name} is {row.state} as the reservation begins (2.3)"


def _inactive(workload: StoredWorkload, queue: str, around: Manifests) -> Iterator[str]:
    """Why the queues made no new reservation at that time. 2.1."""
    about = around.queues.get(queue)
    local = around.locals.get((workload.metadata.namespace, head(workload).queue_name))
    if about is None or local is None or local.spec.cluster_queue != queue:
        yield f"it was reserved in {queue}, where its queue does not lead"
        return
    for rule in (about, local):
        if rule.spec.stop_policy not in ("", "None"):
            yield f"it was reserved in {rule.metadata.name}, which is stopped"
    if about.metadata.deletion_timestamp is not None:
        yield f"it was reserved in {queue}, which is to go"
    flavors = [flavor for group in about.spec.resource_groups for flavor in group.flavors]
    implied = {"machines"} if covered(about, around) else set()
    named = {*about.spec.admission_checks, *(c for f in flavors for c in f.admission_checks)}
    for name in named | implied:
        check = around.checks.get(name)
        status = check.status if check is not None else None
        lost = status is not None and any(
            condition.type == "Active" and condition.status == "False"
            for condition in status.conditions
        )
        if check is None or lost:
            yield f"it was reserved in {queue}, and {name} is {'lost' if check else 'missing'}"


def _admission(
    key: str, after: StoredWorkload, around: Manifests, effects: Effects
) -> Iterator[str]:
    status = after.status
    assert status.admission is not None
    if status.pending_preemption:
        yield f"it was admitted with victims outstanding: {status.pending_preemption} (2.7)"
    names = required(status.admission, around)
    rows = {row.name: row for row in status.admission_checks}
    unsure = unsettled(after, around)
    for name, controller in (names or {}).items():
        row = rows.get(name)
        if row is None and name in unsure:
            continue
        doubts = row is not None and row.state == "Pending" and head(after).role == VARIANT
        if (row is None or row.state != "Ready") and not doubts:
            # A variant has nothing to say of its admission that would have to come before a doubt.
            yield f"it was admitted, and {name} is {row.state if row else 'not asked'} (2.3)"
            continue
        if not any(
            said.state == "Ready"
            and said.cycle == status.admission_cycle
            and (said.controller == controller or not controller)
            and sequence <= status.log.fact
            for sequence, said in effects.verdicts[key][name]
        ):
            yield f"it was admitted, and no controller said Ready of {name} in this cycle (2.5)"
    yield from _conflicts(after, around)


def _conflicts(workload: StoredWorkload, around: Manifests) -> Iterator[str]:
    """Additive only: no key has two values. 2.6."""
    admission = workload.status.admission
    assert admission is not None
    seen: dict[tuple[str, str, str], str] = {}
    for place in admission.pod_set_assignments:
        for name in set(place.flavors.values()):
            flavor = around.flavors.get(name)
            for label, value in (flavor.spec.node_labels if flavor is not None else {}).items():
                seen[place.name, "nodeSelector", label] = value
    for row in workload.status.admission_checks:
        for update in msgspec.to_builtins(row.pod_set_updates):
            for kind in ("labels", "annotations", "nodeSelector"):
                for label, value in update.get(kind, {}).items():
                    before = seen.setdefault((update["name"], kind, label), value)
                    if before != value:
                        yield f"{row.name} sets {kind} {label}={value}, and it is {before} (2.6)"


__all__ = ["broken", "covered", "required", "unsettled"]
