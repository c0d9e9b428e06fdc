"""What must hold where a workload passes a gate: into its reservation, and into admission.

Required checks are worked out once more, plainly, from the manifests as they are. LIFECYCLE 2.2,
2.3, 2.5, 2.6, 3.1, 3.2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from admittance.events.shapes import Admission
from admittance.simulation.effects import Effects
from admittance.simulation.twin import reserved
from admittance.workload.conditions import Type, find, is_false, is_true
from admittance.workload.stored import StoredWorkload, head


class Manifests(NamedTuple):
    """The configuration as it is in the bucket, by name."""

    queues: Mapping[str, Any]
    checks: Mapping[str, Any]
    flavors: Mapping[str, Any]
    locals: Mapping[tuple[str, str], Any]


def broken(
    key: str,
    before: StoredWorkload | None,
    after: StoredWorkload,
    now: datetime,
    around: Manifests,
    effects: Effects,
) -> list[str]:
    """What does not hold of this write. ``now``: the latest that any clock may show."""
    found: list[str] = []
    admitted = is_true(after, Type.ADMITTED)
    was = before.status.admission if before is not None else None
    if was is None and after.status.admission is not None:
        found += _reservation(before, after, now, around)
    if admitted and (before is None or not is_true(before, Type.ADMITTED)):
        found += _admission(key, after, around, effects)
    if before is not None:
        found += _rows(key, before, after, effects)
    if not reserved(after):
        found += _wait(after)
    return found


def required(admission: Admission, around: Manifests) -> dict[str, str] | None:
    """Checks of a workload with that admission, with their controllers; None: two of one
    controller, which no assigner would combine, or nobody knows."""
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
    found: dict[str, str] = {}
    for name in sorted(named):
        check = around.checks.get(name)
        found[name] = check.spec.controller_name if check is not None else ""
    taken = {controller for controller in found.values() if controller}
    if len(taken) < len([one for one in found.values() if one]):
        return None
    for name in spec.admission_checks:
        check = around.checks.get(name)
        controller = check.spec.controller_name if check is not None else ""
        if name not in found and controller not in taken:
            found[name] = controller
    return found


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
    if names is not None and set(names) != set(rows):
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
    for one in (about, local):
        if one.spec.stop_policy not in ("", "None"):
            yield f"it was reserved in {one.metadata.name}, which is stopped"
    if about.metadata.deletion_timestamp is not None:
        yield f"it was reserved in {queue}, which is to go"
    flavors = [flavor for group in about.spec.resource_groups for flavor in group.flavors]
    for name in {*about.spec.admission_checks, *(c for f in flavors for c in f.admission_checks)}:
        check = around.checks.get(name)
        status = check.status if check is not None else None
        lost = status is not None and any(
            one.type == "Active" and one.status == "False" for one in status.conditions
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
    for name, controller in (names or {}).items():
        row = rows.get(name)
        if row is None or row.state != "Ready":
            yield f"it was admitted, and {name} is {row.state if row else 'not asked'} (2.3)"
            continue
        if not any(
            said.state == "Ready"
            and said.cycle == status.admission_cycle
            and (said.controller == controller or not controller)
            and sequence <= status.log.fact
            for sequence, said in effects.verdicts[key, name]
        ):
            yield f"it was admitted, and nobody said Ready of {name} in this cycle (2.5)"
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


def _rows(
    key: str, before: StoredWorkload, after: StoredWorkload, effects: Effects
) -> Iterator[str]:
    """A row says what somebody said, and counts what there was to count."""
    since, through = before.status.log.fact, after.status.log.fact
    rows = {row.name: row for row in before.status.admission_checks}
    for row in after.status.admission_checks:
        old = rows.get(row.name)
        said = [
            one for sequence, one in effects.verdicts[key, row.name] if since < sequence <= through
        ]
        timers = len(effects.timed(key, since, through))
        was = old.state if old is not None else "Pending"
        if row.state not in ("Pending", was) and not timers:
            states = [one.state for one in said]
            if row.state not in states and "Retry" not in states:
                yield f"{row.name} turned {row.state}, and nobody said so (2.5)"
        kept = before.status.check_retry_counts.get(row.name, 0)
        count = old.retry_count if old is not None else kept
        retries = sum(one.state == "Retry" for one in said) + timers
        if row.retry_count > count + (was == "Retry") + retries:
            yield f"{row.name} counts {row.retry_count} retries after {count} (3.1)"
        round_over = before.status.admission_cycle < after.status.admission_cycle
        if row.retry_count > count and not (said or timers or (was == "Retry" and round_over)):
            yield f"{row.name} counts a retry that is not over (3.1)"
    if effects.is_timed(key, before, after) and _woke(before, after):
        yield from _round(before, after)


def _woke(before: StoredWorkload, after: StoredWorkload) -> bool:
    requeued = find(after, Type.REQUEUED)
    return (
        is_false(before, Type.REQUEUED)
        and requeued is not None
        and (requeued.status, requeued.reason) == ("True", "BackoffFinished")
    )


def _round(before: StoredWorkload, after: StoredWorkload) -> Iterator[str]:
    """T20, alone in its write."""
    if after.status.admission_cycle != before.status.admission_cycle + 1:
        yield "it woke, and its cycle did not go on by one (T20)"
    if after.status.rounds_since != before.status.rounds_since:
        yield "it woke, and its rounds began anew (1.1)"
    state = after.status.requeue_state
    if state is not None and state.requeue_at is not None:
        yield "it woke and waits for a time (T20)"
    now = dict(after.status.check_retry_counts)
    now |= {row.name: row.retry_count for row in after.status.admission_checks}
    for row in before.status.admission_checks:
        want = row.retry_count + (row.state == "Retry")
        if now.get(row.name, 0) != want:
            yield f"{row.name} counts {now.get(row.name, 0)} retries, not {want} (3.1)"
    for row in after.status.admission_checks:
        if row.state != "Pending" or row.requeue_after_seconds or row.pod_set_updates:
            yield f"{row.name} was not reset (T20)"


def _wait(workload: StoredWorkload) -> Iterator[str]:
    """Whoever waits for checks waits for the last of them. 3.2."""
    requeued = find(workload, Type.REQUEUED)
    if requeued is None or (requeued.status, requeued.reason) != ("False", "AdmissionCheck"):
        return
    if not head(workload).active or is_true(workload, Type.FINISHED):
        return
    state = workload.status.requeue_state
    until = state.requeue_at if state is not None else None
    for row in workload.status.admission_checks:
        if row.state != "Retry" or not row.requeue_after_seconds:
            continue
        if row.last_transition_time is None:
            continue
        end = row.last_transition_time + timedelta(seconds=row.requeue_after_seconds)
        if until is None or until < end:
            yield f"it waits until {until}, and {row.name} asks for {end.isoformat()} (3.2)"


__all__ = ["Manifests", "broken", "required"]
