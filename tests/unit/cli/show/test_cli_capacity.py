"""Requests for capacity and machine pools in lists, descriptions, events and the doctor."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from admittance.api.meta import ObjectMeta
from admittance.cli.show import lists as get
from admittance.cli.show import tables
from admittance.cli.show.capacity import capacity_requests, pools
from admittance.cli.show.capacity.machine_details import lost_devices
from admittance.client import kinds
from admittance.client.requests.objects import BucketObject
from admittance.client.wording.facts import FactEffects, line_of, reason_of
from admittance.doctor.controllers import class_finding
from admittance.doctor.finding import OK
from admittance.events import provisioning as facts
from admittance.events.codec import encode
from admittance.events.requests.history import LogEntry
from admittance.events.shapes import PodSetToProvision
from admittance.events.stored.machines import OpenRun
from admittance.events.subjects import subject_of
from admittance.provisioning.pool_bookings import Booking, HeldPart
from admittance.provisioning.records import Record, RecordSpec, RecordStatus, State, with_note
from support.builders import NOON

TEMPLATE = b'{"spec":{"containers":[{"resources":{"requests":{"nvidia.com/gpu":"8"}}}]}}'


def a_record(**status: Any) -> Record:
    pods = PodSetToProvision(name="main", names=("main",), count=2, template=msgspec.Raw(TEMPLATE))
    return Record(
        api_version="autoscaling.x-k8s.io/v1",
        kind="ProvisioningRequest",
        metadata=ObjectMeta(
            name="train-spot-2", namespace="ns", creation_timestamp=NOON - timedelta(seconds=90)
        ),
        spec=RecordSpec(
            id="u/spot/1/2",
            workload="train",
            uid="u",
            check="spot",
            cycle=1,
            attempt=2,
            provisioning_class_name="rack",
            parameters={"zone": "a"},
            pod_sets=(pods,),
            deadline=NOON + timedelta(seconds=60),
        ),
        status=RecordStatus(**status),
    )


def record_object(record: Record) -> BucketObject:
    return BucketObject("provisioningrequest.ns.train-spot-2", msgspec.json.encode(record), 1)


def test_a_request_row_has_the_workload_and_the_state() -> None:
    record = a_record(state=State.ACCEPTED, message="soon")
    table = tables.table(kinds.REQUEST, [record_object(record)], NOON, {}, all_namespaces=True)
    (row,) = table.rows
    assert tuple(row) == (
        *("ns", "train-spot-2", "train", "spot", "rack", "2", "Accepted", "1m30s", "soon"),
        "u/spot/1/2",
    )


def test_an_unreadable_request_has_a_row_with_all_columns() -> None:
    odd = BucketObject("provisioningrequest.ns.odd", b"{}", 1)
    table = tables.table(kinds.REQUEST, [odd], NOON, {})
    (row,) = table.rows
    assert (row[0], len(row)) == ("odd", len(table.columns))


def test_a_described_workload_shows_its_request_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    record = a_record(message="soon", details={"rack": "r7"})
    capacity_requests.show(with_note(record, "Provisioned does not count: why", NOON), NOON)
    output = capsys.readouterr().out
    for part in (
        *("train-spot-2", "rack", "2 (cycle 1)", "u/spot/1/2", "Requested", "soon", "rack=r7"),
        *("zone=a", "in 1m", "nvidia.com/gpu=8", "Provisioned does not count: why"),
    ):
        assert part in output


def test_a_request_shows_a_silent_provider_and_no_deadline_once_cancelled() -> None:
    record = a_record()
    shown_facts = dict(capacity_requests.facts_of(record, NOON, {"rack"}))
    assert "is one running?" in shown_facts["Provider"]
    assert not dict(capacity_requests.facts_of(record, NOON))["Provider"]
    ended = dict(capacity_requests.facts_of(a_record(cancelled="Preempted"), NOON))
    assert (ended["State"], ended["Deadline"]) == ("Cancelled (Preempted)", "")


def test_an_open_request_is_explained_with_its_class() -> None:
    (line,) = capacity_requests.waits_for([a_record(message="booting")], NOON)
    assert line.startswith(
        "rack: asked 1m30s ago (attempt 2 of check spot), the provider has not answered"
    )
    assert line.endswith(": booting")
    assert not list(capacity_requests.waits_for([a_record(state=State.PROVISIONED)], NOON))
    assert not list(capacity_requests.waits_for([a_record(cancelled="Preempted")], NOON))


COMMON: dict[str, Any] = {
    "namespace": "ns",
    "name": "train",
    "id": "u/spot/1/2",
    "provisioning_class": "rack",
}


@pytest.mark.parametrize(
    ("fact", "words"),
    [
        pytest.param(
            facts.ProvisioningRequested(
                **COMMON, check="spot", cycle=1, attempt=2, pod_sets=a_record().spec.pod_sets
            ),
            "attempt 2 of check spot, cycle 1: 2 pods of main",
            id="what is asked",
        ),
        pytest.param(
            facts.ProvisioningCancelled(**COMMON, check="spot", attempt=2, reason="Preempted"),
            "attempt 2 of check spot: Preempted",
            id="what is taken back",
        ),
        pytest.param(
            facts.ProvisioningFailed(**COMMON, message="no such zone", retryable=False),
            "no such zone (not retryable)",
            id="a failure for good",
        ),
        pytest.param(
            facts.ProvisioningFailed(**COMMON, message="none", retry_after=30),
            "none (retry in 30 s)",
            id="a failure for a time",
        ),
        pytest.param(facts.Provisioned(**COMMON, message="here"), "here", id="what is there"),
    ],
)
def test_events_describe_capacity_facts_in_text(fact: facts.ProvisioningFact, words: str) -> None:
    assert reason_of(fact) == ("rack", words)


OTHERS: dict[str, Any] = {**COMMON, "id": "v/spot/1/2"}
ASKED = facts.ProvisioningRequested(**COMMON, check="spot", cycle=1, attempt=2)
ENDED = facts.ProvisioningCancelled(**COMMON, check="spot", attempt=2, reason="Preempted")
FAILED = facts.ProvisioningFailed(**COMMON, message="none")
THERE = facts.Provisioned(**COMMON)


EVENTS_CASES: dict[str, tuple[list[facts.ProvisioningFact], list[str]]] = {
    "what counts": ([ASKED, THERE], ["", ""]),
    "what was asked is not known": ([THERE], [""]),
    "a contradiction": ([ASKED, FAILED, THERE], ["", "", "the request had failed"]),
    "a failure of what was there, and a revocation": (
        [ASKED, THERE, FAILED, facts.CapacityRevoked(**COMMON)],
        ["", "", "", ""],
    ),
    "too late": ([ASKED, ENDED, THERE], ["", "", "the request was cancelled"]),
    "foreign": ([ASKED, facts.Provisioned(**OTHERS)], ["", "this workload has no such request"]),
    "another class": (
        [ASKED, facts.Provisioned(**{**COMMON, "provisioning_class": "x"})],
        ["", "the request went to rack"],
    ),
}


@pytest.mark.parametrize("case", EVENTS_CASES)
def test_events_show_which_answers_of_providers_do_not_count(case: str) -> None:
    story, remarks = EVENTS_CASES[case]
    answers = FactEffects()
    assert [answers.remark(answer) for answer in story] == remarks


def test_the_remark_follows_the_message_of_the_answer() -> None:
    answers = FactEffects()
    answers.remark(ASKED)
    fact = facts.Provisioned(**OTHERS, message="here")
    data = msgspec.Raw(encode(fact))
    entry = LogEntry(sequence=7, time=NOON, subject=subject_of(fact), data=data)
    line = line_of(entry, effects=answers).line()
    assert line.endswith("rack: here (does not count: this workload has no such request)")


DOCTOR_CASES: dict[str, tuple[dict[str, Any] | None, list[str], list[Record], bool, bool, str]] = {
    "all is well": ({}, ["c"], [], True, True, "no request open"),
    "no provider, and no request": ({}, ["c"], [], False, True, "no provider answers"),
    "no provider": ({}, ["c"], [a_record()], False, False, "the oldest 1m30s old"),
    "one is open": ({}, ["c"], [a_record()], True, True, "1 requests open"),
    "no way to its provider": (None, ["c"], [], True, False, "no durable"),
    "one without an answer of the check": ({}, ["c"], [], None, True, "not known whether"),
    "a class of the past": ({}, [], [], True, True, "any more"),
    "a provider that does not read": (
        {"num_pending": 5_000},
        ["c"],
        [],
        True,
        False,
        "5,000 not read",
    ),
}


@pytest.mark.parametrize("case", DOCTOR_CASES)
def test_the_doctor_checks_a_provisioning_class(case: str) -> None:
    durable, configs, records, answers, fine, expected = DOCTOR_CASES[case]
    finding = class_finding("rack", durable, configs, records, answers, NOON)
    assert (finding.state == OK) is fine
    assert expected in finding.found


POOL = {
    "apiVersion": "admittance.dev/v1",
    "kind": "MachinePool",
    "metadata": {"name": "rack-7"},
    "spec": {
        "provisioningClassName": "rack",
        "machines": [
            {"name": "a", "count": 4, "bootSeconds": 90, "resources": {"cpu": 2}},
            {"name": "b", "resources": {"cpu": 8}},
        ],
    },
}


def a_pool(*bookings: Booking, **spec: Any) -> BucketObject:
    plain = {**POOL, "spec": {**POOL["spec"], **spec}}  # type: ignore[dict-item]
    pool = BucketObject("machinepool_admittance_dev.rack-7", msgspec.json.encode(plain), 1)
    return pools.with_usage(pool, bookings, NOON)


def a_booking(name: str, *numbers: int, boots: int = 0, **more: Any) -> Booking:
    ready = NOON + timedelta(seconds=boots)
    held = (
        HeldPart(kind="a", number=number, amounts={"cpu": 1500}, ready_at=ready)
        for number in numbers
    )
    return Booking(
        id=f"{name}/c/1/1", namespace="ns", name=name, held=tuple(held), ready_at=ready, **more
    )


MACHINE_CASES: dict[str, tuple[tuple[Booking, ...], tuple[str, ...]]] = {
    "all are free": ((), ("5", "0", "5", "0")),
    "some": ((a_booking("v", 0, 1), a_booking("w", 2, boots=30)), ("5", "3", "2", "1")),
    "one that is shared counts once": (
        (a_booking("v", 0, boots=30), a_booking("w", 0, boots=30)),
        ("5", "1", "4", "1"),
    ),
    "not those that have gone": ((a_booking("v", 3, 4),), ("5", "1", "4", "0")),
}


@pytest.mark.parametrize("case", MACHINE_CASES)
def test_a_machine_pool_row_has_its_machines(case: str) -> None:
    bookings, counts = MACHINE_CASES[case]
    (row,) = tables.table(kinds.MACHINE_POOL, [a_pool(*bookings)], NOON, {}).rows
    assert tuple(row) == ("rack-7", "rack", *counts, "a=4,b=1", "until freed")
    status = get.shown(kinds.MACHINE_POOL, a_pool(*bookings), {})["status"]
    names = ("machines", "booked", "free", "booting")
    assert tuple(str(status[name]) for name in names) == counts
    assert len(status["bookings"]) == len(bookings)


INVALID_CASES: dict[str, tuple[dict[str, Any], str]] = {
    "fewer machines than none": (
        {"machines": [{"name": "a", "count": -1, "resources": {}}]},
        "spec.machines[0].count must be 0 to 100000, not -1",
    ),
    "machines that are none": ({"machines": [7]}, "spec.machines[0]: Expected `object`, got `int`"),
    "a number of them": ({"machines": 7}, "spec.machines: Expected `array`, got `int`"),
}


@pytest.mark.parametrize("case", INVALID_CASES)
def test_an_invalid_machine_pool_shows_what_is_wrong(case: str) -> None:
    spec, why = INVALID_CASES[case]
    pool = a_pool(a_booking("v", 0), **spec)

    (row,) = tables.table(kinds.MACHINE_POOL, [pool], NOON, {}).rows
    assert row[3:7] == ("?", "?", "?", why)
    assert get.shown(kinds.MACHINE_POOL, pool, {})["status"] == {"wrong": why}
    assert len(pools.booking_table(pool, NOON).rows) == 1


def test_a_machine_pool_in_a_namespace_is_invalid_and_has_no_bookings() -> None:
    pool = BucketObject("machinepool_admittance_dev.team.rack-7", a_pool().data, 1)
    pool = pools.with_usage(pool, [a_booking("v", 0)], NOON)

    (row,) = tables.table(kinds.MACHINE_POOL, [pool], NOON, {}).rows
    assert row[3:7] == (
        "?",
        "?",
        "?",
        "metadata.namespace: a MachinePool has no namespace; remove team",
    )
    assert not pools.booking_table(pool, NOON).rows


def test_a_machine_pool_shows_the_workloads_that_booked_it() -> None:
    many = a_booking("v", *range(4), boots=30, expires_at=NOON)
    pool = a_pool(a_booking("w", 0), many)
    first, second = pools.booking_table(pool, NOON).rows
    machines = "a-0,a-1,a-2,a-3"
    assert first == (
        *("ns", "v", "4", machines, "cpu=6", "in 30s", "2026-01-01T12:00:00Z", "v/c/1/1"),
    )
    assert second == ("ns", "w", "1", "a-0", "cpu=1500m", "yes", "-", "w/c/1/1")
    rows = pools.kind_table(pool).rows
    assert [row[:5] for row in rows] == [("a", "4", "4", "0", "3"), ("b", "1", "0", "1", "0")]


def test_a_request_past_its_deadline_shows_that_it_is_over() -> None:
    record = a_record()
    late = replace(record, spec=replace(record.spec, deadline=NOON))
    assert dict(capacity_requests.facts_of(late, NOON))["Deadline"].endswith("(over)")


def test_a_device_that_a_job_has_and_the_machine_lost_is_named() -> None:
    devices = [{"resource": "gpu", "id": "0"}, {"resource": "fpga", "id": "1"}]
    runs = [
        OpenRun(namespace="n", name="w", revision=1, devices={"gpu": ("0", "1::2", "1::3")}),
        OpenRun(namespace="n", name="v", revision=2, devices={"fpga": ("1",)}),
    ]
    [said] = lost_devices({"status": {"devices": devices}}, runs)
    assert said.startswith("gpu 1 is gone from the machine, and was assigned to n/w, which still ")
    assert lost_devices({"status": {"devices": devices}}, runs[1:]) == []
