"""What workloads hold of machines, by what is stored: each pod is placed once, no unit of a device
is held by two workloads, and nothing is admitted on a covered flavor without machines.

Read plainly from stored workloads and Runner objects, and sharing nothing with
`admittance.placement.search.ledger`. docs/spec/lifecycle.md#2.9.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from admittance.api.fields.units import amount
from admittance.events.placement import Placement
from admittance.workload.conditions import Type, is_true
from admittance.workload.stored import StoredWorkload
from simulation.invariants import gates
from simulation.invariants.effects import Effects
from simulation.invariants.seen import Manifests, Seen
from simulation.transcript import Broken

CONTROLLER = "admittance.dev/machines"


class _Holding(NamedTuple):
    """What a workload holds. ``family``: no two workloads of it run at the same time. ``pod``: what
    a pod of each pod set asks for, in accounting units."""

    family: str
    parts: Placement
    pod: Mapping[str, Mapping[str, int]]


class Bookings:
    """``runners``: the stored Runner objects by name."""

    def __init__(self, around: Manifests, runners: Mapping[str, Any], effects: Effects) -> None:
        self._around = around
        self._runners = runners
        self._effects = effects
        self._held: dict[str, _Holding] = {}
        self._on: dict[str, set[str]] = defaultdict(set)
        """By id of a runner, the keys of the workloads that hold something there."""
        self._assigned: dict[str, int] = {}
        """Keys of workloads that got an assignment, with the fact that brought it. The writes of a
        batch come one after the other, so a machine may be assigned before it is given up."""

    def stored(self, key: str, before: Seen, after: Seen) -> None:
        """Checks a write of a workload."""
        workload = after.workload
        parts = _held_parts(after)
        holding = self._held.get(key)
        if holding is None or holding.parts != parts:
            for part in holding.parts if holding is not None else ():
                self._on[part.id].discard(key)
            self._held.pop(key, None)
            if workload is not None and parts:
                self._hold(key, _Holding(after.family or key, parts, _requests(workload)), workload)
        if workload is None or not is_true(workload, Type.ADMITTED):
            return
        old = before.workload
        if (old is None or not is_true(old, Type.ADMITTED)) and after.usage:
            self._admitted(key, workload)

    def _hold(self, key: str, holding: _Holding, workload: StoredWorkload) -> None:
        for wrong in _pods(holding, workload):
            raise Broken(f"{key}: {wrong} (2.9)")
        self._held[key] = holding
        for part in holding.parts:
            self._on[part.id].add(key)
        if is_true(workload, Type.ADMITTED):
            self._compare(key)
        else:
            self._assigned[key] = workload.status.log.fact

    def acknowledged(self, through: int) -> None:
        """Checks the assignments of all facts up to this sequence, which are written now."""
        for key, fact in list(self._assigned.items()):
            if fact <= through:
                del self._assigned[key]
                if key in self._held:
                    self._compare(key)

    def _compare(self, key: str) -> None:
        for machine in sorted({part.id for part in self._held[key].parts}):
            for wrong in self._twice(key, machine):
                raise Broken(f"{key}: {wrong} (2.9)")
            for wrong in self._over(machine):
                raise Broken(f"{key}: {wrong} (2.9)")

    def _twice(self, key: str, machine: str) -> Iterator[str]:
        mine = self._held[key]
        units = _units(mine, machine)
        for other in sorted(self._on[machine] - {key}):
            theirs = self._held[other]
            both = units & _units(theirs, machine)
            if both and theirs.family != mine.family:
                yield f"it is assigned {sorted(both)} of {machine}, which {other} holds"

    def _over(self, machine: str) -> Iterator[str]:
        """The workloads on a machine ask for no more cpu than it has; of a family the largest
        counts."""
        stored = next(
            (
                runner
                for runner in self._runners.values()
                if runner.status is not None and runner.status.id == machine
            ),
            None,
        )
        if stored is None or "cpu" not in stored.status.capacity:
            return
        families: dict[str, int] = {}
        for key in self._on[machine]:
            holding = self._held[key]
            cpu = sum(
                holding.pod[part.pod_set].get("cpu", 0) * part.count
                for part in holding.parts
                if part.id == machine
            )
            families[holding.family] = max(families.get(holding.family, 0), cpu)
        most = amount("cpu", stored.status.capacity["cpu"])
        if sum(families.values()) > most:
            yield f"{sum(families.values())}m cpu are assigned on {machine}, which has {most}m"

    def _admitted(self, key: str, workload: StoredWorkload) -> None:
        """Whatever is admitted has the machines that its check named, and no others."""
        status = workload.status
        assert status.admission is not None
        required = gates.required(status.admission, self._around) or {}
        names = [name for name, controller in required.items() if controller == CONTROLLER]
        if not names or not gates.unsettled(workload, self._around).isdisjoint(names):
            return
        if not status.placement:
            raise Broken(f"{key} is admitted, and is placed on no machine (2.9)")
        said = [
            verdict.placement
            for name in names
            for sequence, verdict in self._effects.verdicts[key][name]
            if verdict.state == "Ready"
            and verdict.cycle == status.admission_cycle
            and sequence <= status.log.fact
        ]
        if status.placement not in said:
            raise Broken(f"{key} is admitted on {status.placement}, which no verdict said (2.9)")


def _held_parts(seen: Seen) -> Placement:
    """The assignment of a workload that holds quota: that of its admission, or of its check."""
    workload = seen.workload
    if workload is None or not seen.booked:
        return ()
    if workload.status.placement:
        return workload.status.placement
    rows = (row for row in workload.status.admission_checks if row.state == "Ready")
    assigned: Any = next((row.placement for row in rows if row.placement), ())
    return msgspec.convert(msgspec.to_builtins(assigned), Placement)


def _requests(workload: StoredWorkload) -> dict[str, dict[str, int]]:
    """What a pod of each pod set asks for."""
    asked: dict[str, dict[str, int]] = {}
    for pod_set in msgspec.json.decode(workload.spec)["podSets"]:
        total: Counter[str] = Counter()
        for container in pod_set["template"]["spec"]["containers"]:
            for resource, quantity in container["resources"]["requests"].items():
                total[resource] += amount(resource, quantity)
        asked[pod_set.get("name", "main")] = dict(total)
    return asked


def _pods(holding: _Holding, workload: StoredWorkload) -> Iterator[str]:
    """Why the parts do not have each pod once, with what it asks for."""
    assert workload.status.admission is not None
    for place in workload.status.admission.pod_set_assignments:
        parts = [part for part in holding.parts if part.pod_set == place.name]
        pods = [pod for part in parts for pod in range(part.first, part.first + part.count)]
        if sorted(pods) != list(range(place.count)):
            yield f"its {place.count} pods {place.name} are placed as {sorted(pods)}"
        for part in parts:
            for resource, ids in part.devices.items():
                each = holding.pod[place.name].get(resource, 0)
                if len(set(ids)) != each * part.count:
                    yield f"{part.count} pods with {each} {resource} each are assigned {ids}"
    taken = [
        (part.id, unit) for part in holding.parts for ids in part.devices.values() for unit in ids
    ]
    if len(set(taken)) < len(taken):
        yield f"it is assigned a unit twice: {sorted(taken)}"


def _units(holding: _Holding, machine: str) -> set[str]:
    return {
        f"{resource}={unit}"
        for part in holding.parts
        if part.id == machine
        for resource, ids in part.devices.items()
        for unit in ids
    }
