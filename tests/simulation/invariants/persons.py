"""Limits on what one person holds in a queue, plainly: no reservation takes a person beyond a limit
of the ClusterQueue or LocalQueue as it is in the bucket. Of a family the most of each resource that
one of its variants holds counts. Nothing is shared with `admittance.scheduling`.
docs/spec/scheduling.md#3.10."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from admittance.api.fields.units import amount
from admittance.workload.stored import StoredWorkload, head
from simulation.transcript import Broken

if TYPE_CHECKING:
    from simulation.invariants.seen import Seen


class Held(NamedTuple):
    """What the person of a workload holds of one resource under one limit: ``others``: without the
    workload itself."""

    where: str
    resource: str
    limit: int
    held: int
    others: int


def check_limits(
    key: str,
    before: Seen,
    after: Seen,
    holding: Mapping[str, Seen],
    queues: Mapping[str, Any],
    locals_: Mapping[tuple[str, str], Any],
) -> None:
    """Checks a write after which a workload holds quota. ``holding``: all workloads that hold quota
    now."""
    new = after.workload
    if new is None or not after.usage or before.usage == after.usage:
        return
    assert new.status.admission is not None
    queue = new.status.admission.cluster_queue
    for about in held_by_persons(key, new, queue, holding, queues, locals_):
        if about.held > about.limit and about.held > about.others:
            raise Broken(
                f"{key} takes its person to {about.held} {about.resource} "
                f"of {about.limit} in {about.where}"
            )


def held_by_persons(
    key: str,
    workload: StoredWorkload,
    queue: str,
    holding: Mapping[str, Seen],
    queues: Mapping[str, Any],
    locals_: Mapping[tuple[str, str], Any],
) -> Iterator[Held]:
    """Yields what the persons of the workload hold, for each limit on each resource."""
    name = (workload.metadata.namespace, head(workload).queue_name)
    places = (("", queues.get(queue)), (name[1], locals_.get(name)))
    for place, label, most in (
        (place, label, most) for place, manifest in places for label, most in _limits(manifest)
    ):
        person = _person(workload, label)
        if person is None:
            continue
        mine = {
            other: one
            for other, one in holding.items()
            if one.workload is not None
            and one.workload.status.admission is not None
            and one.workload.status.admission.cluster_queue == queue
            and place in ("", head(one.workload).queue_name)
            and _person(one.workload, label) == person
        }
        rest = {other: one for other, one in mine.items() if other != key}
        where = f"LocalQueue {place}" if place else f"ClusterQueue {queue}"
        for resource, limit in most.items():
            yield Held(where, resource, limit, _sum(mine, resource), _sum(rest, resource))


def _limits(queue: Any) -> Iterator[tuple[str, dict[str, int]]]:
    if queue is None:
        return
    for label, written in (("", queue.spec.per_user), *queue.spec.per_label.items()):
        yield label, {resource: amount(resource, much) for resource, much in written.items()}


def _person(workload: StoredWorkload, label: str) -> str | None:
    return workload.metadata.labels.get(label) if label else workload.status.submitted_by


def _sum(workloads: Mapping[str, Seen], resource: str) -> int:
    """What the workloads hold of the resource, in all flavors."""
    largest: dict[str, int] = {}
    for key, one in workloads.items():
        much = sum(used for (_, name), used in one.usage.items() if name == resource)
        unit = one.family or key
        largest[unit] = max(largest.get(unit, 0), much)
    return sum(largest.values())
