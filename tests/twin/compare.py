"""Plays a scenario through the real scheduler and through its slow twin, and compares them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from admittance.replay.scenario import play, read

from twin.play import Play


def both(scenario: Mapping[str, Any]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """For each settle step how everything stood after it, and all that happened in which cycle:
    by the twin, and by the scheduler."""
    results = [in_shape(result) for result in play(read(json.dumps(scenario).encode()))]
    twin = Play(scenario)
    pairs: list[tuple[dict[str, Any], dict[str, Any]]] = []
    for step in scenario["steps"]:
        twin.step(step)
        if "settle" in step:
            pairs.append((twin.outcome(), results[len(pairs)]))
    return pairs


def in_shape(settled: Mapping[str, Any]) -> dict[str, Any]:
    """An outcome of the scheduler in the shape of the twin's."""
    usage = {
        (queue, flavor, resource): much
        for queue, flavors in settled["usage"].items()
        for flavor, resources in flavors.items()
        for resource, much in resources.items()
        if much
    }
    trace = [
        (
            event["cycle"],
            event["event"],
            event["workload"],
            event.get("reason", ""),
            event.get("by", ""),
        )
        for event in settled["trace"]
        if event["event"] != "admit"
    ]
    rest = {"cycles": settled["cycles"], "workloads": settled["workloads"]}
    return {"usage": usage, "trace": sorted(trace), **rest}


def difference(scenario: Mapping[str, Any]) -> str:
    """The first difference, in words; empty if there is no difference."""
    for index, (twin, core) in enumerate(both(scenario)):
        if twin["trace"] != core["trace"]:
            first = min(set(twin["trace"]) ^ set(core["trace"]), default=())
            by = "twin" if first in twin["trace"] else "scheduler"
            return f"settle {index}: only the {by} has {first}"
        for part in ("workloads", "usage", "cycles"):
            if twin[part] != core[part]:
                return f"settle {index}: {part} {twin[part]} by the twin, {core[part]} by us"
    return ""
