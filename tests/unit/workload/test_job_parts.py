"""Jobs on several machines: the reports of their parts become the reports of one job.
docs/spec/lifecycle.md#2.10."""

from __future__ import annotations

from itertools import permutations

import pytest

from admittance.api.workload import SchedulingStats
from admittance.events import facts
from admittance.events.files import OutputFile
from admittance.workload.change import FactOutcome
from admittance.workload.stored import JobParts
from support.cores.placed_job import PlacedJob
from support.cores.tracked_workload import ME


def test_pods_are_ready_when_those_of_all_parts_are() -> None:
    job = PlacedJob()
    assert job.says(facts.PodsReady, 2) == "Admitted"
    assert job.says(facts.PodsReady, 2) == "Admitted"
    assert job.reason == "Repeated"
    assert job.says(facts.PodsReady, 1) == "Running"
    assert job.says(facts.PodsNotReady, 2, message="m") == "Admitted"
    assert job.says(facts.PodsReady, 2) == "Running"


def test_a_part_that_succeeds_before_the_others_are_ready_counts_as_ready() -> None:
    job = PlacedJob()
    assert job.says(facts.Finished, 1) == "Admitted"
    assert job.says(facts.PodsReady, 2) == "Running"
    assert job.says(facts.Finished, 2) == "Finished"
    assert job.conditions["Finished"] == ("True", "Succeeded")


def test_a_failed_part_stops_the_others_and_quota_is_free_after_the_last_one() -> None:
    job = PlacedJob(3)
    failed = {"succeeded": False, "reason": "OOMKilled", "message": "too large", "exit_code": 137}
    assert job.says(facts.Finished, 2, **failed) == "Evicting"
    assert job.outbox_kinds == ["evicted", "check_withdrawn"]
    assert job.status.scheduling_stats is None
    assert job.part_stopped(1) == "Evicting"
    assert job.status.admission is not None
    assert job.part_stopped(3) == "Finished"
    assert job.conditions["Finished"] == ("True", "OOMKilled")
    assert (job.message("Finished"), job.status.exit_code) == ("part 2 of 3 failed: too large", 137)


@pytest.mark.parametrize("is_off", [False, True], ids=["evicted", "deactivated"])
def test_a_job_with_a_failed_part_is_finished_although_the_others_never_report(
    is_off: bool,
) -> None:
    job = PlacedJob(3)
    left = OutputFile(name="main-1/x", size=1, parts=1, sha256="a" * 64, place="o1-0")
    failed = {"succeeded": False, "reason": "OOMKilled", "message": "too large", "exit_code": 137}
    assert job.says(facts.Finished, 2, outputs=(left,), **failed) == "Evicting"
    if is_off:
        job.off()
    job.part_stopped(1)
    job.later(300).due("drain")
    assert job.phase == "Finished"
    assert job.conditions["Finished"] == ("True", "OOMKilled")
    assert (job.message("Finished"), job.status.exit_code) == ("part 2 of 3 failed: too large", 137)
    assert job.status.outputs == (left,)
    assert "ForcedRelease" in job.noted()


def test_a_job_without_a_failed_part_runs_again_if_its_parts_never_report() -> None:
    job = PlacedJob()
    job.part_lost(1)
    assert job.later(300).due("drain").phase == "Pending"
    assert job.status.parts is None


@pytest.mark.parametrize(
    ("reason", "counted"), [("NodeFailures", True), ("RunnerEnded", False), ("PrologFailed", False)]
)
def test_a_lost_part_stops_the_others_and_the_workload_competes_again(
    reason: str, counted: bool
) -> None:
    job = PlacedJob()
    assert job.part_lost(1, reason) == "Evicting"
    assert job.message("Evicted") == "part 1 of 2: gone"
    assert isinstance(job.status.scheduling_stats, SchedulingStats) is counted
    assert job.part_stopped(2) == "Pending"
    assert (job.status.placement, job.status.parts) == ((), None)
    job.admit_again()
    assert job.says(facts.PodsReady, 1) == "Admitted"


@pytest.mark.parametrize("order", list(permutations((1, 2, 3))))
def test_an_evicted_job_releases_its_quota_when_its_last_part_has_stopped(
    order: tuple[int, ...],
) -> None:
    job = PlacedJob(3)
    job.preempted()
    phases = [job.part_stopped(part) for part in order]
    assert phases == ["Evicting", "Evicting", "Pending"]


def test_results_of_all_parts_that_come_during_an_eviction_count() -> None:
    job = PlacedJob()
    job.preempted()
    assert job.says(facts.Finished, 1) == "Evicting"
    assert job.says(facts.Finished, 2) == "Finished"
    assert job.conditions["Finished"] == ("True", "Succeeded")


def test_a_job_of_which_one_part_stopped_runs_again_although_the_other_succeeded() -> None:
    job = PlacedJob()
    job.preempted()
    job.part_stopped(1)
    assert job.says(facts.Finished, 2) == "Pending"
    assert job.status.parts is None


def test_a_deactivated_job_keeps_its_quota_until_its_last_part_has_stopped() -> None:
    job = PlacedJob()
    job.off()
    assert job.part_stopped(1) == "Deactivated"
    assert job.status.admission is not None
    assert job.part_stopped(2) == "Deactivated"
    assert job.status.admission is None


def test_the_last_part_that_is_lost_after_the_others_succeeded_ends_the_admission() -> None:
    job = PlacedJob()
    job.says(facts.Finished, 1)
    assert job.part_lost(2) == "Pending"


@pytest.mark.parametrize(
    ("part", "revision"), [(3, None), (1, 1)], ids=["no such part", "another admission"]
)
def test_a_report_about_no_part_of_this_admission_changes_nothing(
    part: int, revision: int | None
) -> None:
    job = PlacedJob()
    more = {} if revision is None else {"revision": revision}
    job.says(facts.PodsReady, part, **more)
    assert (job.outcome, job.reason) == (FactOutcome.IGNORED, "Stale")
    assert job.status.parts is None


def test_a_user_finishes_a_job_with_all_its_parts() -> None:
    job = PlacedJob()
    job.says(facts.PodsReady, 1)
    job.happens(facts.Finished(**ME))
    assert job.phase == "Finished"
    assert job.outbox_kinds == ["evicted", "check_withdrawn"]
    assert job.status.parts == JobParts(ready=(1,))


@pytest.mark.parametrize("last_succeeds", [True, False])
def test_the_files_that_parts_leave_are_those_of_the_job(last_succeeds: bool) -> None:
    job = PlacedJob()
    left = [
        OutputFile(name=f"main-{pod}/x", size=1, parts=1, sha256="a" * 64, place=f"o{pod}-0")
        for pod in (0, 1)
    ]
    assert job.says(facts.Finished, 2, outputs=(left[1],)) == "Admitted"
    job.says(facts.Finished, 1, succeeded=last_succeeds, outputs=(left[0],))
    assert job.status.outputs == (left[1], left[0])
