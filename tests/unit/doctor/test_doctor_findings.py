"""Findings of `admit doctor` about clocks, disks, storage, heartbeats and replicas."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from admittance.client.health import HealthAnswer
from admittance.doctor.finding import NOTE, OK, WRONG, without_repeats
from admittance.doctor.processes.clocks import Offset, clock_findings, offset
from admittance.doctor.servers import account_findings, server_state
from admittance.doctor.streams import fewer_replicas, offline_findings
from admittance.events.requests.services import HealthReply
from admittance.events.shapes import Finding
from admittance.runtime.telemetry.findings import (
    FREE_MIN,
    disk_finding,
    disk_findings,
    heartbeat_findings,
    own_findings,
    report_findings,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GIB = 1 << 30


def answer(shown: datetime | None, *, took: float = 0.1) -> HealthAnswer:
    reply = HealthReply(service="scheduler", instance="s", time=shown)
    return HealthAnswer(reply, NOW, NOW + timedelta(seconds=took))


def same(took: float = 0.1) -> Offset:
    return offset(NOW, NOW, NOW + timedelta(seconds=took))


@pytest.mark.parametrize(
    ("seconds", "took", "state"),
    [
        pytest.param(0, 0.1, OK, id="the same time"),
        pytest.param(-5, 0.1, WRONG, id="behind"),
        pytest.param(5, 0.1, WRONG, id="ahead"),
        pytest.param(5, 8.0, OK, id="a slow answer may have been written late"),
        pytest.param(-5, 8.0, WRONG, id="no answer is written before the question"),
    ],
)
def test_clocks_are_wrong_only_for_certain(seconds: float, took: float, state: str) -> None:
    [finding] = clock_findings([answer(NOW + timedelta(seconds=seconds), took=took)], same())
    assert finding.state == state


def test_services_of_an_earlier_version_show_no_time() -> None:
    [finding] = clock_findings([answer(None)], same())
    assert (finding.state, finding.found) == (OK, "0 services and nats-server agree within 1 s")
    assert clock_findings([answer(None)], None) == []


def test_the_clock_of_this_machine_is_only_a_note() -> None:
    ahead = Offset(29.9, 30.0)
    [finding] = clock_findings([answer(NOW + timedelta(seconds=30))], ahead)
    assert (finding.state, finding.what) == (NOTE, "clock of this machine")
    assert finding.found == "29.9 s behind nats-server's clock"


@pytest.mark.parametrize(
    ("free", "total", "state"),
    [
        pytest.param(50 * GIB, 100 * GIB, OK, id="half"),
        pytest.param(5 * GIB, 100 * GIB, NOTE, id="a small share"),
        pytest.param(FREE_MIN - 1, 2 * GIB, WRONG, id="little"),
        pytest.param(0, 2 * GIB, WRONG, id="nothing"),
    ],
)
def test_a_disk_is_rated_by_its_free_space(free: int, total: int, state: str) -> None:
    finding = disk_finding("disk", "/data", free, total)
    assert (finding.state, bool(finding.todo)) == (state, state != OK)


def test_a_folder_that_is_gone_has_no_finding(tmp_path: Path) -> None:
    assert disk_findings("disk", tmp_path / "gone") == []
    assert len(disk_findings("disk", tmp_path)) == 1


def test_heartbeats_without_acknowledgement_are_found() -> None:
    assert heartbeat_findings("scheduler", 9.0, ttl_seconds=5.0) == []
    [finding] = heartbeat_findings("scheduler", 12.0, ttl_seconds=5.0)
    assert (finding.state, finding.what) == (WRONG, "writes of scheduler")
    assert "for 12 s" in finding.found


def test_a_source_that_fails_hides_no_other_finding() -> None:
    def fails() -> list[Finding]:
        raise RuntimeError("broken")

    finding = Finding(state=OK, what="x", found="y")
    with report_findings(fails), report_findings(lambda: [finding, finding]):
        assert own_findings() == (finding, finding)
        assert without_repeats(own_findings()) == [finding]
    assert own_findings() == ()


def test_an_account_near_its_storage_limit_is_wrong() -> None:
    assert account_findings({"storage": 5, "limits": {"max_storage": -1}}) == []
    [finding] = account_findings({"storage": 95, "limits": {"max_storage": 100}})
    assert (finding.state, finding.what) == (WRONG, "storage of the account")


def a_varz(**more: Any) -> dict[str, Any]:
    config = {"max_storage": 100 * GIB, "sync_always": True}
    return {
        "server_name": "n1",
        "jetstream": {"config": config, "stats": {"storage": GIB}, **more},
    }


@pytest.mark.parametrize(
    ("varz", "off", "wrong"),
    [
        pytest.param(a_varz(), Offset(0, 0), [], id="all is well"),
        pytest.param(
            a_varz(stats={"storage": 99 * GIB}), Offset(0, 0), ["storage of n1"], id="storage"
        ),
        pytest.param(
            a_varz(meta={"replicas": [{"name": "n2", "offline": True}, {"name": "n3"}]}),
            Offset(0, 0),
            ["server n2"],
            id="a server that is away",
        ),
        pytest.param(a_varz(), Offset(9, 10), ["clock of n1"], id="a clock that is off"),
        pytest.param({"server_name": "n1"}, Offset(0, 0), ["server n1"], id="no JetStream"),
    ],
)
def test_a_monitoring_port_shows_faults_of_a_server(
    varz: dict[str, Any], off: Offset, wrong: list[str]
) -> None:
    findings = server_state("http://n1:8222", varz, off)
    assert [finding.what for finding in findings if finding.state == WRONG] == wrong


def test_replicas_that_are_away_or_behind_are_found_by_server() -> None:
    replicas = [
        {"name": "n1", "current": True, "active": 300_000_000},
        {"name": "n2", "current": True, "active": 8_000_000_000},
        {"name": "n3", "current": False, "active": 300_000_000, "lag": 7},
    ]
    cluster = {"name": "c", "leader": "n0", "replicas": replicas}
    infos = {name: {"cluster": cluster} for name in ("A", "B")}
    infos["C"] = {"cluster": {"name": "c", "leader": "n0", "replicas": [{"name": "n2"}]}}
    away, behind = offline_findings(infos)
    assert (away.what, away.found) == ("server n2", "away: it has replicas of A, B")
    assert (behind.what, behind.found) == (
        "server n3",
        "its replicas are behind: A (7 behind), B (7 behind)",
    )


def test_added_replicas_that_the_server_does_not_list_yet_are_found() -> None:
    replicas = [{"name": "n1", "current": True, "active": 300_000_000}]
    infos: dict[str, dict[str, Any]] = {
        "A": {"config": {"num_replicas": 3}, "cluster": {"leader": "n0"}},
        "B": {"config": {"num_replicas": 3}, "cluster": {"leader": "n0", "replicas": replicas}},
        "C": {"config": {"num_replicas": 2}, "cluster": {"leader": "n0", "replicas": replicas}},
        "D": {"config": {"num_replicas": 1}},
    }
    [finding] = offline_findings(infos)
    assert (finding.what, finding.state) == ("new replicas", WRONG)
    assert finding.found.endswith(": A has 1 of 3, B has 2 of 3")


def test_a_stream_without_a_leader_says_nothing_of_its_replicas() -> None:
    silent = {"name": "n2", "active": 60_000_000_000}
    [finding] = offline_findings({"A": {"cluster": {"name": "c", "replicas": [silent]}}})
    assert (finding.what, finding.state) == ("stream A", WRONG)
    assert finding.found == "no server leads it, so nothing is written to it"
    assert offline_findings({"A": {"cluster": {"leader": "alone"}}, "B": {}}) == []


def test_the_doctor_reports_nothing_when_there_are_enough_replicas() -> None:
    assert fewer_replicas((3, "scheduler"), {"A": 3, "B": 5}) == []
    assert fewer_replicas((0, ""), {"A": 1}) == []
