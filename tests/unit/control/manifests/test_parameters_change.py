"""A pending check is requested again when its parameters change, appear or disappear."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec

from admittance.events.facts import CheckRequested, TimerDue
from admittance.workload.checks.rows import row_of
from support.cores.families.family_cores import cores_with_families
from support.cores.stepped_cores import SteppedCores
from support.cores.stepped_scheduler import groups

REFERENCE = {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": "config"}


def a_town(**reference: Any) -> SteppedCores:
    cores = SteppedCores()
    spec = {"controllerName": "ctl-c", "parameters": {**REFERENCE, **reference}}
    cores.put("AdmissionCheck", "c", spec)
    cores.queue("cq", resourceGroups=groups(default="9"), admissionChecks=["c"])
    configure(cores, "first")
    cores.submit("w", "cq", "1")
    cores.settle()
    return cores


def configure(cores: SteppedCores, served: str) -> None:
    cores.put("ProvisioningRequestConfig", "config", {"provisioningClassName": served})


def asked(cores: SteppedCores) -> list[tuple[int, Any]]:
    """The cycles of all requests so far, each with the class that its parameters name."""
    requests = [fact for fact in cores.check_facts if isinstance(fact, CheckRequested)]
    shown = [(fact.cycle, msgspec.json.decode(fact.parameters)) for fact in requests]
    return [(cycle, spec and spec["provisioningClassName"]) for cycle, spec in shown]


def test_changed_parameters_are_requested_again_in_the_same_cycle() -> None:
    cores = a_town()
    configure(cores, "second")
    cores.settle()
    assert asked(cores) == [(0, "first"), (0, "second")]


def test_parameters_created_again_are_requested_again() -> None:
    cores = a_town()
    cores.delete("ProvisioningRequestConfig", "config")
    cores.settle()
    configure(cores, "third")
    cores.settle()
    assert asked(cores) == [(0, "first"), (0, "third")]


def message(cores: SteppedCores) -> str:
    row = row_of(cores.stored("w").status.admission_checks, "c")
    assert row is not None
    return row.message


def test_a_reservation_without_parameters_waits_with_a_reason() -> None:
    cores = a_town(name="other")
    assert cores.phase("w") == "QuotaReserved"
    assert asked(cores) == []
    why = "AdmissionCheck c is not asked: ProvisioningRequestConfig other doesn't exist"
    assert message(cores) == why
    cores.put("ProvisioningRequestConfig", "other", {"provisioningClassName": "late"})
    assert (asked(cores), message(cores)) == ([(0, "late")], "")


def test_a_check_has_no_timeout_while_its_parameters_are_missing() -> None:
    cores = SteppedCores()
    spec = {"controllerName": "ctl-c", "parameters": REFERENCE, "checkTimeoutSeconds": 10}
    cores.put("AdmissionCheck", "c", spec)
    cores.queue("cq", resourceGroups=groups(default="9"), admissionChecks=["c"])
    cores.submit("w", "cq", "1")
    cores.settle()
    cores.now += timedelta(seconds=60)
    cores.publish(TimerDue, "w", kind="checks")
    assert cores.phase("w") == "QuotaReserved"
    configure(cores, "late")
    cores.publish(TimerDue, "w", kind="checks")
    assert cores.phase("w") == "QuotaReserved"
    cores.now += timedelta(seconds=10)
    cores.publish(TimerDue, "w", kind="checks")
    assert cores.stored("w").status.admission_cycle == 1


def test_a_verdict_that_is_there_outlasts_its_parameters() -> None:
    cores = a_town()
    cores.verdict("w", "c", "Pending", message="half way")
    cores.delete("ProvisioningRequestConfig", "config")
    assert message(cores) == "half way"
    cores.verdict("w", "c", "Ready")
    cores.settle()
    assert cores.phase("w") == "Admitted"


def rename(cores: SteppedCores, **spec: Any) -> None:
    """The check names another object, or changes in this."""
    parameters = {**REFERENCE, "name": spec.pop("name", "config")}
    cores.put("AdmissionCheck", "c", {"controllerName": "ctl-c", "parameters": parameters, **spec})


def test_newly_named_parameters_are_requested_in_the_same_cycle() -> None:
    cores = a_town()
    cores.put("ProvisioningRequestConfig", "other", {"provisioningClassName": "second"})
    rename(cores, name="other")
    cores.settle()
    assert asked(cores) == [(0, "first"), (0, "second")]
    # And what happens to them from then on.
    cores.put("ProvisioningRequestConfig", "other", {"provisioningClassName": "third"})
    configure(cores, "of no check")
    cores.settle()
    assert asked(cores) == [(0, "first"), (0, "second"), (0, "third")]


def test_a_check_with_unchanged_parameters_requests_nothing_again() -> None:
    cores = a_town()
    rename(cores, checkTimeoutSeconds=7)
    cores.settle()
    assert asked(cores) == [(0, "first")]


def test_a_ready_check_is_not_requested_for_newly_named_parameters() -> None:
    cores = a_town()
    cores.verdict("w", "c", "Ready")
    cores.settle()
    rename(cores, name="other")
    cores.settle()
    assert asked(cores) == [(0, "first")]


def test_a_ready_check_is_not_requested_for_changed_parameters() -> None:
    cores = a_town()
    cores.verdict("w", "c", "Ready")
    cores.settle()
    configure(cores, "second")
    cores.settle()
    assert asked(cores) == [(0, "first")]


def test_parameters_of_another_check_cause_no_request() -> None:
    cores = a_town(name="other")
    configure(cores, "second")
    cores.settle()
    assert asked(cores) == []


def test_changed_parameters_are_requested_again_for_variants_too() -> None:
    cores = cores_with_families({"reservation": 4, "spot": 4}, checks={"reservation": ["c"]})
    cores.put("AdmissionCheck", "c", {"controllerName": "ctl-c", "parameters": REFERENCE})
    configure(cores, "first")
    cores.job()
    before = len(asked(cores))
    assert before
    configure(cores, "second")
    cores.go()
    assert asked(cores)[before:] == [(0, "second")]
