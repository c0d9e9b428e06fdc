"""A pending check is requested again when its parameters change, appear or disappear."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec

from admittance.events.facts import CheckRequested, TimerDue
from admittance.workload.check_rows import row_of
from support.cores.scheduling_story import groups

from family_living import a_family_life
from living import Life

REFERENCE = {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": "config"}


def a_town(**reference: Any) -> Life:
    life = Life()
    spec = {"controllerName": "ctl-c", "parameters": {**REFERENCE, **reference}}
    life.put("AdmissionCheck", "c", spec)
    life.queue("cq", resourceGroups=groups(default="9"), admissionChecks=["c"])
    configure(life, "first")
    life.submit("w", "cq", "1")
    life.settle()
    return life


def configure(life: Life, served: str) -> None:
    life.put("ProvisioningRequestConfig", "config", {"provisioningClassName": served})


def asked(life: Life) -> list[tuple[int, Any]]:
    """The cycles of all requests so far, each with the class that its parameters name."""
    found = [one for one in life.asked if isinstance(one, CheckRequested)]
    shown = [(one.cycle, msgspec.json.decode(one.parameters)) for one in found]
    return [(cycle, spec and spec["provisioningClassName"]) for cycle, spec in shown]


def test_changed_parameters_are_requested_again_in_the_same_cycle() -> None:
    life = a_town()
    configure(life, "second")
    life.settle()
    assert asked(life) == [(0, "first"), (0, "second")]


def test_parameters_created_again_are_requested_again() -> None:
    life = a_town()
    life.delete("ProvisioningRequestConfig", "config")
    life.settle()
    configure(life, "third")
    life.settle()
    assert asked(life) == [(0, "first"), (0, "third")]


def message(life: Life) -> str:
    row = row_of(life.stored("w").status.admission_checks, "c")
    assert row is not None
    return row.message


def test_a_reservation_without_parameters_waits_with_a_reason() -> None:
    life = a_town(name="other")
    assert life.phase("w") == "QuotaReserved"
    assert asked(life) == []
    why = "AdmissionCheck c is not asked: ProvisioningRequestConfig other doesn't exist"
    assert message(life) == why
    life.put("ProvisioningRequestConfig", "other", {"provisioningClassName": "late"})
    assert (asked(life), message(life)) == ([(0, "late")], "")


def test_a_check_without_parameters_has_no_timeout_meanwhile() -> None:
    life = Life()
    spec = {"controllerName": "ctl-c", "parameters": REFERENCE, "checkTimeoutSeconds": 10}
    life.put("AdmissionCheck", "c", spec)
    life.queue("cq", resourceGroups=groups(default="9"), admissionChecks=["c"])
    life.submit("w", "cq", "1")
    life.settle()
    life.now += timedelta(seconds=60)
    life.say(TimerDue, "w", kind="checks")
    assert life.phase("w") == "QuotaReserved"
    configure(life, "late")
    life.say(TimerDue, "w", kind="checks")
    assert life.phase("w") == "QuotaReserved"
    life.now += timedelta(seconds=10)
    life.say(TimerDue, "w", kind="checks")
    assert life.stored("w").status.admission_cycle == 1


def test_a_verdict_that_is_there_outlasts_its_parameters() -> None:
    life = a_town()
    life.verdict("w", "c", "Pending", message="half way")
    life.delete("ProvisioningRequestConfig", "config")
    assert message(life) == "half way"
    life.verdict("w", "c", "Ready")
    life.settle()
    assert life.phase("w") == "Admitted"


def rename(life: Life, **spec: Any) -> None:
    """The check names another object, or changes in this."""
    parameters = {**REFERENCE, "name": spec.pop("name", "config")}
    life.put("AdmissionCheck", "c", {"controllerName": "ctl-c", "parameters": parameters, **spec})


def test_newly_named_parameters_are_requested_in_the_same_cycle() -> None:
    life = a_town()
    life.put("ProvisioningRequestConfig", "other", {"provisioningClassName": "second"})
    rename(life, name="other")
    life.settle()
    assert asked(life) == [(0, "first"), (0, "second")]
    # And what happens to them from then on.
    life.put("ProvisioningRequestConfig", "other", {"provisioningClassName": "third"})
    configure(life, "of nobody")
    life.settle()
    assert asked(life) == [(0, "first"), (0, "second"), (0, "third")]


def test_a_check_with_unchanged_parameters_requests_nothing_again() -> None:
    life = a_town()
    rename(life, checkTimeoutSeconds=7)
    life.settle()
    assert asked(life) == [(0, "first")]


def test_a_ready_check_is_not_requested_for_newly_named_parameters() -> None:
    life = a_town()
    life.verdict("w", "c", "Ready")
    life.settle()
    rename(life, name="other")
    life.settle()
    assert asked(life) == [(0, "first")]


def test_a_ready_check_is_not_requested_for_changed_parameters() -> None:
    life = a_town()
    life.verdict("w", "c", "Ready")
    life.settle()
    configure(life, "second")
    life.settle()
    assert asked(life) == [(0, "first")]


def test_parameters_of_another_check_cause_no_request() -> None:
    life = a_town(name="other")
    configure(life, "second")
    life.settle()
    assert asked(life) == []


def test_changed_parameters_are_requested_again_for_variants_too() -> None:
    life = a_family_life({"reservation": 4, "spot": 4}, checks={"reservation": ["c"]})
    life.put("AdmissionCheck", "c", {"controllerName": "ctl-c", "parameters": REFERENCE})
    configure(life, "first")
    life.job()
    before = len(asked(life))
    assert before
    configure(life, "second")
    life.go()
    assert asked(life)[before:] == [(0, "second")]
