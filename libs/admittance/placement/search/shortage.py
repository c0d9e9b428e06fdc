"""Why a workload cannot be placed, as one sentence with numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from admittance.api.fields.units import render
from admittance.placement.machines.machine import PODS, Machine
from admittance.placement.search.index import (
    ClassSearch,
    MachineClass,
    MachineIndex,
    Size,
    class_key,
    names_match,
    suits,
)
from admittance.placement.search.request import Demands, PlacementRequest, PodGroup
from admittance.placement.search.room import Room
from admittance.quota.labels import missing_labels, untolerated

NAMED_MAX: Final = 3
"""The most machines that a sentence names."""
LOOKED_AT: Final = 8
"""How many machines of each class are compared, to name the nearest."""
SENTENCE_MAX: Final = 1_000


class Why(StrEnum):
    """Why a workload cannot be placed, for metrics."""

    NO_MACHINE = "NoMachine"
    """No runner has a machine that takes pods, or those that would suffice take none now."""
    LABELS = "Labels"
    AFFINITY = "Affinity"
    TAINT = "Taint"
    EXECUTOR = "Executor"
    REFUSED = "Refused"
    """No runner starts jobs like this one, for example of its user."""
    FOLDER = "Folder"
    SIZE = "Size"
    """The machines are too small, also without jobs."""
    ROOM = "Room"
    """The machines have too little free."""
    PARTS = "Parts"
    """The assignment would be too large to be stored."""


class Shortage(NamedTuple):
    """Why a workload cannot be placed. ``message``: a sentence without a point."""

    why: Why
    message: str

    @property
    def may_end(self) -> bool:
        """Whether the workload can be placed when other jobs end."""
        return self.why is Why.ROOM


class Attempt(NamedTuple):
    """A pod set that could not be placed. ``placed``: how many of its pods had room. ``most``: a
    bound of this number, if no pod was tried. ``rooms``: the
    rooms of machines that differ from those of the index, since pods of the workload were placed
    there or bookings do not count. ``search``: how a class was searched; None: it does not suit."""

    request: PlacementRequest
    group: PodGroup
    placed: int
    most: int | None
    rooms: Mapping[str, Room]
    search: Callable[[MachineClass], ClassSearch | None]


def shortage_of(attempt: Attempt, index: MachineIndex) -> Shortage:
    """The reason why the pod set could not be placed."""
    group, demands = attempt.group, attempt.request.demands
    searches = [s for c in _sorted(index) if (s := attempt.search(c)) is not None]
    # Machines are looked at one by one only where a class does not say everything.
    shortage = None
    if all(search.is_filtered for search in searches):
        shortage = _unsuited(group, demands, index)
    if shortage is None:
        closed = _closed(group, demands, index)
        shortage = _too_large(group, searches, index, closed)
        shortage = shortage or _no_room(attempt, searches, closed)
    message = shortage.message
    if len(attempt.request.pod_sets) > 1:
        message = f"pod set {group.name}: {message}"
    return shortage._replace(message=message[:SENTENCE_MAX])


def _sorted(index: MachineIndex) -> list[MachineClass]:
    return sorted(index.classes.values(), key=lambda c: (*c.key[:2], repr(c.key[2:])))


# No machine suits. ----------------------------------------------------------------------


def _unsuited(group: PodGroup, demands: Demands, index: MachineIndex) -> Shortage | None:
    """Why no machine suits the pods, whatever its room; None: a machine suits them."""
    machines = sorted(index.ledger.machines(), key=lambda machine: (machine.name, machine.id))
    if not machines:
        return Shortage(Why.NO_MACHINE, "no runner has announced a machine")
    if group.node_selector or group.terms is not None:
        left = [m for m in machines if names_match(m, group)]
        if not left:
            return _labels(group, machines)
        machines = left
    untainted = [m for m in machines if untolerated(m.taints, group.tolerations) is None]
    if not untainted:
        taint = untolerated(machines[0].taints, group.tolerations)
        assert taint is not None, "the machine was left out because of it"
        shown = f"{taint.key}={taint.value}" if taint.value else taint.key
        text = f"has the taint {shown}:{taint.effect}, which the pods do not tolerate"
        return Shortage(Why.TAINT, f"{_some(m.name for m in machines)} {text}")
    machines = untainted
    offering = [
        m
        for m in machines
        if not demands.executor or not m.executors or demands.executor in m.executors
    ]
    if not offering:
        text = f"no machine for the pods has the executor {demands.executor}"
        has = ", ".join(machines[0].executors)
        return Shortage(Why.EXECUTOR, f"{text}: {machines[0].name} has {has}")
    starting = [m for m in offering if m.starts is None or not demands.refusal(m.starts)]
    if not starting:
        first = offering[0]
        assert first.starts is not None, "a runner without rules starts all jobs"
        return Shortage(Why.REFUSED, f"runner {first.name}: {demands.refusal(first.starts)}")
    seeing = [m for m in starting if m.sees(demands.folder, demands.host)]
    if not seeing:
        text = f"no machine for the pods sees the folder {demands.folder} of the submitter"
        shared = sorted({folder for m in starting for folder in m.folders})
        text += f"; shared are {_some(shared)}" if shared else ""
        return Shortage(Why.FOLDER, text)
    if not any(machine.takes_pods for machine in seeing):
        return _all_closed(group, seeing, index)
    return None


def _all_closed(group: PodGroup, machines: Sequence[Machine], index: MachineIndex) -> Shortage:
    """Why machines that all take no jobs now would not do."""
    needs = _needs(group)
    capacities = [index.ledger.capacity(machine.id) for machine in machines]
    states = _states(machines)
    if any(_holds(capacity, needs) for capacity in capacities):
        text = f"no machine for the pods takes jobs now: {states}"
        return Shortage(Why.NO_MACHINE, text)
    short = [r for r, a in needs.items() if all(has.get(r, 0) < a for has in capacities)]
    text = "no machine for the pods has it, also when it is empty, and none takes jobs now"
    head = _head(group, short or [r for r in needs if r != PODS])
    return Shortage(Why.SIZE, f"{head}: {text}: {states}")


def _labels(group: PodGroup, machines: Sequence[Machine]) -> Shortage:
    selector = [
        item
        for item in group.node_selector
        if not any(machine.labels.get(item[0]) == item[1] for machine in machines)
    ]
    apart = [f"{key}={value}" for key, value in selector or group.node_selector]
    if selector:
        noun = "label" if len(apart) == 1 else "labels"
        return Shortage(Why.LABELS, f"no machine has the {noun} {' or '.join(apart)}")
    if not any(not missing_labels(m.labels, group.node_selector) for m in machines):
        return Shortage(Why.LABELS, f"no machine has the labels {' and '.join(apart)} together")
    return Shortage(
        Why.AFFINITY,
        "no machine matches the required node affinity of the pods"
        + (f" and has the labels {' and '.join(apart)}" if apart else ""),
    )


def _state(machine: Machine) -> str:
    if machine.lost_since is not None or not machine.ready:
        state = "is not ready"
    elif machine.draining:
        state = "is drained"
    else:
        state = "is cordoned"
    return f"{state} ({machine.message})" if machine.message else state


def _states(machines: Sequence[Machine]) -> str:
    """Why each of the machines takes no jobs; of many machines only their number."""
    said = [f"{m.name} {_state(m)}" for m in machines[:NAMED_MAX]]
    more = machines[NAMED_MAX:]
    if not more:
        return ", ".join(said)
    if any(m.lost_since is not None or not m.ready or not m.draining for m in more):
        state = "takes no jobs" if len(more) == 1 else "take no jobs"
    else:
        state = "is drained" if len(more) == 1 else "are drained"
    return f"{', '.join(said)} and {len(more):,} more {state}"


def _closed(group: PodGroup, demands: Demands, index: MachineIndex) -> list[Machine]:
    """The machines that would suit the pods and hold the next one, but take no jobs now."""
    found = []
    for machine in index.closed.values():
        if _holds(index.ledger.capacity(machine.id), _needs(group)):
            taken = MachineClass(class_key(machine))
            fits, only = suits(taken, group, demands, group.names_machines)
            if fits and (only is None or only(machine)):
                found.append(machine)
    return sorted(found, key=lambda machine: (machine.name, machine.id))


def _some(names: Iterable[str]) -> str:
    listed = list(dict.fromkeys(names))
    more = f" and {len(listed) - NAMED_MAX:,} more" if len(listed) > NAMED_MAX else ""
    return ", ".join(listed[:NAMED_MAX]) + more


# No machine is large enough, or has room. -----------------------------------------------


def amount_text(resource: str, amount: int) -> str:
    """An amount for people, such as ``4 GPUs`` or ``16Gi memory``."""
    if resource == "gpu" or resource.endswith("/gpu"):
        return f"{amount} GPU" if amount == 1 else f"{amount} GPUs"
    return f"{render(resource, amount)} {resource}"


def _amounts(amounts: Iterable[tuple[str, int]]) -> str:
    """Amounts for people, devices first."""
    ordered = sorted(amounts, key=lambda item: (item[0] in ("cpu", "memory", PODS), item[0]))
    return " and ".join(amount_text(resource, amount) for resource, amount in ordered)


def _needs(group: PodGroup) -> dict[str, int]:
    """What one machine must have free for the next pod, or for all pods that belong together."""
    times = group.count if group.together else 1
    return {resource: amount * times for resource, amount in group.requests}


def _head(group: PodGroup, resources: Iterable[str]) -> str:
    needs, wanted = _needs(group), set(resources)
    listed = _amounts((r, a) for r, a in needs.items() if r in wanted)
    if group.count > 1 and not group.together:
        return f"{group.count:,} pods with {listed} each"
    pods = f" for {group.count:,} pods" if group.together and group.count > 1 else ""
    return f"{listed} on one machine{pods}"


def _too_large(
    group: PodGroup,
    searches: Sequence[ClassSearch],
    index: MachineIndex,
    closed: Sequence[Machine],
) -> Shortage | None:
    """Why machines without jobs would not do; None: they would."""
    needs = _needs(group)
    sizes: dict[Size, int] = {}
    for search in searches:
        for size, count in search.taken.sizes.items():
            sizes[size] = sizes.get(size, 0) + count
    fitting = {size: n for size, n in sizes.items() if _holds(dict(size), needs)}
    if fitting:
        if group.together:
            return None
        each = {size: _pods(dict(size), group, group.count) for size in fitting}
        total = sum(each[size] * count for size, count in fitting.items())
        if total >= group.count:
            return None
        head = _head(group, [r for r in needs if r != PODS] or [PODS])
        text = f"have room for {total:,} when they are empty"
        every = total + sum(_pods(index.ledger.capacity(m.id), group, group.count) for m in closed)
        if every >= group.count:
            text = f"{_states(closed)}; the other machines {text}"
            return Shortage(Why.NO_MACHINE, f"{head}: {text}")
        text = f"the machines have room for {every:,} when they are empty"
        return Shortage(Why.SIZE, f"{head}: {text}")
    short = [r for r, a in needs.items() if all(dict(size).get(r, 0) < a for size in sizes)]
    # Devices tell machines apart, so they are named beside what is short.
    scarce = {resource for search in searches for resource in search.taken.key.scarce}
    shown = [r for r in needs if r in short or r in scarce] if short else list(needs)
    if not sizes:
        head = _head(group, [r for r in shown if r != PODS or r in short])
        return Shortage(Why.SIZE, f"{head}: no machine for the pods takes jobs now")
    lacks = {size: _lack(dict(size), needs) for size in sizes}
    least = min(lacks.values())
    name, size = index.first_of(
        {(s.taken, size) for s in searches for size in s.taken.sizes if lacks[size] == least}
    )
    have = dict(size)
    lacking = [r for r, a in needs.items() if have.get(r, 0) < a]
    named = [r for r in needs if r in lacking or (r in shown and r != PODS)]
    has = _amounts((r, have.get(r, 0)) for r in lacking)
    text = f"the largest, {name}, has {has}"
    if named != lacking:
        text = f"{name} comes nearest, it has {has}"
    head = _head(group, named)
    if closed:
        several = group.count > 1 and not group.together
        enough = sum(_pods(index.ledger.capacity(m.id), group, group.count) for m in closed)
        if several and enough < group.count:
            text = f"the machines have room for {enough:,} when they are empty"
            return Shortage(Why.SIZE, f"{head}: {text}")
        return Shortage(Why.NO_MACHINE, f"{head}: {_states(closed)}; {text}")
    text = text if short else f"no machine has all of it, also when it is empty; {text}"
    return Shortage(Why.SIZE, f"{head}: {text}")


def _lack(
    have: Mapping[str, int], needs: Mapping[str, int]
) -> tuple[int, int, float, tuple[int, ...]]:
    """How far a machine is from what is needed: the number of resources that it does not have at
    all, the number that it lacks, the largest part that is missing of one, and its amounts."""
    missing = [1 - have.get(r, 0) / a for r, a in needs.items() if have.get(r, 0) < a]
    none = sum(part == 1 for part in missing)
    ordered = sorted(needs, key=lambda r: (r in ("cpu", "memory", PODS), r))
    amounts = tuple([-have.get(r, 0) for r in ordered])
    return none, len(missing), max(missing, default=0.0), amounts


def _holds(have: Mapping[str, int], needs: Mapping[str, int]) -> bool:
    return all(have.get(resource, 0) >= amount for resource, amount in needs.items())


def _pods(have: Mapping[str, int], group: PodGroup, most: int) -> int:
    return min([most, *(have.get(r, 0) // a for r, a in group.requests)])


def _no_room(
    attempt: Attempt, searches: Sequence[ClassSearch], closed: Sequence[Machine]
) -> Shortage:
    group = attempt.group
    needs = _needs(group)
    if attempt.most is not None:
        head = _head(group, [r for r in needs if r != PODS])
        states = f"; {_states(closed)}" if closed else ""
        return Shortage(Why.ROOM, f"{head}: room for at most {attempt.most:,}{states}")
    lacking: list[tuple[int, float, str, Room]] = []
    for search in searches:
        for room in search.nearest(needs, LOOKED_AT):
            here = attempt.rooms.get(room.machine.id, room)
            short = [
                1 - max(0, here.free.get(r, 0)) / a
                for r, a in needs.items()
                if here.free.get(r, 0) < a
            ]
            if short:
                lacking.append((len(short), max(short), here.machine.name, here))
    nearest = [room for *_, room in sorted(lacking, key=lambda item: item[:3])[:NAMED_MAX]]
    short_of = [r for r, a in needs.items() if any(room.free.get(r, 0) < a for room in nearest)]
    head = _head(group, short_of or [r for r in needs if r != PODS])
    if group.count > 1 and not group.together:
        head += f": room for {attempt.placed:,}"
    says = []
    for number, room in enumerate(nearest):
        have = [(r, max(0, room.free.get(r, 0))) for r in short_of]
        amounts = render(short_of[0], have[0][1]) if len(have) == 1 else _amounts(have)
        says.append(f"{room.machine.name} has {amounts}{'' if number else ' free'}")
    if closed:
        says.append(_states(closed))
    separator = "; " if group.count > 1 and not group.together else ": "
    return Shortage(Why.ROOM, head + (separator + ", ".join(says) if says else ""))
