"""What one pod of a template counts for: its effective requests, in accounting units.

Containers add up. Init containers run before them, one at a time, so the largest counts; an init
container that restarts always (a sidecar) stays, and so adds to all that run after it. Pod-level
resources stand for what the containers ask of the same resource, and overhead comes on top. A
limit without a request is the request.
Source: Kubernetes, component-helpers' ``PodRequests``; Kueue, limits as missing requests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Final, Protocol, TypeAlias

from admittance.api.pods import PodTemplate
from admittance.api.quantity import units, whole

Quantities: TypeAlias = Mapping[str, str | int | float]
Exact: TypeAlias = dict[str, "int | Fraction"]

_POD_LEVEL: Final = frozenset({"cpu", "memory"})


class Resources(Protocol):
    @property
    def requests(self) -> Quantities: ...
    @property
    def limits(self) -> Quantities: ...


class Contained(Protocol):
    @property
    def resources(self) -> Resources: ...
    @property
    def restart_policy(self) -> str | None: ...


def asked(resources: Resources) -> Quantities:
    """The requests, with limits where a request is missing."""
    requests, limits = resources.requests, resources.limits
    if not limits:
        return requests
    if not requests:
        return limits
    return {**limits, **requests}


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
    containers: Sequence[Contained],
    init_containers: Sequence[Contained] = (),
    pod_level: Resources | None = None,
    overhead: Quantities | None = None,
) -> dict[str, int]:
    """Requests of one pod: resource to accounting units, rounded up, from 0 to the int64 maximum.

    Raises BadQuantity.
    """
    if len(containers) == 1 and not init_containers and pod_level is None and not overhead:
        return {
            resource: max(0, whole(units(resource, written)))
            for resource, written in asked(containers[0].resources).items()
        }
    total: Exact = {}
    for container in containers:
        _add(total, _exact(asked(container.resources)))
    sidecars: Exact = {}
    peak: Exact = {}
    for container in init_containers:
        mine = _exact(asked(container.resources))
        if container.restart_policy == "Always":
            _add(total, mine)
            _add(sidecars, mine)
            mine = sidecars
        else:
            _add(mine, sidecars)
        _raise(peak, mine)
    _raise(total, peak)
    if pod_level is not None:
        for resource, number in _exact(asked(pod_level)).items():
            if resource in _POD_LEVEL or resource.startswith("hugepages-"):
                total[resource] = number
    if overhead:
        _add(total, _exact(overhead))
    return {resource: max(0, whole(number)) for resource, number in total.items()}


def of_template(template: PodTemplate) -> dict[str, int]:
    """Requests of one pod of template, in accounting units. Raises BadQuantity."""
    pod = template.spec
    return effective(pod.containers, pod.init_containers, pod.resources, pod.overhead)
