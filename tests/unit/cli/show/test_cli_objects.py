"""Objects in tables, JSON and YAML."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from admittance.cli.show import sections, tables
from admittance.cli.show.capacity import machines
from admittance.cli.show.objects import check_conditions, shown_queue, shown_workload
from admittance.cli.show.sections import usage_of
from admittance.client.errors import RequestFailed
from admittance.client.kinds import CHECK, CLUSTER_QUEUE, WORKLOAD
from admittance.client.requests.objects import BucketObject
from admittance.events.requests.queues import (
    FlavorUsage,
    LocalUsage,
    PersonUsage,
    QueueStatus,
    UserUsage,
)
from admittance.events.shapes import ConsumedUsage
from support.builders import a_manifest

NOON = datetime(2026, 2, 7, 12, tzinfo=UTC)


def stored_object(value: Any, key: str = "workload.ns.w") -> BucketObject:
    return BucketObject(key, msgspec.json.encode(value), 7)


def a_workload(*conditions: tuple[str, str, str, str], **status: Any) -> BucketObject:
    rows = [
        {"type": kind, "status": truth, "reason": reason, "message": message}
        for kind, truth, reason, message in conditions
    ]
    return stored_object({**a_manifest(), "status": {"conditions": rows, **status}})


@pytest.mark.parametrize(
    ("row", "want"),
    [
        pytest.param({"state": "Pending"}, ("Unknown", "Pending"), id="a pending check is unknown"),
        pytest.param({"state": "Ready"}, ("True", "Ready"), id="a ready one is true"),
        pytest.param({"state": "Retry"}, ("False", "Retry"), id="a retry is false"),
        pytest.param({"state": "Rejected"}, ("False", "Reject"), id="a rejection is false"),
        pytest.param(
            {"state": "Pending", "reason": "PreemptionRequired"},
            ("Unknown", "PreemptionRequired"),
            id="one that waits for a preemption says so",
        ),
        pytest.param(
            {"state": "Ready", "reason": "PreemptionRequired"},
            ("True", "Ready"),
            id="with another state that reason is ignored",
        ),
        pytest.param({}, ("Unknown", "Pending"), id="a row that was never judged"),
    ],
)
def test_a_check_is_shown_as_a_condition(row: dict[str, str], want: tuple[str, str]) -> None:
    [condition] = check_conditions([{"name": "budget", **row}])
    assert condition["type"] == "budget"
    assert (condition["status"], condition["reason"]) == want


def test_a_workload_is_shown_with_defaults_and_conditions_of_checks() -> None:
    rows = [{"name": "budget", "state": "Ready", "message": "within", "lastTransitionTime": "t"}]
    workload = a_workload(admissionChecks=rows)
    shown = shown_workload(workload)
    added = shown["status"].pop("admissionChecksConditions")
    spec, stored = shown.pop("spec"), workload.plain()
    assert shown == {name: value for name, value in stored.items() if name != "spec"}
    assert spec == {"active": True, "role": "regular", **stored["spec"]}
    assert added == [
        {
            "type": "budget",
            "status": "True",
            "reason": "Ready",
            "message": "within",
            "lastTransitionTime": "t",
        }
    ]


def test_a_workload_without_checks_has_no_conditions_of_them() -> None:
    assert shown_workload(a_workload())["status"]["admissionChecksConditions"] == []


def test_a_queue_is_shown_with_its_live_counters_in_kueues_spelling() -> None:
    queue = stored_object({"metadata": {"name": "cq"}, "spec": {}}, "clusterqueue.cq")
    usage = FlavorUsage(flavor="spot", resource="cpu", reserved=1500, admitted=1000, borrowed=500)
    shown = shown_queue(queue, QueueStatus(name="cq", pending=3, reserving=2, usage=(usage,)))
    status = shown["status"]
    assert status["pendingWorkloads"] == 3
    assert status["flavorsReservation"] == [
        {
            "name": "spot",
            "resources": [{"name": "cpu", "total": "1500m", "borrowed": "500m"}],
        }
    ]
    assert status["flavorsUsage"][0]["resources"][0]["total"] == "1"
    assert [(c["type"], c["status"]) for c in status["conditions"]] == [("Active", "True")]


def test_a_queue_without_counters_is_shown_as_stored() -> None:
    queue = stored_object({"metadata": {"name": "cq"}, "spec": {}}, "clusterqueue.cq")
    assert shown_queue(queue, None) == queue.plain()


def test_names_come_from_the_key() -> None:
    assert BucketObject("workload.team_a.train_7", b"", 1).name == "train.7"
    assert BucketObject("workload.team_a.train_7", b"", 1).namespace == "team.a"
    assert BucketObject("clusterqueue.cq", b"", 1).namespace == ""


@pytest.mark.parametrize("data", [b"", b"no json", b"[]", b'"text"'])
def test_unreadable_bytes_are_an_error_and_no_traceback(data: bytes) -> None:
    with pytest.raises(RequestFailed, match=r"workload\.ns\.w in the bucket"):
        BucketObject("workload.ns.w", data, 1).plain()


TABLE_CASES: dict[str, tuple[BucketObject, str, str]] = {
    "a pending workload says what it waits for": (
        a_workload(("QuotaReserved", "False", "WaitingForQuota", "cpu: 1 short")),
        "Pending",
        "WaitingForQuota",
    ),
    "an admitted one needs no reason": (
        a_workload(("QuotaReserved", "True", "QuotaReserved", ""), ("Admitted", "True", "A", "")),
        "Admitted",
        "-",
    ),
    "a finished one says how it ended": (
        a_workload(("Finished", "True", "Failed", "exit status 3")),
        "Finished",
        "Failed",
    ),
    "one in backoff says what holds it": (
        a_workload(("Evicted", "True", "Preempted", ""), ("Requeued", "False", "Later", "")),
        "Backoff",
        "Later",
    ),
    "one that was never evaluated says nothing": (a_workload(), "Pending", "-"),
}


@pytest.mark.parametrize("case", TABLE_CASES)
def test_the_table_shows_phase_and_reason(case: str) -> None:
    workload, phase, reason = TABLE_CASES[case]
    table = tables.table(WORKLOAD, [workload], NOON, {})
    titles = [column.title for column in table.columns]
    [row] = table.rows
    assert row[titles.index("PHASE")] == phase
    assert row[titles.index("REASON")] == reason


def test_the_namespace_is_a_column_only_where_several_are_shown() -> None:
    shown_table = tables.table(WORKLOAD, [a_workload()], NOON, {})
    several = tables.table(WORKLOAD, [a_workload()], NOON, {}, all_namespaces=True)
    assert shown_table.columns[0].title == "NAME"
    assert several.columns[0].title == "NAMESPACE"
    assert several.rows[0][0] == "ns"


def test_missing_counters_are_unknown_and_not_zero() -> None:
    queue = stored_object({"metadata": {"name": "cq"}, "spec": {}}, "clusterqueue.cq")
    table = tables.table(CLUSTER_QUEUE, [queue], NOON, {})
    titles = [column.title for column in table.columns]
    assert table.rows[0][titles.index("PENDING")] == "?"


@pytest.mark.parametrize(
    ("conditions", "shown"),
    [
        pytest.param(
            [{"type": "Active", "status": "False", "reason": "ProviderDown", "message": "no beat"}],
            ("no", "ProviderDown", "no beat"),
            id="an inactive one says why",
        ),
        pytest.param(
            [{"type": "Active", "status": "True", "reason": "Active", "message": "it is"}],
            ("yes", "-", ""),
            id="an active one needs no reason",
        ),
        pytest.param([], ("?", "-", ""), id="one without conditions"),
    ],
)
def test_a_check_is_listed_with_the_reason_why_it_is_inactive(
    conditions: list[dict[str, str]], shown: tuple[str, str, str]
) -> None:
    manifest = {"spec": {"controllerName": "c"}, "status": {"conditions": conditions}}
    table = tables.table(CHECK, [stored_object(manifest, "admissioncheck.c")], NOON, {})
    titles = [column.title for column in table.columns]
    [row] = table.rows
    assert tuple(row[titles.index(title)] for title in ("ACTIVE", "REASON", "MESSAGE")) == shown
    assert not table.columns[titles.index("REASON")].wide


def test_a_wide_table_counts_the_pods_of_each_pod_set() -> None:
    manifest = a_manifest()
    pods = manifest["spec"]["podSets"][0]
    manifest["spec"]["podSets"] = [pods, {**pods, "name": "workers", "count": 3}]
    table = tables.table(WORKLOAD, [stored_object(manifest)], NOON, {})
    assert "main=1,workers=3" in table.rows[0]


def test_usage_of_a_local_queue_is_shown_in_kueues_spelling() -> None:
    queue = stored_object(
        {"metadata": {"name": "lq", "namespace": "ns"}, "spec": {}}, "localqueue.ns.lq"
    )
    consumed = ConsumedUsage(
        consumed_resources={"cpu": "1500m"}, last_update=datetime(2026, 1, 1, tzinfo=UTC)
    )
    counted = QueueStatus(name="lq", used=LocalUsage(consumed=consumed, weight=2.0, value=0.75))
    assert shown_queue(queue, counted)["status"]["fairSharing"] == {
        "admissionFairSharingStatus": {
            "consumedResources": {"cpu": "1500m"},
            "lastUpdate": "2026-01-01T00:00:00Z",
        }
    }
    assert usage_of(LocalUsage(consumed=consumed, weight=2.0, value=0.75)) == (
        "compared by 0.75 (consumed cpu 1.5; weight 2)"
    )
    assert usage_of(LocalUsage(consumed=consumed, weight=0.0)) == (
        "goes last (consumed cpu 1.5; weight 0)"
    )


def test_what_each_person_holds_is_a_table() -> None:
    persons = (
        PersonUsage(person="ada", resource="cpu", held=1500, most=16_000),
        PersonUsage(person="", resource="cpu", held=1000, most=16_000),
        PersonUsage(person="red", resource="memory", label="team", held=1 << 30, most=2 << 30),
    )
    assert sections.persons(QueueStatus(name="cq", persons=persons)).rows == [
        ("ada", "cpu", "1500m", "16"),
        ("(no user)", "cpu", "1", "16"),
        ("team=red", "memory", "1Gi", "2Gi"),
    ]


def test_the_usage_of_each_user_is_a_table() -> None:
    consumed = ConsumedUsage(
        consumed_resources={"cpu": "1500m"}, last_update=datetime(2026, 1, 1, tzinfo=UTC)
    )
    used = LocalUsage(consumed=consumed, weight=1.0, value=1.5)
    status = QueueStatus(name="cq", users=(UserUsage(user="ada", used=used),))
    assert sections.users(status).rows == [("ada", "1.5", "cpu 1.5")]


def test_a_weighted_share_is_shown_where_shares_count() -> None:
    queue = stored_object({"metadata": {"name": "cq"}, "spec": {}}, "clusterqueue.cq")
    status = shown_queue(queue, QueueStatus(name="cq", weighted_share=250))["status"]
    assert status["fairSharing"] == {"weightedShare": 250}
    assert "fairSharing" not in shown_queue(queue, QueueStatus(name="cq"))["status"]


@pytest.mark.parametrize(
    ("drain", "want"),
    [
        pytest.param(None, "no limits", id="not drained"),
        pytest.param({"reason": ""}, "no limits", id="drained without a reason"),
        pytest.param({"reason": "no limits"}, "no limits", id="with one that a message says"),
        pytest.param({"reason": "new disk"}, "drained: new disk; no limits", id="with a reason"),
    ],
)
def test_the_row_of_a_runner_has_the_reason_of_its_drain(
    drain: dict[str, str] | None, want: str
) -> None:
    spec = {} if drain is None else {"drain": drain}
    runner = {"metadata": {"name": "m"}, "spec": spec, "status": {"messages": ["no limits"]}}
    assert machines.row(stored_object(runner, "runner.m"), NOON)[-1] == want
