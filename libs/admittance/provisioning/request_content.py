"""The content of a request for one reservation: pod sets (merged by policy), templates and
parameters. docs/spec/lifecycle.md#5.1."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from admittance.api.checks import ProvisioningRequestConfigSpec
from admittance.api.limits import PARAMETER_MAX, PARAMETERS_MAX
from admittance.api.pods import Container, PodSpec, PodTemplate
from admittance.api.queues import ResourceFlavor
from admittance.api.workload import PodSet
from admittance.events.provisioning import ProvisioningCancelled, ProvisioningRequested
from admittance.events.shapes import Admission, PodSetAssignment, PodSetToProvision
from admittance.provisioning.records import ANNOTATION, Record


class Unanswerable(ValueError):
    """The reservation is incomplete, so no request can be made; the message says why."""


def parameters_of(
    config: ProvisioningRequestConfigSpec, annotations: Mapping[str, str]
) -> dict[str, str]:
    """The config's parameters, overridden by those in the workload's annotations."""
    own = {
        key.removeprefix(ANNOTATION): value
        for key, value in annotations.items()
        if key.startswith(ANNOTATION)
    }
    return {**config.parameters, **own}


def parameters_error(parameters: Mapping[str, str]) -> str:
    """Why these parameters exceed the limits, a sentence; "": they do not. The config's parameters
    were checked when it was applied; annotations are checked only here."""
    if len(parameters) > PARAMETERS_MAX:
        return f"{len(parameters)} parameters, {PARAMETERS_MAX} are allowed"
    for key, value in parameters.items():
        if not key:
            return f"the annotation {ANNOTATION} does not name a parameter"
        if max(len(key), len(value)) > PARAMETER_MAX:
            return f"parameter {key[:60]} has more than {PARAMETER_MAX} characters"
    return ""


def uses_managed_resource(pod_set: PodSet, managed: Collection[str]) -> bool:
    """Whether a container of the pod set has a managed resource in requests or limits. True if
    ``managed`` is empty."""
    if not managed:
        return True
    spec = pod_set.template.spec
    for one in (*spec.init_containers, *spec.containers):
        if any(name in one.resources.requests or name in one.resources.limits for name in managed):
            return True
    return False


def assigned_pod_sets(
    pod_sets: Sequence[PodSet], admission: Admission | None, managed: Collection[str]
) -> list[tuple[PodSet, PodSetAssignment]]:
    """The pod sets to request capacity for, with their assignments.

    Raises Unanswerable if one of them has no assignment."""
    assigned = {one.name: one for one in admission.pod_set_assignments} if admission else {}
    found: list[tuple[PodSet, PodSetAssignment]] = []
    for pod_set in pod_sets:
        if pod_set.count <= 0 or not uses_managed_resource(pod_set, managed):
            continue
        place = assigned.get(pod_set.name)
        if place is None:
            raise Unanswerable(f"pod set {pod_set.name} has no assignment")
        if place.count > 0:
            found.append((pod_set, place))
    return found


def pod_sets_to_provision(
    pod_sets: Sequence[PodSet],
    admission: Admission | None,
    config: ProvisioningRequestConfigSpec,
    flavor_of: Callable[[str], ResourceFlavor | None],
) -> tuple[PodSetToProvision, ...]:
    """The pod sets of the request; empty: no capacity is needed. Raises Unanswerable."""
    same = _SAME.get(config.pod_set_merge_policy or "")
    groups: list[tuple[PodTemplate, PodSetToProvision]] = []
    for pod_set, place in assigned_pod_sets(pod_sets, admission, config.managed_resources):
        template = completed_template(pod_set.template, place, flavor_of)
        for at, (first, group) in enumerate(groups):
            if same is not None and same(first, template):
                merged = replace(
                    group, count=group.count + place.count, names=(*group.names, pod_set.name)
                )
                groups[at] = first, merged
                break
        else:
            groups.append(
                (
                    template,
                    PodSetToProvision(
                        name=pod_set.name,
                        names=(pod_set.name,),
                        count=place.count,
                        template=msgspec.Raw(msgspec.json.encode(template)),
                    ),
                )
            )
    return tuple(group for _, group in groups)


def completed_template(
    template: PodTemplate,
    place: PodSetAssignment,
    flavor_of: Callable[[str], ResourceFlavor | None],
) -> PodTemplate:
    """The template with the labels and tolerations of its flavors added. Missing resource requests
    are filled from the limits."""
    spec = template.spec
    selector, tolerations = dict(spec.node_selector), list(spec.tolerations)
    for name in dict.fromkeys(place.flavors.values()):
        flavor = flavor_of(name)
        if flavor is None:
            continue
        selector |= flavor.spec.node_labels
        tolerations += [one for one in flavor.spec.tolerations if one not in tolerations]
    full: PodSpec = replace(
        spec,
        node_selector=selector,
        tolerations=tuple(tolerations),
        containers=tuple(map(_with_requests, spec.containers)),
        init_containers=tuple(map(_with_requests, spec.init_containers)),
    )
    return replace(template, spec=full)


def _with_requests(container: Container) -> Container:
    resources = container.resources
    if not resources.limits:
        return container
    filled = {**resources.limits, **resources.requests}
    return replace(container, resources=replace(resources, requests=filled))


# Merging. -------------------------------------------------------------------------------


def _identical(one: PodTemplate, other: PodTemplate) -> bool:
    return one == other


def _schedules_alike(one: PodTemplate, other: PodTemplate) -> bool:
    """Whether containers have equal requests, in the same number and order, and all fields that
    restrict the node are equal."""
    return _scheduling(one.spec) == _scheduling(other.spec)


def _scheduling(spec: PodSpec) -> tuple[Any, ...]:
    return (
        [one.resources.requests for one in spec.containers],
        [one.resources.requests for one in spec.init_containers],
        spec.resources,
        spec.node_selector,
        spec.tolerations,
        spec.affinity,
        spec.resource_claims,
    )


_SAME: Final[dict[str, Callable[[PodTemplate, PodTemplate], bool]]] = {
    "IdenticalPodTemplates": _identical,
    "IdenticalWorkloadSchedulingRequirements": _schedules_alike,
}


def _about(record: Record) -> dict[str, Any]:
    return {
        "namespace": record.metadata.namespace,
        "name": record.spec.workload,
        "uid": record.spec.uid,
        "provisioning_class": record.spec.provisioning_class_name,
        "id": record.spec.id,
    }


def requested(record: Record) -> ProvisioningRequested:
    """The fact that requests capacity for the record."""
    spec = record.spec
    return ProvisioningRequested(
        **_about(record),
        check=spec.check,
        cycle=spec.cycle,
        attempt=spec.attempt,
        pod_sets=spec.pod_sets,
        parameters=spec.parameters,
        deadline=spec.deadline,
    )


def cancelled(record: Record) -> ProvisioningCancelled:
    """The fact that cancels the request, with the record's reason."""
    spec = record.spec
    return ProvisioningCancelled(
        **_about(record),
        check=spec.check,
        cycle=spec.cycle,
        attempt=spec.attempt,
        reason=record.status.cancelled,
    )
