"""`admit doctor` about standby instances."""

from __future__ import annotations

from admittance.cli.doctor.finding import OK, WRONG
from admittance.cli.doctor.services import instance_finding
from admittance.events.requests import HealthReply


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
