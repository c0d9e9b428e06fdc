"""Kueue's tables of single scheduling cycles: admissions, victims, and waiting workloads."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from admittance.events.facts import Preempted
from admittance.events.requests.queues import PendingQuery
from admittance.scheduling.state.config import CohortFairSharing, Config
from conformance.differences import SCHEDULE
from conformance.tables import Given, needs_data, read

TABLES = (
    "TestSchedule",
    "TestScheduleForFairSharing",
    "TestScheduleRecomputePreemptionTargets",
)
CASES = [
    pytest.param(case, id=f"{table}: {case['name']}")
    for table in TABLES
    for case in read(f"scheduler/{table}")
    if (table, case["name"]) not in SCHEDULE
]


def _admission(status: Any) -> dict[str, Any]:
    """An admission as far as it is decided: places, without what was left empty."""
    return {
        "clusterQueue": status["clusterQueue"],
        "podSetAssignments": [
            {
                "name": ps["name"],
                "flavors": ps.get("flavors", {}),
                "resourceUsage": {
                    name: much
                    for name, much in ps.get("resourceUsage", {}).items()
                    if name in ps.get("flavors", {})
                },
                "count": ps.get("count", 0),
            }
            for ps in status.get("podSetAssignments", ())
        ],
    }


def played(case: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Plays one cycle of the case; returns its results and the expected results."""
    gates = case["given"].get("featureGates", {})
    partial = gates.get("PartialAdmission", True)
    fair = CohortFairSharing() if case["given"].get("enableFairSharing") else None
    config = Config(as_kueue=True, preemption=True, partial_admission=partial, fair_sharing=fair)
    given = Given(case["given"], config)
    core = given.core
    held = {
        f"{raw['metadata'].get('namespace', '')}/{raw['metadata']['name']}": raw["status"]
        for raw in case["given"]["workloads"]
        if raw.get("status", {}).get("admission")
    }
    admissions = {key: _admission(status["admission"]) for key, status in held.items()}
    preempted = []
    for decision in core.cycle(now=given.now):
        if isinstance(decision, Preempted):
            preempted.append((f"{decision.namespace}/{decision.name}", decision.reason))
        elif case["given"].get("admissionError"):
            core.forget(decision.namespace, decision.name, decision.revision)
        else:
            admissions[f"{decision.namespace}/{decision.name}"] = _admission(
                msgspec.to_builtins(decision.admission)
            )
    left: dict[str, list[str]] = {}
    parked: dict[str, list[str]] = {}
    for row in core.pending(PendingQuery(limit=1_000)).rows:
        if not row.position:
            continue  # In no ClusterQueue; listed for people.
        where = parked if row.parked else left
        where.setdefault(row.cluster_queue, []).append(f"{row.namespace}/{row.name}")
    want = case["want"]
    got = {
        "assignments": admissions,
        "preempted": sorted(preempted),
        "left": {queue: sorted(keys) for queue, keys in left.items()},
        "inadmissibleLeft": {queue: sorted(keys) for queue, keys in parked.items()},
    }
    wanted = {
        "preempted": victims_of_cycle(case),
        "assignments": {
            key: _admission(admission) for key, admission in want.get("assignments", {}).items()
        },
        "left": {queue: sorted(keys) for queue, keys in want.get("left", {}).items()},
        "inadmissibleLeft": {
            queue: sorted(keys) for queue, keys in want.get("inadmissibleLeft", {}).items()
        },
    }
    return got, wanted


def victims_of_cycle(case: dict[str, Any]) -> list[tuple[str, str]]:
    """The victims of this cycle, and the rule of each: the condition is new then."""

    def rules(workloads: list[dict[str, Any]]) -> dict[str, str]:
        return {
            f"{raw['metadata'].get('namespace', '')}/{raw['metadata']['name']}": condition["reason"]
            for raw in workloads
            for condition in raw.get("status", {}).get("conditions", ())
            if condition["type"] == "Preempted" and condition["status"] == "True"
        }

    before = rules(case["given"]["workloads"])
    after = rules(case["want"].get("workloads", []))
    return sorted((key, reason) for key, reason in after.items() if key not in before)


@needs_data
def test_every_difference_is_a_case() -> None:
    names = {(table, row["name"]) for table in TABLES for row in read(f"scheduler/{table}")}
    assert names >= set(SCHEDULE)


@needs_data
@pytest.mark.parametrize("case", CASES)
def test_one_cycle_has_the_result_of_kueue(case: dict[str, Any]) -> None:
    got, want = played(case)
    assert got == want
