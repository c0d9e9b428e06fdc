"""The verdicts of the check `machines`, read by the real cores of workload-controller and
scheduler."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from admittance.events.facts import Deleted
from admittance.events.placement import PlacementPart
from admittance.events.shapes import PodSetUpdate
from admittance.events.stored.machines import OpenRun
from admittance.events.system import RunnerStarts
from admittance.placement.decisions import PlacementDecisions
from admittance.placement.held_back import waits_since
from admittance.placement.machines.machine import Machine
from admittance.placement.reservation import judged_by, reservation_of
from admittance.placement.search.request import Demands
from admittance.placement.verdicts import PlacementTimes
from admittance.workload.stored import StoredWorkload
from admittance.workload.transition_context import CheckRules
from support.cores.placed_cores import PlacedCores, View
from support.machines import a_machine

LOWER = {"withinClusterQueue": "LowerPriority"}


def gpus(name: str, count: int, **more: Any) -> Machine:
    return a_machine(name, gpus=count, resource="gpu", **more)


def placed_cores(*machines: Machine, quota: int = 16, **more: Any) -> PlacedCores:
    times = more.pop("times", None)
    cores = PlacedCores(*machines, times=times)
    cores.offer({"default": quota}, **more)
    cores.go()
    return cores


def big(cores: PlacedCores, name: str, gpu: int, **spec: Any) -> None:
    """A job of one pod with so many gpus."""
    container = {"name": "c", "command": ["true"], "resources": {"requests": {"gpu": str(gpu)}}}
    pods = {"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}
    cores.job(name, pods=[pods], **spec)


def test_a_job_is_admitted_with_its_machine() -> None:
    cores = placed_cores(gpus("a", 4), gpus("b", 2))

    big(cores, "j", 2)

    assert cores.on_machines("j") == {"b": 1}
    assert cores.said("j") == [("Ready", "placed on b")]
    assert cores.stored("j").status.placement[0].devices == {"gpu": ("b-0", "b-1")}


def test_a_gang_is_admitted_on_several_machines_or_not_at_all() -> None:
    cores = placed_cores(gpus("a", 4), gpus("b", 4), quota=32)
    cores.job("gang", 6)
    assert cores.on_machines("gang") == {"a": 4, "b": 2}

    cores.job("more", 3)
    cores.advance(1)

    assert str(cores.phase("more")) == "QuotaReserved"
    assert cores.said("more") == [
        ("Pending", "3 pods with 1 GPU each: room for 2; a has 0 free, b has 0")
    ]
    cores.done("gang")
    assert cores.on_machines("more") == {"a": 3}


def test_a_job_waits_with_numbers_and_then_leaves_its_quota() -> None:
    cores = placed_cores(gpus("gpu-1", 4), gpus("gpu-2", 4))
    big(cores, "one", 1)
    big(cores, "two", 2)
    assert cores.on_machines("two") == {"gpu-1": 1}
    big(cores, "three", 3)

    big(cores, "four", 4)
    # It is not said at once, because room may come in the same moment.
    assert cores.said("four") == []
    cores.advance(1)
    assert cores.said("four") == [
        ("Pending", "4 GPUs on one machine: gpu-1 has 1 free, gpu-2 has 1")
    ]
    big(cores, "urgent", 4, priority=1)
    lacking = cores.placement.lacking(5)
    assert [(row.name, row.priority) for row in lacking] == [("urgent", 1), ("four", 0)]
    assert lacking[1].message == "4 GPUs on one machine: gpu-1 has 1 free, gpu-2 has 1"
    assert cores.placement.lacking(1) == lacking[:1]
    cores.done("urgent")
    cores.advance(118)
    assert str(cores.phase("four")) == "QuotaReserved"
    cores.advance(1)

    assert (str(cores.phase("four")), cores.wait("four")) == ("Backoff", 60)
    assert cores.said("four")[-1][0] == "Retry"
    # It is not the fault of the job: the next attempt waits as long.
    cores.done("three")
    cores.advance(60)
    assert cores.on_machines("four") == {"gpu-2": 1}


def test_the_time_counts_from_the_last_of_the_other_checks() -> None:
    cores = placed_cores(gpus("a", 4), checks={"default": ["slow"]})
    big(cores, "first", 4)
    cores.report("first", "slow", "Ready")
    big(cores, "j", 4)
    cores.advance(600)
    assert cores.states("j") == {"machines": "Pending", "slow": "Pending"}

    cores.report("j", "slow", "Ready")
    cores.advance(119)
    assert str(cores.phase("j")) == "QuotaReserved"
    cores.advance(1)

    assert str(cores.phase("j")) == "Backoff"


def test_a_deferring_check_is_awaited_before_room_is_booked() -> None:
    cores = placed_cores(gpus("a", 4))
    cores.check("approval", preemptionPolicy="AfterCheckPassedOrOnDemand")
    cores.edit_queue(admissionChecks=["approval"])
    big(cores, "j", 4)
    cores.advance(600)
    assert cores.said("j") == []
    # Its room is free for others meanwhile.
    assert cores.placement.ledger.holders("id-a") == []

    cores.report("j", "approval", "Ready")

    assert cores.on_machines("j") == {"a": 1}


def test_room_is_free_again_when_a_deferring_check_is_no_longer_ready() -> None:
    cores = placed_cores(gpus("a", 4), checks={"default": ["slow"]})
    cores.check("approval", preemptionPolicy="AfterCheckPassedOrOnDemand")
    cores.edit_queue(admissionChecks=["approval"])
    big(cores, "j", 4)
    for state, holders in (("Ready", ["ns/j"]), ("Pending", []), ("Ready", ["ns/j"])):
        cores.report("j", "approval", state)
        assert cores.placement.ledger.holders("id-a") == holders


def test_room_is_booked_while_a_check_that_does_not_defer_is_awaited() -> None:
    cores = placed_cores(gpus("a", 4), checks={"default": ["slow"]})
    big(cores, "j", 4)
    big(cores, "later", 4)
    assert cores.placement.ledger.holders("id-a") == ["ns/j"]

    cores.report("later", "slow", "Ready")
    assert str(cores.phase("later")) == "QuotaReserved"
    cores.report("j", "slow", "Ready")

    assert cores.on_machines("j") == {"a": 1}


def test_a_selector_of_another_check_moves_the_booking() -> None:
    cores = placed_cores(
        gpus("a", 4), gpus("b", 4, labels={"rack": "7"}), checks={"default": ["c"]}
    )
    big(cores, "j", 4)
    assert cores.placement.ledger.holders("id-a") == ["ns/j"]

    update = {"name": "main", "nodeSelector": {"rack": "7"}}
    cores.report("j", "c", "Ready", pod_set_updates=_updates(update))

    assert cores.on_machines("j") == {"b": 1}
    assert cores.placement.ledger.holders("id-a") == []


def _updates(*written: dict[str, Any]) -> Any:
    return tuple(msgspec.convert(update, PodSetUpdate) for update in written)


def test_victims_stop_only_for_a_machine_that_helps() -> None:
    # Two jobs of lower priority have the quota; only the first one has the machine.
    cores = placed_cores(gpus("a", 4), gpus("b", 2), quota=4, preemption=LOWER)
    big(cores, "low", 4, priority=0)
    assert cores.on_machines("low") == {"a": 1}

    big(cores, "high", 3, priority=9)

    assert cores.said("high")[0] == (
        "Pending",
        "there is room on a when the workloads to be preempted have stopped",
    )
    assert cores.preempted() == [("low", "high")]
    assert cores.on_machines("high") == {"a": 1}
    assert cores.evictions("low") == {"Preempted": 1}


def test_no_victim_stops_for_a_machine_that_does_not_help() -> None:
    cores = placed_cores(gpus("a", 4), gpus("b", 4), quota=6, preemption=LOWER)
    big(cores, "same", 3, priority=5)
    big(cores, "low", 2, priority=0)
    big(cores, "other", 1, priority=5)
    assert [cores.on_machines(name) for name in ("same", "low", "other")] == [
        {"a": 1}, {"b": 1}, {"a": 1},
    ]  # fmt: skip
    cores.change_machine("b", unschedulable=True)

    # It may have the quota of the job on b, which no new job may use.
    big(cores, "high", 2, priority=5)
    cores.advance(1)

    assert cores.said("high") == [("Pending", "2 GPUs on one machine: a has 0 free, b is cordoned")]
    cores.advance(600)
    assert cores.preempted() == []
    assert str(cores.phase("low")) == "Admitted"


def test_room_is_not_free_before_the_processes_are_gone() -> None:
    cores = placed_cores(gpus("a", 4), quota=8)
    big(cores, "old", 4)
    cores.slow_jobs.add("old")
    cores.finish("old")
    big(cores, "new", 4)
    cores.advance(1)
    # Its quota is free at once, the machine is not.
    assert cores.said("new") == [("Pending", "4 GPUs on one machine: a has 0 free")]

    cores.end_run("old")
    cores.go()

    assert cores.on_machines("new") == {"a": 1}


def test_a_victim_that_stops_slowly_keeps_its_room_until_then() -> None:
    cores = placed_cores(gpus("a", 4), quota=4, preemption=LOWER)
    big(cores, "low", 4, priority=0)
    cores.slow_jobs.add("low")
    big(cores, "high", 4, priority=9)
    cores.advance(30)
    assert cores.phases("low", "high") == ["Evicting", "QuotaReserved"]

    # Its quota is taken by force, but not its machine: the booking lasts however long that takes.
    cores.advance(1000)
    assert cores.phases("low", "high") == ["Pending", "QuotaReserved"]
    assert [state for state, _ in cores.said("high")] == ["Pending"]
    cores.end_run("low")
    cores.go()

    assert cores.on_machines("high") == {"a": 1}


def test_a_lost_machine_moves_its_jobs_and_reservations() -> None:
    cores = placed_cores(gpus("a", 4), gpus("b", 4), quota=16)
    big(cores, "j", 4)
    assert cores.on_machines("j") == {"a": 1}

    cores.change_machine("a", ready=False, lost_since=cores.now)
    cores.advance(59)
    assert cores.on_machines("j") == {"a": 1}
    cores.advance(2)

    assert cores.on_machines("j") == {"b": 1}
    assert cores.evicted_for("j") == ["AdmissionCheck"]
    assert cores.said("j")[1] == ("Retry", "runner a is lost since 12:00:00 UTC")


@pytest.mark.parametrize("restarted", [False, True], ids=["at once", "for a new leader"])
def test_a_new_data_folder_gets_the_devices_when_the_jobs_of_the_old_one_have_stopped(
    restarted: bool,
) -> None:
    cores = placed_cores(gpus("a", 4), quota=16)
    cores.slow_jobs.add("j")
    big(cores, "j", 1)
    new = replace(cores.machines.pop("id-a"), id="new")
    cores.runs.clear()
    cores.machines["new"] = new
    cores.placement.forget_machine("id-a")
    cores.placement.set_machine(new)
    if restarted:
        cores.restart()
    big(cores, "next", 4)
    big(cores, "small", 3)

    assert (cores.on_machines("next"), cores.on_machines("small")) == ({}, {"a": 1})
    assert cores.stored("small").status.placement[0].devices == {"gpu": ("a-1", "a-2", "a-3")}
    cores.advance(61)
    assert cores.evicted_for("j") == ["AdmissionCheck"]
    assert cores.said("j")[-1] == ("Retry", "the runner with the id id-a is gone")
    cores.done("small")
    cores.advance(30)
    assert cores.on_machines("next") == {}
    cores.stop("j")
    cores.advance(300)
    assert {**cores.on_machines("j"), **cores.on_machines("next")} == {"a": 1}


def test_a_drain_moves_jobs_at_its_deadline_only() -> None:
    cores = placed_cores(gpus("a", 4), gpus("b", 4))
    big(cores, "j", 2)
    later = cores.now + timedelta(minutes=30)
    cores.change_machine("a", draining=True, evict_at=later, message="new kernel")
    big(cores, "new", 2)
    assert (cores.on_machines("j"), cores.on_machines("new")) == ({"a": 1}, {"b": 1})

    cores.advance(1801)

    assert cores.on_machines("j") == {"b": 1}
    assert cores.said("j")[1] == ("Retry", "runner a is drained: new kernel")


def test_a_program_that_holds_quota_uses_its_machine_until_the_deadline_of_a_drain() -> None:
    cores = placed_cores(gpus("a", 4))
    big(cores, "nb", 2, leaseDurationSeconds=60)
    ((_, revision),) = cores.runs["id-a"]
    cores.end_run("nb")  # no runner starts it
    used = OpenRun(
        namespace="ns",
        name="nb",
        revision=revision,
        requests={"gpu": 2},
        devices={"gpu": ("a-0", "a-1")},
        held=True,
    )
    assert cores.placement.holds.on("id-a") == [used]
    assert cores.placement.holds.on("id-b") == []

    cores.slow_jobs.add("nb")
    cores.change_machine("a", draining=True, evict_at=cores.now, message="new kernel")
    cores.advance(1)

    assert cores.said("nb")[1] == ("Retry", "runner a is drained: new kernel")
    assert cores.evicted_for("nb") == ["AdmissionCheck"]
    assert cores.placement.holds.on("id-a") == [used], "the program has not left yet"
    cores.stop("nb")
    assert cores.placement.holds.on("id-a") == []


def test_a_job_of_an_earlier_data_folder_holds_its_devices_until_it_has_stopped() -> None:
    cores = placed_cores(gpus("a", 4))
    big(cores, "j", 2)
    ((_, revision),) = cores.runs["id-a"]
    cores.slow_jobs.add("j")
    assert cores.placement.without_runner("id-a") == []

    cores.placement.set_machine(replace(cores.machines["id-a"], id="id-new"))
    cores.placement.forget_machine("id-a")

    left = OpenRun(
        namespace="ns",
        name="j",
        revision=revision,
        requests={"gpu": 2},
        devices={"gpu": ("a-0", "a-1")},
    )
    assert cores.placement.without_runner("id-new") == [left]
    cores.advance(61)
    assert cores.placement.without_runner("id-new") == [left]


def test_a_job_and_a_program_that_waits_hold_nothing_without_a_runner() -> None:
    cores = placed_cores(gpus("a", 4), checks={"default": ["slow"]})
    big(cores, "job", 2)
    big(cores, "nb", 2, leaseDurationSeconds=60)
    cores.report("job", "slow", "Ready")
    assert cores.placement.ledger.holders("id-a") == ["ns/job", "ns/nb"]
    assert cores.placement.holds.on("id-a") == []


def test_a_reservation_on_a_machine_that_is_cordoned_is_placed_again() -> None:
    cores = placed_cores(gpus("a", 4), gpus("b", 4), checks={"default": ["slow"]})
    big(cores, "j", 4)
    assert cores.placement.ledger.holders("id-a") == ["ns/j"]

    cores.change_machine("a", unschedulable=True)
    cores.report("j", "slow", "Ready")

    assert cores.on_machines("j") == {"b": 1}


def test_a_new_leader_decides_as_the_old_one_would() -> None:
    cores = placed_cores(gpus("a", 4), gpus("b", 4), quota=32)
    cores.restarts = True
    cores.job("one", 6)
    cores.job("two", 3)
    cores.slow_jobs.add("one")
    cores.finish("one")
    cores.go()
    assert str(cores.phase("two")) == "QuotaReserved"

    cores.end_run("one")
    cores.go()

    assert cores.on_machines("two") == {"a": 3}


def test_room_is_held_back_for_a_gang_that_has_waited_long() -> None:
    times = PlacementTimes(hold_after=timedelta(minutes=3))
    cores = placed_cores(gpus("a", 4), quota=64, times=times)
    cores.job("s0", 2)
    cores.job("s1", 2)
    big(cores, "gang", 4)
    cores.advance(100)
    cores.done("s0")
    cores.job("s2", 2)
    # Small jobs pass the gang at first, and take the room that is freed.
    assert cores.on_machines("s2") == {"a": 2}

    cores.advance(200)
    cores.done("s1")
    cores.job("s3", 2)
    cores.advance(10)
    assert str(cores.phase("s3")) == "QuotaReserved"
    cores.done("s2")
    cores.advance(60)

    assert cores.on_machines("gang") == {"a": 1}
    cores.done("gang")
    cores.advance(120)
    assert cores.on_machines("s3") == {"a": 2}


def test_a_new_leader_holds_room_back_for_a_gang_that_has_waited_over_a_retry() -> None:
    times = PlacementTimes(hold_after=timedelta(minutes=3))
    cores = placed_cores(gpus("a", 4), quota=64, times=times)
    cores.restarts = True
    cores.job("s0", 2)
    cores.job("s1", 2)
    big(cores, "gang", 4)
    cores.advance(180)
    assert str(cores.phase("gang")) == "QuotaReserved"

    cores.done("s0")
    cores.job("s2", 2)
    assert str(cores.phase("s2")) == "QuotaReserved"
    cores.done("s1")

    assert cores.on_machines("gang") == {"a": 1}


@pytest.mark.parametrize(
    ("retries", "idle", "since"),
    [
        pytest.param(0, 9, 0, id="no Retry"),
        pytest.param(1, 9, 3, id="one Retry is a wait and a delay"),
        pytest.param(2, 9, 6, id="two Retries"),
        pytest.param(2, 4, 4, id="the job ran in between"),
        pytest.param(10**9, 10**5, 10**5, id="very many Retries"),
    ],
)
def test_the_stored_retries_say_since_when_a_workload_waits(
    retries: int, idle: int, since: int
) -> None:
    cores = placed_cores(gpus("a", 1))
    big(cores, "j", 2)
    view = View(cores)
    judged = judged_by(cores.stored("j"), view)
    assert judged is not None
    reservation = reservation_of(cores.stored("j"), judged, view)
    at = reservation.reserved_at
    assert reservation.idle_since == at, "its job has not run"
    row = replace(judged.row, retry_count=retries)
    reservation = reservation._replace(
        judged=judged._replace(row=row), idle_since=at - timedelta(minutes=idle)
    )
    assert waits_since(reservation, PlacementTimes()) == at - timedelta(minutes=since)


def test_a_higher_priority_may_take_room_that_is_held_back() -> None:
    times = PlacementTimes(hold_after=timedelta(minutes=1))
    cores = placed_cores(gpus("a", 4), quota=64, times=times)
    cores.job("s0", 2)
    cores.job("s1", 2)
    big(cores, "gang", 4, priority=1)
    cores.advance(70)
    cores.done("s0")
    cores.job("equal", 1, priority=1)
    assert str(cores.phase("equal")) == "QuotaReserved"

    cores.job("higher", 1, priority=2)

    assert cores.on_machines("higher") == {"a": 1}


def test_a_deleted_workload_leaves_no_room_held_back() -> None:
    times = PlacementTimes(hold_after=timedelta(minutes=1))
    cores = placed_cores(gpus("a", 4), quota=64, times=times)
    cores.job("s0", 2)
    big(cores, "gang", 4)
    cores.advance(70)
    cores.job("s1", 2)
    assert str(cores.phase("s1")) == "QuotaReserved"

    cores.publish(Deleted, "gang")
    cores.go()

    assert cores.on_machines("s1") == {"a": 2}


def test_a_workload_that_no_machine_can_hold_says_so_and_holds_nothing_back() -> None:
    times = PlacementTimes(hold_after=timedelta(seconds=10))
    cores = placed_cores(gpus("a", 4), quota=64, times=times)
    big(cores, "huge", 8)
    cores.advance(20)
    assert cores.said("huge") == [("Pending", "8 GPUs on one machine: the largest, a, has 4 GPUs")]

    big(cores, "j", 4)

    assert cores.on_machines("j") == {"a": 1}
    assert cores.placement.shortages()["ns/huge"].why == "Size"


def test_a_family_books_the_larger_need_and_migrates_into_its_own_room() -> None:
    cores = PlacedCores(gpus("a", 4), covered=("fast", "slow"))
    cores.offer({"fast": 4, "slow": 4})
    cores.policy()
    cores.submit_regular("other", "fast", 4)
    cores.slow_jobs.add("other")
    cores.end_run("other")
    cores.placement.set_runs("id-a", ())
    # The job on the better flavor runs elsewhere, so that the machine has room for the worse one.
    cores.change_machine("a", devices=gpus("a", 8).devices)
    cores.job("j", 4)
    assert (cores.on("j"), cores.on_machines("j")) == ("slow", {"a": 4})
    cores.change_machine("a", devices=gpus("a", 4).devices)

    cores.done("other")

    assert (cores.on("j"), cores.on_machines("j")) == ("fast", {"a": 4})
    assert cores.migrations("j") == 1


class LateView(View):
    knows_checks = False

    def check(self, name: str) -> CheckRules | None:
        return super().check(name) if self.knows_checks else None


class OwnUsers(View):
    """A runner starts the workloads that its rules name."""

    def demands(self, workload: StoredWorkload) -> Demands:
        name = workload.metadata.name
        return Demands(refusal=lambda starts: "" if name in starts.submitters else "not of it")


def test_a_check_that_is_read_after_its_rows_is_answered() -> None:
    cores = placed_cores()
    big(cores, "j", 4)
    view = LateView(cores)
    late = PlacementDecisions(view)
    late.set_machine(gpus("a", 4))
    late.apply_workload("ns", "j", cores.stored("j"), cores.revision)
    assert late.decide(cores.now) == []

    view.knows_checks = True
    late.configuration_changed()

    assert [verdict.state for verdict in late.decide(cores.now)] == ["Ready"]


def test_workloads_with_equal_needs_differ_by_the_runners_that_start_them() -> None:
    cores = placed_cores(quota=64)
    for name in ("a", "b", "c"):
        big(cores, name, 4)
    decisions = PlacementDecisions(OwnUsers(cores))
    for name in ("a", "b", "c"):
        decisions.apply_workload("ns", name, cores.stored(name), cores.revision)
    assert decisions.decide(cores.now) == []

    decisions.set_machine(gpus("m", 4, starts=RunnerStarts(submitters=("c",))))

    assert [(v.name, v.state) for v in decisions.decide(cores.now)] == [("c", "Ready")]
    decisions.set_machine(gpus("n", 4))
    assert [(v.name, v.state) for v in decisions.decide(cores.now)] == [("a", "Ready")]


def test_all_waiting_jobs_with_room_start_at_once() -> None:
    cores = placed_cores(gpus("a", 6), quota=64)
    big(cores, "old", 6)
    for name in ("w", "x", "y", "z"):
        big(cores, name, 2)
    cores.advance(1)
    assert cores.phases("w", "x", "y", "z") == ["QuotaReserved"] * 4

    cores.done("old")

    assert cores.phases("w", "x", "y", "z") == ["Admitted"] * 3 + ["QuotaReserved"]


def test_the_time_starts_again_when_room_is_lost() -> None:
    cores = placed_cores(gpus("a", 4), checks={"default": ["slow"]})
    big(cores, "j", 4)
    cores.advance(600)
    assert cores.placement.ledger.holders("id-a") == ["ns/j"]

    cores.change_machine("a", unschedulable=True)
    cores.advance(119)
    assert str(cores.phase("j")) == "QuotaReserved"
    cores.advance(2)

    assert str(cores.phase("j")) == "Backoff"


def test_a_new_leader_keeps_an_assignment_that_is_stored() -> None:
    cores = placed_cores(gpus("b", 8), checks={"default": ["slow"]})
    big(cores, "j", 2)
    workload = cores.stored("j")
    part = PlacementPart(
        runner="b", id="id-b", pod_set="main", first=0, count=1, devices={"gpu": ("b-4", "b-5")}
    )
    rows = tuple(
        replace(row, state="Ready", placement=(msgspec.to_builtins(part),), verdict_cycle=0)
        if row.name == "machines"
        else row
        for row in workload.status.admission_checks
    )
    stored = replace(workload, status=replace(workload.status, admission_checks=rows))
    leader = PlacementDecisions(View(cores))
    leader.set_machine(gpus("b", 8))
    leader.set_machine(gpus("a", 2))

    leader.apply_workload("ns", "j", stored, cores.revision)

    assert leader.decide(cores.now) == []
    assert leader.ledger.shares("ns/j")["id-b"].units == {"gpu": ("b-4", "b-5")}
    leader.set_machine(gpus("b", 4))
    # Its devices are gone. The other check is not Ready, so nothing is said yet.
    assert leader.decide(cores.now) == []
    assert list(leader.ledger.shares("ns/j")) == ["id-a"]


def test_a_machine_that_the_workload_controller_reads_later_is_tried_again_soon() -> None:
    cores = placed_cores(gpus("a", 2))

    def store(*devices: str) -> None:
        listed = [{"resource": "gpu", "index": n, "id": unit} for n, unit in enumerate(devices)]
        cores.put_manifest(
            {
                "apiVersion": "admittance.dev/v1",
                "kind": "Runner",
                "metadata": {"name": "a"},
                "status": {"id": "id-a", "capacity": {"cpu": "64"}, "devices": listed},
            }
        )

    store("a-0")
    big(cores, "j", 2)
    row = cores.rows("j")["machines"]
    assert (row.state, row.reason) == ("Pending", "MachineTaken")

    store("a-0", "a-1")
    cores.advance(1)

    assert cores.on_machines("j") == {"a": 1}
