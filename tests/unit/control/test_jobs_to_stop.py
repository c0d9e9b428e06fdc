"""An eviction names the job that has to stop, so that runners need not read it."""

from __future__ import annotations

from typing import Any

import pytest

from admittance.control.messages import job_to_stop
from admittance.events import facts
from admittance.events.codec import decode
from admittance.events.placement import PlacementPart
from admittance.events.shapes import EvictedJob
from admittance.workload.change import with_status
from admittance.workload.families.roles import with_role
from admittance.workload.stored import PARENT, StoredWorkload
from unit.control.test_fold import CHECKED, KEY, ME, QUEUE, Bench

STOPS = EvictedJob(revision=5)


@pytest.mark.parametrize(
    ("checked", "fact", "job"),
    [
        (False, facts.Deactivated(**ME), STOPS),
        (False, facts.Finished(**ME), STOPS),
        (False, facts.Deleted(**ME), STOPS),
        (False, facts.Stopped(**ME, revision=5, reason="NodeFailures"), EvictedJob()),
        (True, facts.Deactivated(**ME), EvictedJob()),
    ],
)
def test_an_eviction_names_the_admission_if_its_job_still_runs(
    checked: bool, fact: Any, job: EvictedJob
) -> None:
    bench = Bench()
    if checked:
        bench.apply({**QUEUE, "spec": {**QUEUE["spec"], **CHECKED}})
    bench.perform(bench.submitted())
    bench.perform(bench.logged(bench.assigned()))
    said = [decode(each.subject, each.data) for each in bench.perform(bench.logged(fact))]
    assert [each.job for each in said if isinstance(each, facts.Evicted)] == [job]


def admitted() -> StoredWorkload:
    bench = Bench()
    bench.perform(bench.submitted())
    bench.perform(bench.logged(bench.assigned()))
    known = bench.controller.workloads.get(KEY).workload
    assert known is not None
    return with_status(known, admitted_revision=5)


def waiting() -> StoredWorkload:
    bench = Bench()
    bench.perform(bench.submitted())
    known = bench.controller.workloads.get(KEY).workload
    assert known is not None
    return known


PLACED = tuple(
    PlacementPart(runner=name, id=f"id-{name}", pod_set="main", first=at, count=1)
    for at, name in enumerate(("a", "b", "a"))
)


@pytest.mark.parametrize(
    ("workload", "job"),
    [
        (
            with_status(admitted(), placement=PLACED),
            EvictedJob(revision=5, runners=("id-a", "id-b")),
        ),
        (with_status(admitted(), admitted_revision=0), None),
        (with_role(admitted(), PARENT), STOPS),
        (with_role(waiting(), PARENT), None),
        (waiting(), EvictedJob()),
    ],
    ids=["placed", "admitted by the same write", "parent", "parent without quota", "no quota"],
)
def test_the_job_to_stop_is_that_of_the_stored_admission(
    workload: StoredWorkload, job: EvictedJob | None
) -> None:
    assert job_to_stop(workload) == job


def test_no_runner_has_the_job_of_a_program_that_holds_its_quota() -> None:
    bench = Bench()
    bench.perform(bench.submitted(leaseDurationSeconds=60))
    bench.perform(bench.logged(bench.assigned()))
    said = bench.perform(bench.logged(facts.Deactivated(**ME)))
    evictions = [decode(each.subject, each.data) for each in said]
    assert [each.job for each in evictions if isinstance(each, facts.Evicted)] == [EvictedJob()]
