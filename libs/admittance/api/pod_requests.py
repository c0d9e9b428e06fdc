"""Reads the part of a stored spec that the scheduler needs, and counts the requests of its pods.

The scheduler decodes the spec of every workload, so only the fields of these Structs are decoded;
the rest of a pod template is skipped.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from fractions import Fraction
from typing import Final, NamedTuple, Protocol, TypeAlias

import msgspec

from admittance.api.configuration import Resources
from admittance.api.fields.limits import Quantity
from admittance.api.fields.units import INT64_MAX, parse, units, whole
from admittance.api.meta import Toleration
from admittance.api.pods import NodeSelectorTerm


class PodSetNeeds(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What one pod set needs. ``requests``: of one pod, in accounting units by resource.

    ``affinity``: the alternatives of the required node affinity; None: no affinity is required;
    empty: no node can satisfy it. ``preferred``: the terms of the preferred node affinity, as JSON;
    empty: there are none.
    """

    name: str
    count: int
    min_count: int | None
    requests: dict[str, int]
    node_selector: dict[str, str]
    affinity: tuple[NodeSelectorTerm, ...] | None
    tolerations: tuple[Toleration, ...]
    preferred: msgspec.Raw = msgspec.Raw()


class WorkloadNeeds(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What the scheduler needs to know of a workload. ``priority`` is 0 by default;
    ``allowed_flavors`` None: any flavor."""

    pod_sets: tuple[PodSetNeeds, ...]
    queue_name: str
    priority: int
    active: bool
    allowed_flavors: tuple[str, ...] | None
    role: str
    preemption_gates: tuple[str, ...]


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """A part of a stored spec; fields that the Struct does not have are skipped."""


class _Resources(_Part, frozen=True, kw_only=True, gc=False):
    requests: dict[str, Quantity] = {}
    limits: dict[str, Quantity] = {}


_NONE: Final = _Resources()


class _Container(_Part, frozen=True, kw_only=True, gc=False):
    resources: _Resources = _NONE
    restart_policy: str | None = None


class _NodeSelector(_Part, frozen=True, kw_only=True, gc=False):
    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class _NodeAffinity(_Part, frozen=True, kw_only=True, gc=False):
    required_during_scheduling_ignored_during_execution: _NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: msgspec.Raw = msgspec.Raw()


class _Affinity(_Part, frozen=True, kw_only=True, gc=False):
    node_affinity: _NodeAffinity | None = None


class _PodSpec(_Part, frozen=True, kw_only=True, gc=False):
    containers: tuple[_Container, ...] = ()
    init_containers: tuple[_Container, ...] = ()
    node_selector: dict[str, str] = {}
    affinity: _Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    overhead: dict[str, Quantity] = {}
    resources: _Resources | None = None


class _Template(_Part, frozen=True, kw_only=True, gc=False):
    spec: _PodSpec = _PodSpec()


class _PodSet(_Part, frozen=True, kw_only=True, gc=False):
    name: str = "main"
    count: int = 1
    min_count: int | None = None
    template: _Template = _Template()


class _Gate(_Part, frozen=True, kw_only=True, gc=False):
    name: str = ""


class _Constraints(_Part, frozen=True, kw_only=True, gc=False):
    allowed_resource_flavors: tuple[str, ...] | None = None


class _Spec(_Part, frozen=True, kw_only=True, gc=False):
    pod_sets: tuple[_PodSet, ...] = ()
    queue_name: str = ""
    priority: int | None = None
    active: bool = True
    preemption_gates: tuple[_Gate, ...] = ()
    admission_constraints: _Constraints | None = None
    role: str = "regular"


_decoder = msgspec.json.Decoder(_Spec)


def _pod_set(pod_set: _PodSet) -> PodSetNeeds:
    pod = pod_set.template.spec
    required: tuple[NodeSelectorTerm, ...] | None = None
    preferred = msgspec.Raw()
    if pod.affinity is not None and pod.affinity.node_affinity is not None:
        selector = pod.affinity.node_affinity.required_during_scheduling_ignored_during_execution
        preferred = pod.affinity.node_affinity.preferred_during_scheduling_ignored_during_execution
        if selector is not None:
            required = selector.node_selector_terms
    return PodSetNeeds(
        name=pod_set.name,
        count=pod_set.count,
        min_count=pod_set.min_count,
        requests=effective(pod.containers, pod.init_containers, pod.resources, pod.overhead),
        node_selector=pod.node_selector,
        affinity=required,
        tolerations=pod.tolerations,
        preferred=preferred,
    )


def needs(spec: bytes | msgspec.Raw) -> WorkloadNeeds:
    """The part of a stored spec that the scheduler needs.

    Raises msgspec.MsgspecError or BadQuantity for bytes that were not validated.
    """
    decoded = _decoder.decode(spec)
    constraints = decoded.admission_constraints
    return WorkloadNeeds(
        pod_sets=tuple([_pod_set(pod_set) for pod_set in decoded.pod_sets]),
        queue_name=decoded.queue_name,
        priority=decoded.priority or 0,
        active=decoded.active,
        allowed_flavors=None if constraints is None else constraints.allowed_resource_flavors,
        role=decoded.role,
        preemption_gates=tuple([gate.name for gate in decoded.preemption_gates]),
    )


Quantities: TypeAlias = Mapping[str, str | int | float]
Exact: TypeAlias = dict[str, "int | Fraction"]

_POD_LEVEL: Final = frozenset({"cpu", "memory"})


class ResourcesLike(Protocol):
    @property
    def requests(self) -> Quantities: ...
    @property
    def limits(self) -> Quantities: ...


class ContainerLike(Protocol):
    @property
    def resources(self) -> ResourcesLike: ...
    @property
    def restart_policy(self) -> str | None: ...


def requests_of(resources: ResourcesLike) -> Quantities:
    """The requests of a container; a resource without a request gets its limit."""
    requests, limits = resources.requests, resources.limits
    if not limits:
        return requests
    if not requests:
        return limits
    return {**limits, **requests}


def is_pod_level(resource: str) -> bool:
    """Whether a whole pod may request the resource, in place of its containers."""
    return resource in _POD_LEVEL or resource.startswith("hugepages-")


def _add(total: Exact, more: Mapping[str, int | Fraction]) -> None:
    for resource, number in more.items():
        total[resource] = total.get(resource, 0) + number


def _raise(total: Exact, floor: Mapping[str, int | Fraction]) -> None:
    for resource, number in floor.items():
        if number > total.get(resource, 0) or resource not in total:
            total[resource] = number


def _exact(quantities: Quantities) -> Exact:
    return {resource: units(resource, written) for resource, written in quantities.items()}


def effective(
    containers: Sequence[ContainerLike],
    init_containers: Sequence[ContainerLike] = (),
    pod_level: ResourcesLike | None = None,
    overhead: Quantities | None = None,
) -> dict[str, int]:
    """Requests of one pod: resource to accounting units, rounded up, from 0 to the int64 maximum.

    Raises BadQuantity.
    """
    if len(containers) == 1 and not init_containers and pod_level is None and not overhead:
        return {
            resource: max(0, whole(units(resource, written)))
            for resource, written in requests_of(containers[0].resources).items()
        }
    total: Exact = {}
    for container in containers:
        _add(total, _exact(requests_of(container.resources)))
    sidecars: Exact = {}
    peak: Exact = {}
    for container in init_containers:
        mine = _exact(requests_of(container.resources))
        if container.restart_policy == "Always":
            _add(total, mine)
            _add(sidecars, mine)
            mine = sidecars
        else:
            _add(mine, sidecars)
        _raise(peak, mine)
    _raise(total, peak)
    if pod_level is not None:
        for resource, number in _exact(requests_of(pod_level)).items():
            if is_pod_level(resource):
                total[resource] = number
    if overhead:
        _add(total, _exact(overhead))
    return {resource: max(0, whole(number)) for resource, number in total.items()}


class ResourceTransformation(NamedTuple):
    """Counts one resource of pods as other resources, for example GPUs as credits. Source:
    docs/spec/scheduling.md#1.6, Kueue's ``resources.transformations``.

    ``retains``: the input resource counts as itself too. ``multiply_by``: a resource of the same
    pod that multiplies the outputs, or ""; a pod that does not request it counts once, as in Kueue.
    ``outputs``: resource and quantity for one whole unit of the input.
    """

    input: str
    retains: bool
    multiply_by: str
    outputs: tuple[tuple[str, str], ...]


def transformations_of(resources: Resources) -> tuple[ResourceTransformation, ...]:
    """The transformations of a deployment's configuration."""
    return tuple(
        ResourceTransformation(
            transformation.input,
            transformation.strategy != "Replace",
            transformation.multiply_by,
            tuple((name, str(quantity)) for name, quantity in transformation.outputs.items()),
        )
        for transformation in resources.transformations
    )


def transformed(
    requests: Mapping[str, int], transformations: Sequence[ResourceTransformation]
) -> dict[str, int]:
    """Returns the requests of one pod after transformations, in accounting units.

    Outputs are exact sums, rounded up at the end. A generated amount is never negative, so a
    negative output cannot reduce a direct request.
    """
    by_input = {each.input: each for each in transformations}
    counted: dict[str, int] = {}
    generated: dict[str, Fraction] = {}
    for resource, amount in requests.items():
        transformation = by_input.get(resource)
        if transformation is None or transformation.retains:
            counted[resource] = amount
        if transformation is None:
            continue
        factor = _factor(transformation, requests)
        for output, each in transformation.outputs:
            generated[output] = generated.get(output, Fraction(0)) + factor * parse(each)
    for resource, exact in generated.items():
        unit = 1000 if resource == "cpu" else 1
        amount = counted.get(resource, 0) + max(0, whole(exact * unit))
        counted[resource] = min(amount, INT64_MAX)
    return counted


def _factor(transformation: ResourceTransformation, requests: Mapping[str, int]) -> Fraction:
    """How often the outputs of the transformation count for these requests of one pod."""
    name, by = transformation.input, transformation.multiply_by
    factor = _value(name, requests[name])
    return factor * _value(by, requests[by]) if by in requests else factor


def uncharged(
    requests: Mapping[str, int],
    exclude: Sequence[str],
    transformations: Sequence[ResourceTransformation],
    covered: Container[str] | None = None,
) -> dict[str, str]:
    """Returns each resource that one pod requests and for which no quota is charged, with the
    reason. ``covered``: the only resources that need quota; None: all."""
    kept = {name: each for name, each in requests.items() if not name.startswith(tuple(exclude))}
    counted = transformed(kept, transformations)
    charged = {
        name for name, each in counted.items() if each > 0 and (covered is None or name in covered)
    }
    by_input = {transformation.input: transformation for transformation in transformations}
    reasons: dict[str, str] = {}
    for resource, amount in requests.items():
        transformation = by_input.get(resource)
        if amount <= 0:
            continue
        if resource not in kept:
            reasons[resource] = "resources.excludeResourcePrefixes excludes it"
            continue
        parts = {resource} if transformation is None or transformation.retains else set()
        times = _factor(transformation, kept) if transformation is not None else 0
        outputs = (
            [name for name, each in transformation.outputs if parse(each) > 0]
            if transformation is not None
            else []
        )
        if charged.intersection(parts.union(outputs) if times else parts):
            continue
        if parts:
            reasons[resource] = _NOT_COVERED
        elif not outputs:
            reasons[resource] = "its transformation replaces it by nothing"
        elif transformation is not None and not times:
            reasons[resource] = (
                f"its transformation multiplies it by 0 {transformation.multiply_by}"
            )
        else:
            name = outputs[0]
            why = _NOT_COVERED if counted.get(name) else "all outputs of that name add up to 0"
            reasons[resource] = f"it counts as {name}: {why}"
    return reasons


_NOT_COVERED: Final = (
    "the ClusterQueue does not cover it, and resources.quotaCheckStrategy is IgnoreUndeclared"
)


def _value(resource: str, amount: int) -> Fraction:
    return Fraction(amount, 1000) if resource == "cpu" else Fraction(amount)
