"""What the open runs of a runner have asked for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from admittance.api.pod_requests import needs
from admittance.events.facts import Admitted
from admittance.events.shapes import PodSetToRun
from admittance.events.stored.machines import OpenRun
from admittance.runner.jobs.devices import parts_here
from admittance.runner.machine import RunFiles

RUNS_MAX: Final = 1_500
"""The most runs that are listed by name: the server refuses a message above 1 MiB."""

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


def open_runs(runs: Iterable[RunFiles], most: int = RUNS_MAX) -> list[OpenRun]:
    """The runs as messages. Those above ``most`` are one nameless run with the sum of what they
    have: all runs must fit into one message, and none of what they have may count as free."""
    listed = [
        OpenRun(
            namespace=of.namespace,
            name=of.name,
            revision=of.revision,
            requests=dict(of.requests),
            devices=_by_resource(of.units),
        )
        for of in (run.identity for run in runs)
    ]
    return listed if len(listed) <= most else [*listed[:most], _together(listed[most:])]


def _together(runs: Iterable[OpenRun]) -> OpenRun:
    requests: dict[str, int] = {}
    devices: dict[str, tuple[str, ...]] = {}
    for run in runs:
        for resource, amount in run.requests.items():
            requests[resource] = requests.get(resource, 0) + amount
        for resource, ids in run.devices.items():
            devices[resource] = (*devices.get(resource, ()), *ids)
    return OpenRun(namespace="", name="", revision=0, requests=requests, devices=devices)


def _by_resource(units: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Units ``<resource>=<id>`` as their ids by resource."""
    ids: dict[str, tuple[str, ...]] = {}
    for unit in units:
        resource, _, name = unit.partition("=")
        ids[resource] = (*ids.get(resource, ()), name)
    return ids
