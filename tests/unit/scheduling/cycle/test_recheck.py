"""A reservation that has passed its checks is looked at once more before it is admitted."""

from __future__ import annotations

from typing import Any

import pytest

from admittance.events import facts
from admittance.scheduling.state.config import Config
from support.cores.scheduling_story import groups

from living import Life

CHECKED: dict[str, Any] = {"admissionChecks": ["c1", "c2"]}


def a_life(config: Config | None = None, **spec: Any) -> Life:
    """One queue of 10 with two checks."""
    life = Life(config)
    life.check("c1")
    life.check("c2")
    spec.setdefault("resourceGroups", groups(default="10"))
    life.queue("cq", **{**CHECKED, **spec})
    return life


def reserved(life: Life, *names: str, cpu: str = "1", ready: tuple[str, ...] = ()) -> None:
    for name in names:
        life.submit(name, "cq", cpu)
        life.settle()
    for name in names:
        assert life.phase(name) == "QuotaReserved"
        for check in ready:
            life.verdict(name, check, "Ready")


def confirmed(decisions: list[facts.Decision]) -> list[str]:
    return [one.name for one in decisions if isinstance(one, facts.Confirmed)]


@pytest.mark.scenario("A2")
def test_the_last_ready_is_stored_and_the_scheduler_confirms() -> None:
    life = a_life()
    reserved(life, "w", ready=("c1",))
    assert confirmed(life.cycle()) == []
    life.verdict("w", "c2", "Ready")
    assert life.phase("w") == "QuotaReserved"
    assert confirmed(life.cycle()) == ["w"]
    assert life.phase("w") == "Admitted"
    assert not life.core.has_work()


def test_many_reservations_are_confirmed_in_one_batch() -> None:
    life = a_life()
    names = [f"w{n}" for n in range(8)]
    reserved(life, *names, ready=("c1", "c2"))
    life.submit("head", "cq", "1")
    decisions = life.cycle(apply=False)
    assert confirmed(decisions) == names
    assert [one.name for one in decisions if isinstance(one, facts.Assigned)] == ["head"]


def test_a_decision_in_flight_is_not_published_again() -> None:
    life = a_life()
    reserved(life, "w", ready=("c1", "c2"))
    (one,) = life.cycle(apply=False)
    assert life.cycle(apply=False) == []
    life.core.forget("ns", "w", one.revision)
    (again,) = life.cycle()
    assert confirmed([one, again]) == ["w", "w"]
    assert life.phase("w") == "Admitted"


def test_a_verdict_that_is_taken_back_meanwhile_wins() -> None:
    life = a_life()
    reserved(life, "w", ready=("c1", "c2"))
    (one,) = life.cycle(apply=False)
    life.verdict("w", "c1", "Pending", message="still looking")
    life.apply(one)
    life.settle()
    assert life.phase("w") == "QuotaReserved"
    life.verdict("w", "c1", "Ready")
    life.settle()
    assert life.phase("w") == "Admitted"


def test_a_successor_confirms_what_the_first_one_did_not() -> None:
    life = a_life()
    reserved(life, "w", ready=("c1", "c2"))
    life.cycle(apply=False)
    life.restart()
    life.settle()
    assert life.phase("w") == "Admitted"


def test_a_standby_confirms_nothing() -> None:
    life = a_life()
    reserved(life, "w")
    life.core.disown("queue-cq")
    for check in ("c1", "c2"):
        life.verdict("w", check, "Ready")
    assert life.cycle() == []
    life.core.own("queue-cq")
    life.settle()
    assert life.phase("w") == "Admitted"


def test_checks_that_the_queue_names_no_more_are_not_waited_for() -> None:
    life = a_life()
    reserved(life, "w", ready=("c1",))
    life.queue("cq", resourceGroups=groups(default="10"), admissionChecks=["c1"])
    life.settle()
    assert life.phase("w") == "Admitted"


