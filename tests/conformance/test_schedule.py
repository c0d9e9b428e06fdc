"""Kueue's table of single scheduling cycles, as far as nobody is preempted."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from admittance.api.manifest import decode_object
from admittance.events.facts import Assigned
from admittance.events.requests import PendingQuery
from admittance.scheduler.config import Config
from admittance.scheduler.decide import Scheduler
from admittance.workload import stored

TABLE = Path(__file__).parents[3] / "shared" / "conformance" / "scheduler" / "TestSchedule.json"

PREEMPTION = "somebody has to be preempted"
COUNTS = "a reduced count has to be found"
POLICY = "the policy of a queue decides whether room is held for it; policies come with preemption"
LIMIT_RANGE = "LimitRange is no kind of ours"
DOOR = "a request above its limit is no valid workload and never gets so far"

LATER: Final[dict[str, str]] = {
    "multiple CQs need preemption": PREEMPTION,
    "partial admission single variable pod set": COUNTS,
    "partial admission multiple variable pod sets": COUNTS,
    "minimal preemptions when target queue is exhausted": PREEMPTION,
    "multiple preemptions without borrowing": PREEMPTION,
    "multiple preemptions preemption possible after earlier workload fits": PREEMPTION,
    "multiple preemptions skip preemption when shared limited resource": PREEMPTION,
    "container does not satisfy limitRange constraints": LIMIT_RANGE,
    "container resource requests exceed limits": DOOR,
    "prefer reclamation over cq priority based preemption": PREEMPTION,
    "prefer first preemption flavor when second flavor requires both reclaim and cq "
    "priority preemption": PREEMPTION,
    "prefer first preemption flavor when second flavor also requires cq preemption": PREEMPTION,
    "workload requiring reclaimation prioritized over wl in another full cq": PREEMPTION,
    "capacity not blocked when lending clusterqueue can reclaim (ReclaimWithinCohort=Any)": POLICY,
    "preempt when workload requests zero of a resource not defined in ClusterQueue": PREEMPTION,
    "PreemptionOverBorrowing preference: preempt in first flavor instead of "
    "borrowing in second": PREEMPTION,
}
"""Cases that this scheduler answers differently, and why."""


def _cases() -> list[Any]:
    if not TABLE.is_file():
        return []
    cases = json.loads(TABLE.read_text())["cases"]
    return [pytest.param(one, id=one["name"]) for one in cases if one["name"] not in LATER]


def _now(case: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(case["given"]["now"].replace("Z", "+00:00"))


def scheduler_of(given: dict[str, Any], now: datetime) -> Scheduler:
    """A scheduler that has heard of everything given."""
    core = Scheduler(Config())
    revision = 0
    kinds = ("namespaces", "resourceFlavors", "admissionChecks", "cohorts", "clusterQueues")
    for group in (*kinds, "localQueues"):
        for obj in given.get(group, ()):
            manifest = decode_object(obj).manifest
            meta = manifest.metadata
            revision += 1
            core.apply_object(manifest.kind, meta.namespace, meta.name, manifest, revision)
    for domain in core.domains():
        core.own(domain)
    for obj in given["workloads"]:
        revision += 1
        workload = stored.decode(msgspec.json.encode(obj))
        meta = workload.metadata
        core.apply_workload(meta.namespace, meta.name, workload, revision, now=now)
    return core


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
    """One cycle of the case: what came out and what should have."""
    now = _now(case)
    core = scheduler_of(case["given"], now)
    held = {
        f"{one['metadata'].get('namespace', '')}/{one['metadata']['name']}": one["status"]
        for one in case["given"]["workloads"]
        if one.get("status", {}).get("admission")
    }
    decided: list[Assigned] = core.cycle(now=now)
    admissions = {key: _admission(one["admission"]) for key, one in held.items()}
    for one in decided:
        if case["given"].get("admissionError"):
            core.forget(one.namespace, one.name, one.revision)
            continue
        admissions[f"{one.namespace}/{one.name}"] = _admission(msgspec.to_builtins(one.admission))
    left: dict[str, list[str]] = {}
    parked: dict[str, list[str]] = {}
    for row in core.pending(PendingQuery(limit=1_000)).rows:
        where = parked if row.parked else left
        where.setdefault(row.cluster_queue, []).append(f"{row.namespace}/{row.name}")
    want = case["want"]
    got = {
        "assignments": admissions,
        "left": {queue: sorted(keys) for queue, keys in left.items()},
        "inadmissibleLeft": {queue: sorted(keys) for queue, keys in parked.items()},
    }
    wanted = {
        "assignments": {key: _admission(one) for key, one in want.get("assignments", {}).items()},
        "left": {queue: sorted(keys) for queue, keys in want.get("left", {}).items()},
        "inadmissibleLeft": {
            queue: sorted(keys) for queue, keys in want.get("inadmissibleLeft", {}).items()
        },
    }
    return got, wanted


def test_what_is_left_for_later_is_in_the_table() -> None:
    if not TABLE.is_file():
        pytest.skip("the conformance data is not beside this tree")
    names = {one["name"] for one in json.loads(TABLE.read_text())["cases"]}
    assert names >= set(LATER)


@pytest.mark.skipif(not TABLE.is_file(), reason="the conformance data is not beside this tree")
@pytest.mark.parametrize("case", _cases())
def test_one_cycle_comes_out_as_kueue_has_it(case: dict[str, Any]) -> None:
    got, want = played(case)
    assert got == want
