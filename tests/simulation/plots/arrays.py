"""Arrays and workloads that wait for others, while leaders of the array-controller fall."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import timedelta
from random import Random
from typing import Final, NamedTuple

import msgspec

from admittance.api.dependencies import DEPENDENCIES_GATE
from admittance.api.workload import ARRAY_GATE
from admittance.events import facts
from admittance.workload.limits import Limits
from simulation.environment.courses import Courses
from simulation.plots.checked import reactivations, user_changes
from simulation.plots.configuration import NAMESPACE, Queues, Spec, cpu
from simulation.plots.scenario import (
    SERVICES,
    Scenario,
    UserFact,
    faults_of_one_leader,
    skews,
    submission,
    workload_of,
)

ARRAY_SERVICES: Final = (*SERVICES, "a-a", "a-b")
INDEXES: Final = {
    "0-2": (0, 1, 2),
    "0-4": (0, 1, 2, 3, 4),
    "1,3,7": (1, 3, 7),
    "0-10:2": (0, 2, 4, 6, 8, 10),
    "0-7": (0, 1, 2, 3, 4, 5, 6, 7),
}
"""Sets of indexes as they are written, and as they are meant."""
CONDITIONS: Final = ("ok", "ok", "any", "failed", "started")


class _Submitted(NamedTuple):
    """A workload of the story. ``indexes``: of an array, as written; "": it is no array."""

    name: str
    at: float
    indexes: str


def arrays(rng: Random) -> Scenario:
    """A few arrays in tight queues, single workloads, and what waits for them."""
    queues = _queues(rng)
    span = rng.choice((1.0, 6.0, 15.0))
    members: list[_Submitted] = []
    user_facts: list[UserFact] = []
    for number in range(rng.randint(2, 5)):
        name = f"w{number}"
        at = 1.0 + rng.random() * span
        if members and rng.random() < 0.6:
            at = max(at, rng.choice(members).at + 0.2 + rng.random() * 6.0)
        indexes = rng.choice(sorted(INDEXES)) if rng.random() < 0.6 else ""
        earlier = [member for member in members if member.at < at]
        raw = _workload(rng, name, rng.choice(sorted(queues.locals)), indexes, earlier)
        members.append(_Submitted(name, at, indexes))
        user_facts.append(submission(at, name, raw))
        for _ in range(rng.choice((0, 0, 1, 1, 2))):
            at += rng.random() * rng.choice((0.1, 3.0, 15.0))
            user_facts += _changes(rng, members[-1], at)
        if rng.random() < 0.1:
            # The name is free again soon, and elements of the earlier array may still be there.
            user_facts.append(UserFact(at, facts.Deleted(namespace=NAMESPACE, name=name)))
            user_facts.append(submission(at + rng.random() * 8.0, name, raw))
    return Scenario(
        queues.all(),
        [*user_facts, *_reactivations(members, user_facts)],
        [],
        faults_of_one_leader(rng, ARRAY_SERVICES, "array-leader", until=260),
        skews(rng, ARRAY_SERVICES),
        limits=Limits(drain=timedelta(seconds=rng.choice((6.0, 20.0, 300.0)))),
        heals=True,
        services=ARRAY_SERVICES,
        courses=Courses(
            lengths=rng.choice(((0.2, 2.0), (0.2, 2.0, 12.0))),
            fails=rng.choice((0.1, 0.1, 0.4)),
            ignores_stop=rng.choice((0.0, 0.2)),
        ),
    )


def _queues(rng: Random) -> Queues:
    queues = Queues(rng)
    queues.checks = []
    queues.flavors = ["f0"]
    queues.clear("c0")
    for _ in range(rng.choice((1, 1, 2))):
        spec = queues.queue() | {"cohortName": "c0"}
        flavor = {"name": "f0", "resources": cpu(rng.randint(2, 4))}
        spec["resourceGroups"] = [{"coveredResources": ["cpu"], "flavors": [flavor]}]
        queues.add(spec)
    return queues


def _workload(
    rng: Random, name: str, queue: str, indexes: str, earlier: Sequence[_Submitted]
) -> msgspec.Raw:
    """An array, or a single workload, which may wait for ``earlier`` ones."""
    most = rng.choice((None, None, None, 8))
    raw = workload_of(rng, name, queue, most=most, cpus=rng.choice((1, 1, 2)))
    made = json.loads(bytes(raw))
    spec: Spec = made["spec"]
    if indexes:
        array: Spec = {"indexes": indexes}
        spec["array"] = array
        if rng.random() < 0.7:
            array["parallelism"] = rng.choice((1, 2, 2, 3))
        if rng.random() < 0.25:
            array["failFast"] = True
    if earlier and rng.random() < 0.7:
        some = rng.sample(earlier, min(len(earlier), rng.choice((1, 1, 2))))
        spec["after"] = [_dependency(rng, target, indexes) for target in some]
        spec["afterUnmet"] = rng.choice(("cancel", "cancel", "keep"))
    return msgspec.Raw(json.dumps(made).encode())


def _dependency(rng: Random, target: _Submitted, own: str) -> Spec:
    row: Spec = {"workload": target.name, "condition": rng.choice(CONDITIONS)}
    if not target.indexes or rng.random() < 0.4:
        return row
    if row["condition"] == "started":
        row["condition"] = "any"
    if target.indexes == own:
        return row | {"elementwise": True}
    return row | {"index": rng.choice(INDEXES[target.indexes])}


def _changes(rng: Random, member: _Submitted, at: float) -> Iterator[UserFact]:
    """Plans a user's changes of a workload, or of an element of an array."""
    if not member.indexes or rng.random() < 0.4:
        yield from user_changes(rng, member.name, at)
        gate = DEPENDENCIES_GATE
        name = member.name
    else:
        name = f"{member.name}-{rng.choice(INDEXES[member.indexes])}"
        yield from user_changes(rng, name, at)
        gate = ARRAY_GATE
    if rng.random() < 0.05:
        yield UserFact(at, facts.Released(namespace=NAMESPACE, name=name, gate=gate))
    if member.indexes and rng.random() < 0.05:
        # A workload has the name that an element would get.
        yield submission(member.at + rng.random() * 2.0, name, workload_of(rng, name, "l0", cpus=1))


def _reactivations(members: Sequence[_Submitted], said: Sequence[UserFact]) -> Iterator[UserFact]:
    """Lets all go on, also elements that a user stopped."""
    names = [member.name for member in members]
    others = {message.fact.name for message in said}.difference(names)
    yield from reactivations([*names, *sorted(others)])
