"""The scheduler rechecks a reservation after its checks and before its admission."""

from __future__ import annotations

from typing import Any

import pytest

from admittance.events import facts
from admittance.scheduling.state.config import Config
from support.cores.stepped_cores import SteppedCores
from support.cores.stepped_scheduler import groups

CHECKED: dict[str, Any] = {"admissionChecks": ["c1", "c2"]}


def configured_cores(config: Config | None = None, **spec: Any) -> SteppedCores:
    """One queue of 10 with two checks."""
    cores = SteppedCores(config)
    cores.check("c1")
    cores.check("c2")
    spec.setdefault("resourceGroups", groups(default="10"))
    cores.queue("cq", **{**CHECKED, **spec})
    return cores


def reserved(cores: SteppedCores, *names: str, cpu: str = "1", ready: tuple[str, ...] = ()) -> None:
    for name in names:
        cores.submit(name, "cq", cpu)
        cores.settle()
    for name in names:
        assert cores.phase(name) == "QuotaReserved"
        for check in ready:
            cores.verdict(name, check, "Ready")


def confirmed(decisions: list[facts.Decision]) -> list[str]:
    return [decision.name for decision in decisions if isinstance(decision, facts.Confirmed)]


@pytest.mark.scenario("A2")
def test_the_last_ready_is_stored_and_the_scheduler_confirms() -> None:
    cores = configured_cores()
    reserved(cores, "w", ready=("c1",))
    assert confirmed(cores.cycle()) == []
    cores.verdict("w", "c2", "Ready")
    assert cores.phase("w") == "QuotaReserved"
    assert confirmed(cores.cycle()) == ["w"]
    assert cores.phase("w") == "Admitted"
    assert not cores.scheduler.has_work()


def test_many_reservations_are_confirmed_in_one_batch() -> None:
    cores = configured_cores()
    names = [f"w{n}" for n in range(8)]
    reserved(cores, *names, ready=("c1", "c2"))
    cores.submit("head", "cq", "1")
    decisions = cores.cycle(apply=False)
    assert confirmed(decisions) == names
    assert [decision.name for decision in decisions if isinstance(decision, facts.Assigned)] == [
        "head"
    ]


def test_a_decision_in_flight_is_not_published_again() -> None:
    cores = configured_cores()
    reserved(cores, "w", ready=("c1", "c2"))
    (decision,) = cores.cycle(apply=False)
    assert cores.cycle(apply=False) == []
    cores.scheduler.forget("ns", "w", decision.revision)
    (again,) = cores.cycle()
    assert confirmed([decision, again]) == ["w", "w"]
    assert cores.phase("w") == "Admitted"


def test_a_verdict_that_is_taken_back_meanwhile_wins() -> None:
    cores = configured_cores()
    reserved(cores, "w", ready=("c1", "c2"))
    (decision,) = cores.cycle(apply=False)
    cores.verdict("w", "c1", "Pending", message="still looking")
    cores.apply(decision)
    cores.settle()
    assert cores.phase("w") == "QuotaReserved"
    cores.verdict("w", "c1", "Ready")
    cores.settle()
    assert cores.phase("w") == "Admitted"


def test_a_successor_confirms_what_the_first_one_did_not() -> None:
    cores = configured_cores()
    reserved(cores, "w", ready=("c1", "c2"))
    cores.cycle(apply=False)
    cores.restart_scheduler()
    cores.settle()
    assert cores.phase("w") == "Admitted"


def test_a_standby_confirms_nothing() -> None:
    cores = configured_cores()
    reserved(cores, "w")
    cores.scheduler.disown("queue-cq")
    for check in ("c1", "c2"):
        cores.verdict("w", check, "Ready")
    assert cores.cycle() == []
    cores.scheduler.own("queue-cq")
    cores.settle()
    assert cores.phase("w") == "Admitted"


def test_admission_does_not_wait_for_checks_that_the_queue_removed() -> None:
    cores = configured_cores()
    reserved(cores, "w", ready=("c1",))
    cores.queue("cq", resourceGroups=groups(default="10"), admissionChecks=["c1"])
    cores.settle()
    assert cores.phase("w") == "Admitted"


