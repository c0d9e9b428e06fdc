"""`admit doctor` about standby instances."""

from __future__ import annotations

from admittance.doctor.finding import OK, WRONG
from admittance.doctor.processes.consumers import consumer_finding
from admittance.doctor.processes.instances import instance_finding
from admittance.doctor.processes.runners import away_findings
from admittance.events.requests.reading import AnnouncedRunner
from admittance.events.requests.services import HealthReply
from admittance.services import RUNNER, SERVICES


def test_a_standby_names_the_leader_that_it_sees() -> None:
    details = {"leader": "wc-1", "leader_seen": "2026-11-22T13:00:00Z", "trouble": "none"}
    line = instance_finding(
        HealthReply(service="workload-controller", instance="wc-2", ready=True, details=details)
    )
    assert line.state == OK
    assert "stands by for wc-1 (last seen: 2026-11-22T13:00:00Z), trouble none" in line.found


def test_a_standby_that_sees_no_leader_is_wrong() -> None:
    details = {"leader": "none", "leader_seen": "never"}
    line = instance_finding(
        HealthReply(service="workload-controller", instance="wc-2", ready=True, details=details)
    )
    assert line.state == WRONG
    assert line.found == "wc-2 alive, does not lead, sees no leader (last seen: never)"


def test_an_announced_runner_that_does_not_answer_is_listed_once_with_its_command() -> None:
    answering = HealthReply(
        service="runner", instance="r", ready=True, details={"runner": "cafe", "executor": "local"}
    )
    unread = {
        "name": "runner-gpu",
        "num_pending": 1,
        "ts": "2026-11-22T13:10:00Z",
        "created": "2026-11-22T13:00:00Z",
    }
    announced = [
        AnnouncedRunner(runner="cafe", consumer="here"),
        AnnouncedRunner(runner="f00d", consumer="gpu"),
        AnnouncedRunner(runner="beef", consumer="cpu"),
        AnnouncedRunner(runner="0ld"),
        AnnouncedRunner(runner="e1e1", consumer="here"),
    ]
    findings = away_findings(announced, [answering], [unread], RUNNER)
    assert [finding.what for finding in findings] == ["runner cpu", "runner 0ld", "runner here"]
    # A program reads the consumer of the name, so a deletion would be refused.
    assert "another data folder has now" in findings[2].found
    assert "delete" not in findings[2].todo
    assert "`admit delete runner cpu` removes this line" in findings[0].todo
    assert "`admit delete runner gpu` removes this line" in (
        consumer_finding(unread, SERVICES.values(), jobs_wait=False).todo
    )
