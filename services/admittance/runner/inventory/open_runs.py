"""What the open runs of a runner have asked for."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from admittance.api.pod_requests import needs
from admittance.events.facts import Admitted
from admittance.events.machines import OpenRun
from admittance.events.shapes import PodSetToRun
from admittance.runner.jobs.devices import parts_here
from admittance.runner.machine import RunFiles

_encode = msgspec.json.Encoder().encode


def requests_of(admitted: Admitted, runner: str) -> dict[str, int]:
    """What the pods of an admission that the runner with this id starts ask for together, in
    accounting units. Raises as `admittance.api.pod_requests.needs` for a template that was not
    validated."""
    pod_sets = [
        {"name": pod_set.name, "count": _count(pod_set, runner), "template": pod_set.template}
        for pod_set in admitted.pod_sets
        if bytes(pod_set.template) != b"null"
    ]
    total: dict[str, int] = {}
    for needed in needs(_encode({"podSets": pod_sets})).pod_sets:
        for resource, amount in needed.requests.items():
            total[resource] = total.get(resource, 0) + amount * needed.count
    return total


def _count(pod_set: PodSetToRun, runner: str) -> int:
    if not pod_set.parts:
        return pod_set.count
    return sum(part.count for part in parts_here(pod_set, runner))


def open_runs(runs: Iterable[RunFiles]) -> list[OpenRun]:
    """The runs as messages."""
    return [
        OpenRun(
            namespace=of.namespace,
            name=of.name,
            revision=of.revision,
            requests=dict(of.requests),
            devices=_by_resource(of.units),
        )
        for of in (run.identity for run in runs)
    ]


def _by_resource(units: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Units ``<resource>=<id>`` as their ids by resource."""
    ids: dict[str, tuple[str, ...]] = {}
    for unit in units:
        resource, _, name = unit.partition("=")
        ids[resource] = (*ids.get(resource, ()), name)
    return ids
