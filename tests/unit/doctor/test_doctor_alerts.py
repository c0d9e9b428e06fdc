"""`admit doctor` is red for whatever an alert calls critical."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from admittance.api.checks import AdmissionCheck, AdmissionCheckSpec, ObjectStatus
from admittance.api.meta import Condition, ObjectMeta
from admittance.doctor.controllers import class_finding, controller_finding
from admittance.doctor.finding import NOTE, WRONG
from admittance.doctor.processes.instances import instance_finding, service_findings
from admittance.doctor.processes.runners import is_overdue, not_started, runner_finding
from admittance.doctor.queues import inactive_queues
from admittance.events import facts
from admittance.events.codec import encode
from admittance.events.requests.queues import PendingRow, QueuesReply, QueueStatus
from admittance.events.requests.services import HealthReply
from admittance.events.shapes import Finding
from admittance.events.subjects import subject_of
from admittance.events.system import EVERY_CALL_FAILS
from admittance.provisioning.records import Record, RecordSpec, RecordStatus, State
from admittance.runtime.bus.history import StoredMessage
from admittance.services import RUNNER, SERVICES
from admittance.workload import stored
from support.builders import NOON
from support.stored.values import stages

ALERTS = Path(__file__).parents[3] / "deploy" / "observability" / "alerts.yaml"
READ = {"num_pending": 0}
UNREAD = {
    "num_pending": 1,
    "created": "2026-01-01T00:00:00.123456789Z",
    "ts": "2026-01-01T00:10:00Z",
    "delivered": {"last_active": "2026-01-01T00:09:00Z"},
}


def a_check(status: str, reason: str, message: str) -> AdmissionCheck:
    condition = Condition(type="Active", status=status, reason=reason, message=message)
    return AdmissionCheck(
        metadata=ObjectMeta(name="budget"),
        spec=AdmissionCheckSpec(controller_name="ctl"),
        status=ObjectStatus(conditions=(condition,)),
    )


def a_queue(**fields: Any) -> QueuesReply:
    queue = QueueStatus(name="cq", active=False, message="sentence", **fields)
    return QueuesReply(cluster_queues=(queue,))


def _of(service: str, findings: list[Finding]) -> Finding:
    return next(finding for finding in findings if finding.what == service)


def _without_leader(service: str) -> Finding:
    details = {"leader": "none"}
    reply = HealthReply(service=service, instance="a", ready=True, details=details)
    return instance_finding(reply)


FINDINGS: dict[str, Callable[[], Finding]] = {
    "AdmittanceServiceDown": lambda: _of("scheduler", service_findings([], SERVICES)),
    "AdmittanceServiceMissing": lambda: _of("workload-controller", service_findings([], SERVICES)),
    "AdmittanceNoLeader": lambda: _without_leader("retry-timer"),
    "AdmittanceNoScheduler": lambda: instance_finding(
        HealthReply(service="scheduler", instance="a", ready=False)
    ),
    "AdmittanceNothingIsWritten": lambda: _without_leader("workload-controller"),
    "AdmittanceRunnerMissing": lambda: runner_finding(["ns/a"], RUNNER),
    "AdmittanceQueueBlocked": lambda: inactive_queues(a_queue(reason="FlavorNotFound", pending=1))[
        0
    ],
    "AdmittanceCheckInactive": lambda: controller_finding(
        "ctl", READ, [a_check("False", "ControllerLost", "gone")]
    ),
    "AdmittanceProgramGivesNoAnswer": lambda: controller_finding(
        "ctl", READ, [a_check("True", "Active", f"{EVERY_CALL_FAILS} (KeyError)")]
    ),
}
"""For each critical alert, what `admit doctor` says about the same trouble."""


def critical_alerts() -> set[str]:
    rules = [
        rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]
    ]
    return {rule["alert"] for rule in rules if rule["labels"]["severity"] == "critical"}


def test_every_critical_alert_has_a_finding() -> None:
    assert critical_alerts() == FINDINGS.keys()


@pytest.mark.parametrize("alert", FINDINGS)
def test_the_doctor_is_red_for_what_a_critical_alert_reports(alert: str) -> None:
    finding = FINDINGS[alert]()
    assert (finding.state, bool(finding.todo)) == (WRONG, True)


# What is not critical, and the like of what is. --------------------------------------------


@pytest.mark.parametrize(
    ("reply", "rows", "state", "text"),
    [
        pytest.param(
            a_queue(reason="FlavorNotFound"), [], NOTE, "inactive, 0 pending", id="nothing waits"
        ),
        pytest.param(
            a_queue(reason="Stopped", pending=2), [], NOTE, "Stopped", id="stopped on purpose"
        ),
        pytest.param(a_queue(reason="Terminating", pending=2), [], WRONG, "2 pending", id="going"),
        pytest.param(
            QueuesReply(),
            [("lq", "gone"), ("lq", "gone")],
            WRONG,
            "2 pending: Misconfigured: gone is missing",
            id="a LocalQueue of a ClusterQueue that does not exist",
        ),
        pytest.param(
            QueuesReply(), [("typo", "")], NOTE, "1 pending", id="a LocalQueue that does not exist"
        ),
    ],
)
def test_a_queue_is_red_if_workloads_wait_for_its_correction(
    reply: QueuesReply, rows: list[tuple[str, str]], state: str, text: str
) -> None:
    pending = [
        PendingRow(
            namespace="ns", name=f"w-{at}", cluster_queue=cluster_queue, local_queue=queue,
            position=0, reason="Misconfigured", message=f"{cluster_queue} is missing",
        )
        for at, (queue, cluster_queue) in enumerate(rows)
    ]  # fmt: skip
    [finding] = inactive_queues(reply, pending)
    assert (finding.state, text in finding.found) == (state, True), finding


def test_requests_that_no_program_reads_are_red_if_a_check_needs_them() -> None:
    check = a_check("True", "Active", "The admission check is active")
    assert controller_finding("ctl", UNREAD, [check]).state == WRONG
    assert controller_finding("ctl", UNREAD, []).state == NOTE


@pytest.mark.parametrize(
    ("durable", "message", "state"),
    [
        pytest.param(READ, "", NOTE, id="no provider answers"),
        pytest.param(UNREAD, "", WRONG, id="no program reads the request"),
        pytest.param(READ, "obtaining failed (KeyError), again in 8 s", WRONG, id="it raises"),
    ],
)
def test_capacity_that_cannot_come_is_red(
    durable: dict[str, Any], message: str, state: str
) -> None:
    record = Record(
        api_version="autoscaling.x-k8s.io/v1",
        kind="ProvisioningRequest",
        metadata=ObjectMeta(namespace="ns", name="r", creation_timestamp=NOON),
        spec=RecordSpec(
            id="i", workload="w", uid="u", check="c", cycle=1, attempt=1,
            provisioning_class_name="x", deadline=NOON,
        ),
        status=RecordStatus(state=State.ACCEPTED, message=message),
    )  # fmt: skip
    finding = class_finding("x", durable, ["config"], [record], False, NOON)
    assert finding.state == state, finding


def test_a_missing_runner_is_a_note_while_no_workload_waits_for_it() -> None:
    assert runner_finding([], RUNNER).state == NOTE
    many = runner_finding([f"ns/w-{at}" for at in range(5)], RUNNER)
    assert "5 admitted workloads wait for one: ns/w-0, ns/w-1, ns/w-2, …" in many.found


def test_a_job_that_another_runner_started_does_not_wait() -> None:
    fact = facts.Started(namespace="ns", name="started", revision=7)
    start = StoredMessage(9, NOON, subject_of(fact), encode(fact))
    junk = StoredMessage(10, NOON, "admit.workload.started.ns.junk", b"{")
    admissions = {("ns", "started"): 7, ("ns", "junk"): 7, ("ns", "other"): 7}
    assert not_started(admissions, [start, junk]) == ["ns/junk", "ns/other"]
    assert not_started({("ns", "started"): 8}, [start]) == ["ns/started"]


@pytest.mark.parametrize(
    ("stage", "waits"),
    [("admitted", True), ("running", False), ("pending", False), ("evicted", False)],
)
def test_an_admitted_workload_waits_for_a_runner_until_its_pods_are_ready(
    stage: str, waits: bool
) -> None:
    workload = stored.decode(stages()[stage][1])
    assert is_overdue(workload, NOON + timedelta(minutes=1)) is waits
    assert not is_overdue(workload, NOON + timedelta(seconds=10))
