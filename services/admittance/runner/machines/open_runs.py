"""What the open runs of a runner have asked for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from admittance.events.stored.machines import OpenRun
from admittance.runner.host.port import RunFiles

RUNS_MAX: Final = 1_500
"""The most runs that are listed by name: the server refuses a message above 1 MiB."""


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