@pytest.mark.parametrize("policy", ["Hold", "HoldAndDrain"])
def test_a_stopped_queue_admits_no_reservation(policy: str) -> None:
    life = a_life()
    reserved(life, "w", ready=("c1",))
    life.deaf = True
    life.queue("cq", resourceGroups=groups(default="10"), stopPolicy=policy, **CHECKED)
    life.verdict("w", "c2", "Ready")
    assert confirmed(life.cycle()) == []
    assert life.phase("w") == "QuotaReserved"


def test_a_stopped_local_queue_admits_no_reservation() -> None:
    life = a_life()
    reserved(life, "w", ready=("c1",))
    life.deaf = True
    life.put("LocalQueue", "cq", {"clusterQueue": "cq", "stopPolicy": "Hold"}, namespace="ns")
    life.verdict("w", "c2", "Ready")
    assert confirmed(life.cycle()) == []


def inactive(life: Life, name: str) -> None:
    status = {"conditions": [{"type": "Active", "status": "False", "reason": "Gone"}]}
    life.put("AdmissionCheck", name, {"controllerName": f"ctl-{name}"}, status=status)


def test_a_check_that_cannot_judge_any_more_has_judged() -> None:
    life = a_life()
    reserved(life, "w", ready=("c1", "c2"))
    inactive(life, "c1")
    life.submit("later", "cq", "1")
    life.settle()
    assert life.phases("w", "later") == ["Admitted", "Pending"]


@pytest.mark.parametrize(
    ("kind", "name", "spec"),
    [
        pytest.param("AdmissionCheck", "c2", {"controllerName": "ctl-c2"}, id="its check"),
        pytest.param("ResourceFlavor", "default", None, id="its flavor"),
    ],
)
def test_a_reservation_waits_for_missing_objects(kind: str, name: str, spec: Any) -> None:
    life = a_life()
    reserved(life, "w", ready=("c1", "c2"))
    life.delete(kind, name)
    life.settle()
    assert life.phase("w") == "QuotaReserved"
    life.put(kind, name, spec)
    life.settle()
    assert life.phase("w") == "Admitted"


@pytest.mark.scenario("A3")
def test_a_cut_quota_revokes_only_needed_ready_reservations() -> None:
    life = a_life()
    reserved(life, "old", "new", cpu="5", ready=("c1", "c2"))
    life.queue("cq", resourceGroups=groups(default="6"), **CHECKED)
    life.settle()
    assert life.phases("old", "new") == ["Admitted", "Pending"]
    assert life.revoked() == [("new", "QuotaChanged")]


def test_a_ready_reservation_waits_until_the_quota_is_free() -> None:
    life = a_life()
    reserved(life, "runs", cpu="5", ready=("c1", "c2"))
    reserved(life, "w", cpu="5", ready=("c1",))
    assert life.phase("runs") == "Admitted"
    life.stubborn.add("runs")
    life.say(facts.Deactivated, "runs")
    life.queue("cq", resourceGroups=groups(default="5"), **CHECKED)
    life.verdict("w", "c2", "Ready")
    life.settle()
    assert (life.phase("w"), life.revoked()) == ("QuotaReserved", [])
    life.stop("runs")
    life.settle()
    assert life.phase("w") == "Admitted"


@pytest.mark.scenario("A4")
def test_a_removed_flavor_is_replaced_with_new_check_rows() -> None:
    life = a_life(resourceGroups=groups(default="5", other="5"))
    life.put("ResourceFlavor", "other")
    reserved(life, "w", cpu="5", ready=("c1", "c2"))
    cycle = life.stored("w").status.admission_cycle
    life.queue("cq", resourceGroups=groups(other="5"), **CHECKED)
    life.settle()
    status = life.stored("w").status
    assert status.admission is not None
    assert status.admission.pod_set_assignments[0].flavors == {"cpu": "other"}
    assert life.phase("w") == "QuotaReserved"
    assert status.admission_cycle == cycle + 1
    assert {row.name: row.state for row in status.admission_checks} == {
        "c1": "Pending",
        "c2": "Pending",
    }


def test_played_as_kueue_nothing_is_confirmed() -> None:
    life = a_life(Config(as_kueue=True))
    reserved(life, "w", ready=("c1", "c2"))
    life.settle()
    assert life.phase("w") == "QuotaReserved"
