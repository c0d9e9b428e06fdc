"""Mechanisms of arrays and dependencies, each taken out as in `mutations`."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, Final

from admittance.acts import Act
from admittance.arrays import core, dependents, required_acts
from admittance.arrays.dependents import Verdict
from admittance.arrays.known_arrays import Elements, KnownArray
from admittance.events.facts import Deleted, Submitted
from admittance.events.subjects import WorkloadName
from admittance.workload.arrays import moves
from simulation.hunting.mutations import Mutation, Patch
from simulation.plots.catalog import arrays
from simulation.plots.configuration import NAMESPACE
from simulation.plots.scenario import Fault, Scenario, UserFact

_released: Final = required_acts._released
_required: Final = required_acts.required_acts
_with_results: Final = moves._with_results


def _release_all(name: WorkloadName, array: KnownArray, elements: Elements) -> Iterator[Any]:
    """Opens the gates of all elements."""
    if array.parallelism is None:
        return
    yield from _released(name, array._replace(parallelism=len(array.indexes)), elements)


def _overwritten(before: str, fact: Any) -> str:
    """The results of a fact replace all that are stored."""
    return _with_results("." * len(before), fact)


def _without_orphans(*given: Any) -> list[Act]:
    """Elements of an array that is gone stay."""
    return [act for act in _required(*given) if act.why != "orphan"]


def _deleted_without_leader(rng: Random) -> Scenario:
    """Users delete elements while no array-controller runs."""
    base = arrays(rng)
    gone = [
        UserFact(said.at + 2.0 + number, Deleted(namespace=NAMESPACE, name=f"{said.fact.name}-1"))
        for number, said in enumerate(base.user_facts)
        if isinstance(said.fact, Submitted)
    ]
    faults = [
        Fault(after, name, "kill", 9.0, 0.0) for after in (30, 60, 90) for name in ("a-a", "a-b")
    ]
    return base._replace(user_facts=[*base.user_facts, *gone], faults=faults)


def _deleted_in_the_end(rng: Random) -> Scenario:
    """Users delete all arrays, most of which have ended."""
    base = arrays(rng)
    names = {said.fact.name for said in base.user_facts if isinstance(said.fact, Submitted)}
    gone = [
        UserFact(base.calm + 100.0, Deleted(namespace=NAMESPACE, name=name))
        for name in sorted(names)
    ]
    return base._replace(user_facts=[*base.user_facts, *gone])


ARRAY_MUTATIONS: Final = {
    "an array would start more elements at once than it allows": Mutation(
        (Patch(required_acts, "_released", _release_all),), arrays, "and their array allows", 1
    ),
    "a workload would start before what it waits for": Mutation(
        (Patch(dependents, "judge", lambda *_: (Verdict.MET, "")),), arrays, "takes quota before", 0
    ),
    "results of elements would be lost": Mutation(
        (Patch(moves, "_with_results", _overwritten),), arrays, r"was . and is \.", 0
    ),
    "what an array has ended would go on": Mutation(
        (Patch(required_acts, "_ended", lambda *_: iter(())),), arrays, "has ended, and", 0
    ),
    "elements deleted before a leader began would never count": Mutation(
        (Patch(Elements, "compare", lambda *_: None),),
        _deleted_without_leader,
        "waits, and everything|its elements have|has a second element",
        100,
    ),
    "elements of an array that is gone would stay": Mutation(
        (Patch(core, "required_acts", _without_orphans),),
        _deleted_in_the_end,
        "elements of no array",
        0,
    ),
}
"""By what would happen without the mechanism."""
