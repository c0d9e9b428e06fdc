"""Reads and plays a differential scenario: objects, and steps that Kueue ran too, with Kueue's
results. Source: ``differential/README.md``.

Unknown fields of a scenario are skipped. An unknown step is refused, because the results would be
wrong without the step."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final

import msgspec

from admittance.api.fields.problems import ManifestError
from admittance.events import reasons
from admittance.events.facts import Assigned, Preempted
from admittance.replay.minimal_system import (
    MinimalSystem,
    SettleResult,
    config_of_kueue,
    settle_result,
)
from admittance.scheduling.cycle.decisions import Decided

STEPS: Final = ("create", "settle", "finish", "delete", "update", "check")
_GZIP: Final = b"\x1f\x8b"
SIZE_MAX: Final = 256 * 1024 * 1024
"""The most bytes that a scenario file may unpack to: a small file could otherwise unpack to a huge
one."""

IDLE: Final = 10
"""A settle step ends after this many cycles in a row that change nothing, even if each of them
tries a StrictFIFO head again."""
CYCLES_MAX: Final = 500
"""How many cycles one settle step runs at most. No scenario of the set needs more than 400
cycles."""
_SECOND: Final = timedelta(seconds=1)


class BadScenario(ValueError):
    """A file is not a scenario, or the scenario cannot be played; the text is one line that says
    why."""


class Scenario(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A differential scenario. ``objects``: the manifests of the configuration; ``steps``: maps
    with one key, the kind of the step; ``expected``: Kueue's result for each settle step; None: the
    scenario has no expected results."""

    name: str
    objects: list[dict[str, Any]]
    steps: list[dict[str, Any]]
    fair_sharing: bool = False
    family: str = ""
    expected: list[dict[str, Any]] | None = None


