"""Runs a scenario step by step. Source: ``differential/README.md``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final

import msgspec

from admittance.api.problems import ManifestError
from admittance.events.facts import Assigned, Preempted
from admittance.events.requests import PendingQuery
from admittance.replay.outcome import Settled, outcome
from admittance.replay.scenario import BadScenario, Scenario
from admittance.replay.standin import NEVER, StandIn, config_of_kueue
from admittance.scheduling.cycle.outcomes import Decided

IDLE: Final = 10
"""Idle cycles in a row after which a StrictFIFO head is settled, too."""
CYCLES_MAX: Final = 500
"""Cycles of one settle step. Scenarios that need more than 400 were not kept."""
_SECOND: Final = timedelta(seconds=1)


def play(scenario: Scenario) -> list[Settled]:
    """The result of every settle step, in the format of ``expected``.

    Raises BadScenario when a step cannot be run.
    """
    world = StandIn(config_of_kueue(fair_sharing=scenario.fair_sharing))
    found: list[Settled] = []
    for index, obj in enumerate(scenario.objects):
        with _told(f"object {index}"):
            world.put_object(obj)
    world.own_all()
    for index, step in enumerate(scenario.steps):
        ((what, value),) = step.items()
        if what == "settle":
            found.append(outcome(world, index, settle(world)))
            continue
        with _told(f"step {index}"):
            happen(world, what, value)
    return found


def happen(world: StandIn, what: str, value: Any) -> None:
    """Performs a step other than ``settle``."""
    _STEPS[what](world, value)


@contextmanager
def _told(where: str) -> Iterator[None]:
    """Turns errors about the values of a step into BadScenario."""
    try:
        yield
    except ManifestError as error:
        raise BadScenario(f"{where}: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError, msgspec.MsgspecError) as error:
        raise BadScenario(f"{where} cannot be played: {type(error).__name__}: {error}") from error


def settle(world: StandIn, watch: Callable[[Sequence[Decided]], None] | None = None) -> int:
    """Runs cycles until nothing changes; returns their number without the idle ones at the end.
    ``watch`` gets the decisions of each cycle before they are applied."""
    idle = 0
    world.cycle = 0
    while world.cycle < CYCLES_MAX:
        if not world.core.rouse(now=world.now):
            return world.cycle - idle
        if idle >= IDLE:
            return world.cycle - idle
        before = _standing(world)
        world.now += _SECOND
        world.cycle += 1
        decided = world.core.cycle(now=world.now)
        if watch is not None:
            watch(decided)
        for one in decided:
            if isinstance(one, Preempted):
                by = one.by.rpartition("/")[2]
                world.evict(one.name, "Preempted", told=one.reason, by=by)
            elif isinstance(one, Assigned):
                world.reserve(one)
            else:
                raise TypeError(f"Kueue has no {type(one).__name__}")
        idle = idle + 1 if not decided and _standing(world) == before else 0
    return world.cycle


def _standing(world: StandIn) -> frozenset[tuple[str, bool]]:
    """The pending workloads, and whether each is parked."""
    rows = world.core.pending(PendingQuery(limit=NEVER)).rows
    return frozenset((row.name, row.parked) for row in rows if row.position)


# Steps. -------------------------------------------------------------------------------------


def _create(world: StandIn, workloads: list[Mapping[str, Any]]) -> None:
    for workload in workloads:
        world.create(workload)


def _finish(world: StandIn, names: list[str]) -> None:
    for name in names:
        if world.is_true(name, "Admitted") and not world.is_true(name, "Finished"):
            world.change(name, {"Finished": (True, "Succeeded")})


def _delete(world: StandIn, names: list[str]) -> None:
    for name in names:
        if name not in world.stored:
            continue
        if world.is_true(name, "Finished"):
            # The core has removed it already; in Kueue any deleted workload wakes its tree.
            world.core.flush(world.cluster_queue_of(name))
        world.put(name, None)


def _update(world: StandIn, obj: Mapping[str, Any]) -> None:
    """Replaces the ClusterQueue's spec and applies its stop policy to workloads."""
    queue = obj["metadata"]["name"]
    policy = obj["spec"].get("stopPolicy", "None")
    world.put_object(obj)
    world.own_all()
    for name, stored in list(world.stored.items()):
        admission = stored.status.admission
        if policy == "None":
            if any(
                one.type == "Requeued" and one.reason == "ClusterQueueStopped"
                for one in stored.status.conditions
            ):
                world.change(name, {"Requeued": (True, "ClusterQueueRestarted")})
        elif admission is not None and admission.cluster_queue == queue:
            if world.is_true(name, "Finished"):
                continue
            if not world.is_true(name, "Admitted"):
                world.change(name, {"QuotaReserved": (False, "Suspended")}, admission=None)
            elif policy == "HoldAndDrain":
                world.evict(name, "ClusterQueueStopped", requeued=False)


def _check(world: StandIn, value: Mapping[str, str]) -> None:
    name, check, state = value["workload"], value["name"], value["state"]
    if not world.is_true(name, "QuotaReserved") or world.is_true(name, "Finished"):
        return
    rows = world.stored[name].status.admission_checks
    if all(row.name != check for row in rows):
        return
    match state:
        case "Ready":
            rows = tuple(
                msgspec.structs.replace(row, state="Ready") if row.name == check else row
                for row in rows
            )
            world.change(name, {}, admission_checks=rows)
            if all(row.state == "Ready" for row in rows) and not world.is_true(name, "Admitted"):
                world.admit(name)
        case "Retry":
            world.evict(name, "AdmissionCheck")
        case "Rejected":
            world.evict(name, "DeactivatedDueToAdmissionCheck", active=False)
        case _:
            raise ValueError(f"no check state {state!r}")


_STEPS: Final[dict[str, Callable[[StandIn, Any], None]]] = {
    "create": _create,
    "finish": _finish,
    "delete": _delete,
    "update": _update,
    "check": _check,
}