@pytest.mark.parametrize("policy", ["Hold", "HoldAndDrain"])
def test_a_stopped_queue_admits_no_reservation(policy: str) -> None:
    cores = configured_cores()
    reserved(cores, "w", ready=("c1",))
    cores.announces_objects = False
    cores.queue("cq", resourceGroups=groups(default="10"), stopPolicy=policy, **CHECKED)
    cores.verdict("w", "c2", "Ready")
    assert confirmed(cores.cycle()) == []
    assert cores.phase("w") == "QuotaReserved"


def test_a_stopped_local_queue_admits_no_reservation() -> None:
    cores = configured_cores()
    reserved(cores, "w", ready=("c1",))
    cores.announces_objects = False
    cores.put("LocalQueue", "cq", {"clusterQueue": "cq", "stopPolicy": "Hold"}, namespace="ns")
    cores.verdict("w", "c2", "Ready")
    assert confirmed(cores.cycle()) == []


def inactive(cores: SteppedCores, name: str) -> None:
    status = {"conditions": [{"type": "Active", "status": "False", "reason": "Gone"}]}
    cores.put("AdmissionCheck", name, {"controllerName": f"ctl-{name}"}, status=status)


def test_a_given_verdict_counts_although_its_check_is_inactive() -> None:
    cores = configured_cores()
    reserved(cores, "w", ready=("c1", "c2"))
    inactive(cores, "c1")
    cores.submit("later", "cq", "1")
    cores.settle()
    assert cores.phases("w", "later") == ["Admitted", "Pending"]


@pytest.mark.parametrize(
    ("kind", "name", "spec"),
    [
        pytest.param("AdmissionCheck", "c2", {"controllerName": "ctl-c2"}, id="its check"),
        pytest.param("ResourceFlavor", "default", None, id="its flavor"),
    ],
)
def test_a_reservation_waits_for_missing_objects(kind: str, name: str, spec: Any) -> None:
    cores = configured_cores()
    reserved(cores, "w", ready=("c1", "c2"))
    cores.delete(kind, name)
    cores.settle()
    assert cores.phase("w") == "QuotaReserved"
    cores.put(kind, name, spec)
    cores.settle()
    assert cores.phase("w") == "Admitted"


@pytest.mark.scenario("A3")
def test_a_cut_quota_revokes_only_needed_ready_reservations() -> None:
    cores = configured_cores()
    reserved(cores, "old", "new", cpu="5", ready=("c1", "c2"))
    cores.queue("cq", resourceGroups=groups(default="6"), **CHECKED)
    cores.settle()
    assert cores.phases("old", "new") == ["Admitted", "Pending"]
    assert cores.revoked() == [("new", "QuotaChanged")]


def test_a_ready_reservation_waits_until_the_quota_is_free() -> None:
    cores = configured_cores()
    reserved(cores, "runs", cpu="5", ready=("c1", "c2"))
    reserved(cores, "w", cpu="5", ready=("c1",))
    assert cores.phase("runs") == "Admitted"
    cores.slow_jobs.add("runs")
    cores.publish(facts.Deactivated, "runs")
    cores.queue("cq", resourceGroups=groups(default="5"), **CHECKED)
    cores.verdict("w", "c2", "Ready")
    cores.settle()
    assert (cores.phase("w"), cores.revoked()) == ("QuotaReserved", [])
    cores.stop("runs")
    cores.settle()
    assert cores.phase("w") == "Admitted"


@pytest.mark.scenario("A4")
def test_a_reservation_on_a_removed_flavor_moves_and_its_checks_begin_anew() -> None:
    cores = configured_cores(resourceGroups=groups(default="5", other="5"))
    cores.put("ResourceFlavor", "other")
    reserved(cores, "w", cpu="5", ready=("c1", "c2"))
    cycle = cores.stored("w").status.admission_cycle
    cores.queue("cq", resourceGroups=groups(other="5"), **CHECKED)
    cores.settle()
    status = cores.stored("w").status
    assert status.admission is not None
    assert status.admission.pod_set_assignments[0].flavors == {"cpu": "other"}
    assert cores.phase("w") == "QuotaReserved"
    assert status.admission_cycle == cycle + 1
    assert {row.name: row.state for row in status.admission_checks} == {
        "c1": "Pending",
        "c2": "Pending",
    }


def test_as_kueue_the_scheduler_confirms_no_admission() -> None:
    cores = configured_cores(Config(as_kueue=True))
    reserved(cores, "w", ready=("c1", "c2"))
    cores.settle()
    assert cores.phase("w") == "QuotaReserved"