def read(data: bytes) -> Scenario:
    """Reads a scenario from the bytes of a file, plain JSON or gzip. Raises BadScenario if the
    bytes are not a scenario."""
    if data.startswith(_GZIP):
        data = _unpacked(data)
    try:
        scenario = msgspec.json.decode(data, type=Scenario)
    except msgspec.ValidationError as error:
        raise BadScenario(f"the file is not a scenario: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadScenario(f"the scenario is not JSON: {error}") from None
    name = scenario.name
    if not name or "/" in name or "\0" in name or name.startswith("."):
        raise BadScenario(f"invalid scenario name {name!r}: it must be usable as a file name")
    for index, step in enumerate(scenario.steps):
        _check(index, step)
    return scenario


def _unpacked(data: bytes) -> bytes:
    unpacking = zlib.decompressobj(wbits=31)
    try:
        unpacked = unpacking.decompress(data, SIZE_MAX)
    except zlib.error as error:
        raise BadScenario(f"the gzip data of the scenario is broken: {error}") from None
    if unpacking.unconsumed_tail:
        raise BadScenario(f"the scenario unpacks to more than {SIZE_MAX:,} bytes")
    if not unpacking.eof:
        raise BadScenario("the gzip data of the scenario is cut off")
    if unpacking.unused_data:
        # The gzip file has several members, and `decompressobj` unpacks only the first.
        try:
            return gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise BadScenario(f"the gzip data of the scenario is broken: {error}") from None
    return unpacked


def _check(index: int, step: dict[str, Any]) -> None:
    if len(step) != 1:
        raise BadScenario(f"step {index}: a step has one key, this step has {len(step)}")
    (what,) = step
    if what not in STEPS:
        raise BadScenario(f"step {index}: unknown step {what!r}; known are {', '.join(STEPS)}")


def play(scenario: Scenario) -> list[SettleResult]:
    """Plays the scenario. Returns the result of every settle step, in the format of
    ``Scenario.expected``.

    Raises BadScenario if an object or a step of the scenario is not valid."""
    system = MinimalSystem(config_of_kueue(fair_sharing=scenario.fair_sharing))
    results: list[SettleResult] = []
    for index, obj in enumerate(scenario.objects):
        with _bad_scenario_at(f"object {index}"):
            system.apply_manifest(obj, "default")
    for index, step in enumerate(scenario.steps):
        ((what, value),) = step.items()
        if what == "settle":
            results.append(settle_result(system, index, settle(system)))
            continue
        with _bad_scenario_at(f"step {index}"):
            perform_step(system, what, value)
    return results


def perform_step(system: MinimalSystem, what: str, value: Any) -> None:
    """Performs one step of a scenario other than ``settle``. ``what``: the kind of the step;
    ``value``: the step's content."""
    _STEPS[what](system, value)


@contextmanager
def _bad_scenario_at(object_or_step: str) -> Iterator[None]:
    """Turns errors about an object or a step of a scenario into BadScenario. ``object_or_step``:
    the object or step in words, such as "step 3"."""
    try:
        yield
    except ManifestError as error:
        raise BadScenario(f"{object_or_step}: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError, msgspec.MsgspecError) as error:
        raise BadScenario(
            f"{object_or_step}: cannot be played: {type(error).__name__}: {error}"
        ) from error


def settle(
    system: MinimalSystem,
    watch: Callable[[Sequence[Decided]], None] | None = None,
    *,
    most: int = CYCLES_MAX,
) -> int:
    """Runs cycles of the scheduler until nothing changes, at most ``most``; returns the number of
    cycles, without the idle cycles at the end. ``watch``: called with the decisions of each cycle
    before the model applies them."""
    idle = 0
    system.cycle = 0
    while system.cycle < most:
        if not system.scheduler.wake_due(now=system.now):
            return system.cycle - idle
        if idle >= IDLE:
            return system.cycle - idle
        before = system.scheduler.parked_by_key()
        system.now += _SECOND
        system.cycle += 1
        decided = system.scheduler.cycle(now=system.now)
        if watch is not None:
            watch(decided)
        for decision in decided:
            if isinstance(decision, Preempted):
                by = decision.by.rpartition("/")[2]
                system.evict(decision.name, reasons.PREEMPTED, shown_reason=decision.reason, by=by)
            elif isinstance(decision, Assigned):
                system.reserve(decision)
            else:
                raise TypeError(f"Kueue makes no decision of the type {type(decision).__name__}")
        is_idle = not decided and system.scheduler.parked_by_key() == before
        idle = idle + 1 if is_idle else 0
    return system.cycle


# Steps. -------------------------------------------------------------------------------------


def _create(system: MinimalSystem, workloads: list[Mapping[str, Any]]) -> None:
    for workload in workloads:
        system.create(workload)


def _finish(system: MinimalSystem, names: list[str]) -> None:
    for name in names:
        if system.is_true(name, "Admitted") and not system.is_true(name, "Finished"):
            system.change(name, {"Finished": (True, reasons.SUCCEEDED)})


def _delete(system: MinimalSystem, names: list[str]) -> None:
    for name in names:
        if name not in system.stored:
            continue
        if system.is_true(name, "Finished"):
            # The scheduler's core removed the workload when it finished. In Kueue the deletion of a
            # workload requeues the workloads of its cohort tree, so the tree is flushed here.
            system.scheduler.flush(system.cluster_queue_of(name))
        system.put(name, None)


def _update(system: MinimalSystem, obj: Mapping[str, Any]) -> None:
    """Replaces the spec of a ClusterQueue, and applies the queue's stop policy to the queue's
    workloads."""
    queue = obj["metadata"]["name"]
    policy = obj["spec"].get("stopPolicy", "None")
    system.apply_manifest(obj, "default")
    for name, stored in list(system.stored.items()):
        admission = stored.status.admission
        if policy == "None":
            if any(
                condition.type == "Requeued" and condition.reason == reasons.CLUSTER_QUEUE_STOPPED
                for condition in stored.status.conditions
            ):
                system.change(name, {"Requeued": (True, reasons.CLUSTER_QUEUE_RESTARTED)})
        elif admission is not None and admission.cluster_queue == queue:
            if system.is_true(name, "Finished"):
                continue
            if not system.is_true(name, "Admitted"):
                system.change(name, {"QuotaReserved": (False, reasons.SUSPENDED)}, admission=None)
            elif policy == "HoldAndDrain":
                system.evict(name, reasons.CLUSTER_QUEUE_STOPPED, requeued=False)


def _check_verdict(system: MinimalSystem, value: Mapping[str, str]) -> None:
    name, check, state = value["workload"], value["name"], value["state"]
    if not system.is_true(name, "QuotaReserved") or system.is_true(name, "Finished"):
        return
    rows = system.stored[name].status.admission_checks
    if all(row.name != check for row in rows):
        return
    match state:
        case "Ready":
            rows = tuple(
                msgspec.structs.replace(row, state="Ready") if row.name == check else row
                for row in rows
            )
            system.change(name, {}, admission_checks=rows)
            if all(row.state == "Ready" for row in rows) and not system.is_true(name, "Admitted"):
                system.admit(name)
        case "Retry":
            system.evict(name, reasons.ADMISSION_CHECK)
        case "Rejected":
            system.evict(name, reasons.DEACTIVATED_DUE_TO_ADMISSION_CHECK, active=False)
        case _:
            raise ValueError(f"unknown check state {state!r}")


_STEPS: Final[dict[str, Callable[[MinimalSystem, Any], None]]] = {
    "create": _create,
    "finish": _finish,
    "delete": _delete,
    "update": _update,
    "check": _check_verdict,
}
