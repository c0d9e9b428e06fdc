"""Simulates another priority or queue of an existing workload.

A stored workload cannot change its queue, so the simulation does what a user can do: it deletes the
workload and submits it again in the other queue."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from admittance.api.reading.manifest import encode
from admittance.api.workload import gate_names
from admittance.events import facts
from admittance.events.requests.whatif import WorkloadChange
from admittance.whatif.bucket_copy import BucketCopy, is_variant
from admittance.workload.conditions import Type, gated_by, is_held, is_true
from admittance.workload.stored import ARRAY, PARENT, StoredWorkload, head
from admittance.workload.submitted_again import submitted_again

INT32: Final = range(-(2**31), 2**31)


def mistakes_in(changes: Sequence[WorkloadChange], namespace: str = "") -> Iterator[str]:
    """Yields a line for each mistake in the changes. ``namespace``: the only namespace that they
    may name; "": any namespace."""
    named: set[tuple[str, str]] = set()
    for change in changes:
        name = f"Workload {change.namespace}/{change.workload}"
        if not change.workload or not change.namespace:
            yield f"{name}: a change needs a workload and its namespace"
        elif namespace and change.namespace != namespace:
            yield f"{name}: is not in the namespace {namespace}"
        elif (change.namespace, change.workload) in named:
            yield f"{name}: is named twice in the changes"
        elif change.priority is None and change.queue is None:
            yield f"{name}: nothing changes: name a priority or a queue"
        elif change.priority is not None and change.priority not in INT32:
            yield f"{name}: the priority {change.priority} is not a 32-bit number"
        named.add((change.namespace, change.workload))


def change_workload(copy: BucketCopy, change: WorkloadChange) -> str:
    """Changes a workload of the bucket copy. Returns why that is not possible; "": it is done."""
    key = (change.namespace, change.workload)
    name = f"Workload {change.namespace}/{change.workload}"
    if not copy.has_workload(key):
        return f"{name} not found"
    workload = copy.workload(key)
    if workload is None or is_true(workload, Type.FINISHED):
        return f"{name} has finished"
    if is_variant(workload):
        return f"{name} is a variant: change its parent {copy.family(key)[1]}"
    spec = head(workload)
    priority = change.priority if change.priority != (spec.priority or 0) else None
    queue = change.queue if change.queue != spec.queue_name else None
    if priority is None and queue is None:
        return f"{name}: nothing changes: it has that {_what_is_as_named(change)}"
    if queue is not None:
        return _submit_again(copy, workload, queue, priority)
    fact = facts.Reprioritized(namespace=key[0], name=key[1], priority=priority or 0, time=copy.now)
    (reply,) = copy.apply_facts(fact)
    return "" if reply.outcome == "applied" else f"{name}: {reply.message or reply.reason}"


def _what_is_as_named(change: WorkloadChange) -> str:
    named = (("priority", change.priority), ("queue", change.queue))
    return " and ".join(f"{what} {value}" for what, value in named if value is not None)


def _submit_again(
    copy: BucketCopy, workload: StoredWorkload, queue: str, priority: int | None
) -> str:
    """Deletes the workload and submits it in the other queue, with the priority unless None.
    Returns why that is not possible; "": it is done."""
    namespace, name = workload.metadata.namespace, workload.metadata.name
    subject = f"Workload {namespace}/{name}"
    if (namespace, queue) not in copy.scheduler.catalog.local_queues:
        return f"{subject}: LocalQueue {namespace}/{queue} not found"
    spec = head(workload)
    if spec.role in (PARENT, ARRAY):
        what = "variants" if spec.role == PARENT else "elements"
        return f"{subject} has {what}, so another queue of it cannot be simulated"
    if gates := gate_names(gated_by(workload)):
        return f"{subject} waits for {', '.join(gates)}, so its queue does not matter yet"
    again = submitted_again(workload)
    wanted = replace(again.spec, queue_name=queue, active=spec.active)
    if priority is not None:
        wanted = replace(wanted, priority=priority, priority_class_ref=None)
    key = (namespace, name)
    copy.apply_facts(facts.Deleted(namespace=namespace, name=name, time=copy.now))
    copy.stop(key)
    copy.describe_loss(key, f"It is deleted, and submitted again in queue {queue}")
    raw = msgspec.Raw(encode(replace(again, spec=wanted)))
    submitted = facts.Submitted(namespace=namespace, name=name, time=copy.now, workload=raw)
    (reply,) = copy.apply_facts(submitted)
    if reply.outcome != "applied":
        return f"{subject}: {reply.reason}: {reply.message}"
    if is_held(workload):
        copy.apply_facts(facts.Held(namespace=namespace, name=name, time=copy.now))
    return ""
