"""The result of a settle step in the format of ``expected``, and the differences of two."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from admittance.api.units import amount
from admittance.replay.standin import StandIn
from admittance.workload.stored import WorkloadStatus

Settled: TypeAlias = dict[str, Any]
"""``step``, ``cycles``, ``workloads``, ``usage`` and ``trace``; see ``differential/README.md``."""

_Usage: TypeAlias = dict[str, dict[str, dict[str, int]]]


def outcome(world: StandIn, step: int, cycles: int) -> Settled:
    """The state after the step; clears evictions and trace."""
    usage: _Usage = {}
    workloads: dict[str, Any] = {}
    for name in sorted(world.stored):
        found = _workload(world, name, world.stored[name].status, usage)
        evictions = world.evictions.pop(name, None)
        if evictions:
            found["evictions"] = evictions
        workloads[name] = found
    world.evictions.clear()
    trace, world.trace = world.trace, []
    world.cycle = 0
    return {
        "step": step,
        "cycles": cycles,
        "workloads": workloads,
        "usage": usage,
        "trace": trace,
    }


def _workload(world: StandIn, name: str, status: WorkloadStatus, usage: _Usage) -> dict[str, Any]:
    if world.is_true(name, "Finished"):
        return {"state": "Finished"}
    if name in world.inactive:
        return {"state": "Inactive"}
    admission = status.admission
    if admission is None:
        return {"state": "Pending"}
    of_queue = usage.setdefault(admission.cluster_queue, {})
    for ps in admission.pod_set_assignments:
        for resource, flavor in ps.flavors.items():
            of_flavor = of_queue.setdefault(flavor, {})
            much = amount(resource, ps.resource_usage[resource])
            of_flavor[resource] = of_flavor.get(resource, 0) + much
    return {
        "state": "Admitted" if world.is_true(name, "Admitted") else "QuotaReserved",
        "clusterQueue": admission.cluster_queue,
        "podSets": [
            {"name": ps.name, "count": ps.count, "flavors": dict(ps.flavors)}
            for ps in admission.pod_set_assignments
        ],
    }


def differences(expected: Sequence[Settled], found: Sequence[Settled]) -> Iterator[str]:
    """The differences, a sentence each. ``step``, ``cycles`` and ``trace`` are not compared, and
    zero equals a missing amount."""
    if len(expected) != len(found):
        yield f"{len(expected)} settle steps are expected, there are {len(found)}"
    for want, got in zip(expected, found, strict=False):
        step = got["step"]
        for name in sorted({*want["workloads"], *got["workloads"]}):
            left, right = want["workloads"].get(name), got["workloads"].get(name)
            if left != right:
                yield f"step {step}, workload {name}: expected {left}, got {right}"
        left_usage, right_usage = _flat(want["usage"]), _flat(got["usage"])
        for key in sorted({*left_usage, *right_usage}):
            if left_usage.get(key, 0) != right_usage.get(key, 0):
                yield (
                    f"step {step}, usage of {'/'.join(key)}: "
                    f"expected {left_usage.get(key, 0)}, got {right_usage.get(key, 0)}"
                )


def _flat(usage: Mapping[str, Any]) -> dict[tuple[str, str, str], int]:
    return {
        (queue, flavor, resource): much
        for queue, flavors in usage.items()
        for flavor, resources in flavors.items()
        for resource, much in resources.items()
    }
