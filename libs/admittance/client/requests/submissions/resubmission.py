"""A stored workload once more: the same spec under a new name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field as field_of
from typing import Final

from msgspec.structs import replace

from admittance.api.arrays import written_indexes
from admittance.api.fields.units import parse, quantity_error
from admittance.api.pods import ResourceRequirements
from admittance.api.reading.priority import class_ref
from admittance.api.validation.validate import validate
from admittance.api.workload import ArraySpec, PodSet, Workload, WorkloadSpec
from admittance.client.errors import BadInput, Refused
from admittance.client.kinds import WORKLOAD
from admittance.client.requests.link import Link
from admittance.client.requests.objects import find, is_array
from admittance.client.requests.submissions.names import suffix
from admittance.client.requests.workloads.arrays import failed_indexes
from admittance.client.requests.workloads.families import refuse_variant
from admittance.workload.stored import StoredWorkload
from admittance.workload.submitted_again import submitted_again

_STEM_MAX: Final = 44
"""The most characters of the old name in the new one, which an array can have, too."""


@dataclass(frozen=True, kw_only=True)
class Changes:
    """What differs in the new workload; None and empty: nothing. ``requests``: the quantity of each
    pod by resource; 0: none."""

    queue: str | None = None
    requests: Mapping[str, str] = field_of(default_factory=dict)
    priority: int | None = None
    priority_class: str | None = None
    max_seconds: int | None = None


async def again(
    link: Link,
    name: str,
    namespace: str = "",
    *,
    failed: bool = False,
    new_name: str | None = None,
    changes: Changes | None = None,
) -> Workload:
    """A new workload with the spec of a stored one, and the changes. ``failed``: of an array only
    the elements that did not succeed. Raises NotFound, Refused for a variant, and if nothing has
    failed, and BadInput for changes that the workload cannot have."""
    stored = await find(link, WORKLOAD, name, namespace)
    refuse_variant(stored, 'workload "{}"')
    workload = stored.workload()
    made = submitted_again(workload)
    spec = made.spec
    if failed:
        spec = replace(spec, array=_failed(stored.name, workload, spec))
    if changes is not None:
        spec = changed(spec, changes)
    name = new_name or f"{stored.name[:_STEM_MAX].rstrip('-.')}-{suffix()}"
    made = replace(made, metadata=replace(made.metadata, name=name), spec=spec)
    # A priority that comes from a WorkloadPriorityClass is not known yet.
    if problems := [problem for problem in validate(made) if problem.field != "spec.priority"]:
        raise BadInput(*map(str, problems))
    return made


def changed(spec: WorkloadSpec, changes: Changes) -> WorkloadSpec:
    """The spec with the changes. Raises BadInput for requests of a workload with several
    containers."""
    if changes.priority is not None and changes.priority_class is not None:
        raise BadInput("a priority and a priority class exclude each other: leave out one")
    if changes.queue is not None:
        spec = replace(spec, queue_name=changes.queue)
    if changes.max_seconds is not None:
        spec = replace(spec, maximum_execution_time_seconds=changes.max_seconds)
    if changes.priority is not None:
        spec = replace(spec, priority=changes.priority, priority_class_ref=None)
    if changes.priority_class is not None:
        spec = replace(spec, priority=None, priority_class_ref=class_ref(changes.priority_class))
    if changes.requests:
        spec = replace(spec, pod_sets=(_asking(spec.pod_sets, changes.requests),))
    return spec


def _asking(pod_sets: tuple[PodSet, ...], requests: Mapping[str, str]) -> PodSet:
    """The only pod set, with other requests and limits of its only container."""
    containers = [container for pods in pod_sets for container in pods.template.spec.containers]
    if len(containers) != 1 or len(pod_sets) != 1:
        raise BadInput(
            f"the requests of {len(containers)} containers are changed in a manifest: "
            "`admit get workload NAME -o yaml` prints it"
        )
    [pods], [container] = pod_sets, containers
    asked, limits = dict(container.resources.requests), dict(container.resources.limits)
    for resource, amount in requests.items():
        if not quantity_error(amount) and not parse(amount):
            asked.pop(resource, None)
            limits.pop(resource, None)
            continue
        asked[resource] = amount
        if resource in limits:
            limits[resource] = amount
    resources = ResourceRequirements(
        requests=asked, limits=limits, claims=container.resources.claims
    )
    pod = replace(pods.template.spec, containers=(replace(container, resources=resources),))
    return replace(pods, template=replace(pods.template, spec=pod))


def _failed(name: str, workload: StoredWorkload, spec: WorkloadSpec) -> ArraySpec:
    if not is_array(workload) or spec.array is None:
        raise Refused(f'workload "{name}" is not an array: submit it again as a whole')
    indexes = failed_indexes(workload)
    if not indexes:
        raise Refused(f'no element of the array "{name}" has failed')
    return replace(spec.array, indexes=written_indexes(indexes))
