"""Queues that limit what one person holds: other stories, with limits and people."""

from __future__ import annotations

import json
from copy import deepcopy
from random import Random
from typing import Any, Final

import msgspec

from admittance.events.facts import Submitted
from simulation.plots.checked import planned
from simulation.plots.configuration import Manifests
from simulation.plots.contested import contested, preempting
from simulation.plots.families import families
from simulation.plots.scenario import ACTIVE_SECONDS, AdminChange, Scenario, UserFact

TEAM: Final = "team"


def limited(rng: Random) -> Scenario:
    """A story of contested or preempting queues, of reservations that plan their victims or of
    families, in which workloads have labels and the limits are edited."""
    base = rng.choice((contested, preempting, planned, families))(rng)
    manifests = deepcopy(base.manifests)
    for queue in manifests:
        _limit(rng, queue)
    changes = list(base.admin_changes)
    for _ in range(rng.choice((0, 1, 3))):
        edited = deepcopy(rng.choice([one for one in manifests if one["kind"] in _QUEUES]))
        _limit(rng, edited)
        changes.append(AdminChange(2.0 + rng.random() * 40.0, [edited]))
    last: Manifests = [deepcopy(one) for one in manifests if one["kind"] in _QUEUES]
    for queue in last:
        queue["spec"].pop("perUser", None)
        queue["spec"].pop("perLabel", None)
    if base.heals:
        changes.append(AdminChange(ACTIVE_SECONDS, last))
    return base._replace(
        manifests=manifests,
        user_facts=[_of_a_team(rng, said) for said in base.user_facts],
        admin_changes=sorted(changes, key=lambda change: change.at),
    )


_QUEUES: Final = ("ClusterQueue", "LocalQueue")


def _limit(rng: Random, queue: dict[str, Any]) -> None:
    if queue["kind"] not in _QUEUES:
        return
    spec = queue["spec"]
    resource = "cpu"
    if queue["kind"] == "ClusterQueue":
        resource = spec["resourceGroups"][0]["coveredResources"][0]
    spec.pop("perUser", None)
    spec["perLabel"] = {TEAM: {resource: rng.choice((1, 2, 2, 3, 4))}}
    if rng.random() < 0.3:
        spec["perUser"] = {resource: rng.choice((2, 3, 4, 6))}


def _of_a_team(rng: Random, said: UserFact) -> UserFact:
    fact = said.fact
    team = rng.choice(("red", "red", "blue", ""))
    if not isinstance(fact, Submitted) or not team:
        return said
    workload = json.loads(bytes(fact.workload))
    labels = {**workload["metadata"].get("labels", {}), TEAM: team}
    workload["metadata"]["labels"] = labels
    raw = msgspec.Raw(json.dumps(workload).encode())
    return said._replace(fact=msgspec.structs.replace(fact, workload=raw))
