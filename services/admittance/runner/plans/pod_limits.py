"""What the processes of a pod may use together, from requests and limits of its containers. Pure.

A container may use as much memory as its limit says, and without a limit as much as it requests:
that is what quota was counted for. Cpu has a limit only where a limit is stated; requests are
weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from admittance.api.fields.units import units, whole
from admittance.api.pod_requests import effective, requests_of
from admittance.api.pods import PodSpec, ResourceRequirements


class PodLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The fields have the meaning of those of `admittance.runner.groups.job_groups.Limits`."""

    memory: int = 0
    processes: int = 0
    cpu: int = 0
    share: int = 0


class GroupsPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The groups of a runner. ``version``: ``v1`` or ``v2`` of Linux cgroups. ``folders``: the
    folder of the runner's group for each controller."""

    version: str
    folders: Mapping[str, str]


def container_limits(resources: ResourceRequirements) -> PodLimits:
    """What a container may use by itself."""
    limits, requests = resources.limits, requests_of(resources)
    return PodLimits(
        memory=_amount("memory", limits.get("memory", requests.get("memory"))),
        cpu=_amount("cpu", limits.get("cpu")),
        share=_amount("cpu", requests.get("cpu")),
    )


def pod_limits(spec: PodSpec) -> PodLimits:
    """What the containers of a pod may use together. Without a limit of one container the pod has
    none, unless the pod states its own."""
    whole_pod = spec.resources or ResourceRequirements()
    own = container_limits(whole_pod)
    main = [container_limits(each.resources) for each in spec.containers]
    init = [container_limits(each.resources) for each in spec.init_containers]
    share = effective(spec.containers, spec.init_containers, spec.resources, spec.overhead)
    return PodLimits(
        memory=own.memory
        or _of_all("memory", [each.memory for each in main], [each.memory for each in init], spec),
        cpu=own.cpu
        or _of_all("cpu", [each.cpu for each in main], [each.cpu for each in init], spec),
        share=share.get("cpu", 0),
    )


def _of_all(resource: str, main: Sequence[int], init: Sequence[int], spec: PodSpec) -> int:
    """The limit of a pod: init containers run one after another, before the others."""
    if not all((*main, *init)):
        return 0
    total = max(sum(main), *init, 0)
    return total + _amount(resource, spec.overhead.get(resource))


def _amount(resource: str, written: str | float | None) -> int:
    return 0 if written is None else max(0, whole(units(resource, written)))
