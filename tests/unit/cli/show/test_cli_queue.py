"""The tables of `admit queue`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from admittance.api.fields.units import INT64_MAX
from admittance.cli.show.queue_rows import (
    amounts,
    bar,
    elapsed,
    queue_table,
    running_table,
    use_of,
    waiting_table,
)
from admittance.cli.support.output import Table
from admittance.client.requests.queues.overview import RunningRow, WaitingRow
from admittance.events.requests.queues import FlavorUsage, QueueStatus

NOON = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


def running(**fields: object) -> RunningRow:
    whole = {
        "namespace": "ns",
        "name": "a",
        "queue": "q",
        "cluster_queue": "cq",
        "phase": "Running",
    }
    return RunningRow(**{**whole, **fields})  # type: ignore[arg-type]


def waiting(**fields: object) -> WaitingRow:
    whole = {"namespace": "ns", "name": "w", "queue": "q", "cluster_queue": "cq", "position": 1}
    return WaitingRow(**{**whole, **fields})  # type: ignore[arg-type]


def cells(table: Table, row: int = 0) -> dict[str, str]:
    return dict(zip((column.title for column in table.columns), table.rows[row], strict=True))


@pytest.mark.parametrize(
    ("used", "quota", "filled"),
    [
        (-1, 10, 0),
        (0, 0, 0),
        (0, 10, 0),
        (1, 0, 10),
        (1, 1000, 1),
        (4, 10, 4),
        (5, INT64_MAX, 1),
        (99, 100, 9),
        (10, 10, 10),
        (12, 10, 10),
    ],
)
def test_a_bar_is_full_only_without_quota_left(used: int, quota: int, filled: int) -> None:
    assert bar(used, quota) == "█" * filled + "░" * (10 - filled)


def use(flavor: str, resource: str, nominal: int, reserved: int) -> FlavorUsage:
    return FlavorUsage(flavor=flavor, resource=resource, nominal=nominal, reserved=reserved)


@pytest.mark.parametrize(
    ("usage", "text"),
    [
        ([], ""),
        ([use("a", "cpu", 0, 0)], ""),
        ([use("a", "cpu", 4000, 2000)], "cpu █████░░░░░ 2/4"),
        ([use("a", "cpu", 0, 500)], "cpu ██████████ 500m/0"),
        ([use("a", "cpu", INT64_MAX, 0)], "cpu ░░░░░░░░░░ 0/unlimited"),
        (
            [use("a", "cpu", 1000, 0), use("b", "gpu", 2, 2), use("c", "gpu", 0, 0)],
            "a cpu ░░░░░░░░░░ 0/1   b gpu ██████████ 2/2",
        ),
    ],
)
def test_flavors_are_named_if_there_are_several(usage: list[FlavorUsage], text: str) -> None:
    assert use_of(usage) == text


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (running(), "-"),
        (running(elapsed_seconds=0.0), "0s"),
        (running(elapsed_seconds=720.0), "12m"),
        (running(elapsed_seconds=720.0, limit_seconds=3600), "12m of 1h"),
        (running(limit_seconds=3600), "-"),
    ],
)
def test_elapsed_is_shown_beside_the_limit(row: RunningRow, text: str) -> None:
    assert elapsed(row) == text


def test_an_array_has_elements_instead_of_a_phase() -> None:
    rows = [running(elements=("1 Running", "2 in all")), running(machines=("m1", "m2"), user="ada")]
    table = running_table(rows, NOON, several=False)
    assert (cells(table)["PHASE"], cells(table)["ELEMENTS"]) == ("-", "1 Running, 2 in all")
    assert (cells(table, 1)["PHASE"], cells(table, 1)["ELEMENTS"]) == ("Running", "-")
    assert (cells(table, 1)["MACHINE"], cells(table, 1)["USER"]) == ("m1,m2", "ada")


@pytest.mark.parametrize(
    ("row", "several", "titles"),
    [
        (waiting(), False, {"NAMESPACE": False, "USER": False, "ELEMENTS": False}),
        (waiting(), True, {"NAMESPACE": True}),
        (waiting(queue=""), False, {"NAMESPACE": True}),
        (waiting(user="ada", message="m"), False, {"USER": True, "MESSAGE": True}),
    ],
)
def test_columns_that_say_nothing_are_left_out(
    row: WaitingRow, several: bool, titles: dict[str, bool]
) -> None:
    shown = cells(waiting_table([row], NOON, several=several))
    assert {title: title in shown for title in titles} == titles


def test_a_waiting_row_has_position_reason_and_numbers() -> None:
    row = waiting(
        position=0, reason="R", priority=2, requests={"cpu": 4000}, since=NOON - timedelta(hours=1)
    )
    shown = cells(waiting_table([row], NOON, several=False))
    assert (shown["POSITION"], shown["REASON"], shown["PRIORITY"]) == ("-", "R", "2")
    assert (shown["REQUESTS"], shown["WAITING"]) == ("cpu 4", "1h")
    assert amounts({}) == "-"
    assert amounts({"cpu": 1500, "memory": 2**30}) == "cpu 1500m, memory 1Gi"


def test_a_queue_that_admits_nothing_says_why() -> None:
    ready = QueueStatus(name="a", pending=1200, reserving=3, reason="Ready", message="fine")
    stopped = QueueStatus(name="b", active=False, reason="Stopped", message="it is stopped")
    assert "WHY INACTIVE" not in cells(queue_table([ready]))
    table = queue_table([ready, stopped])
    assert table.rows == [
        ["a", "3", "1,200", "-", "-"],
        ["b", "0", "0", "-", "Stopped: it is stopped"],
    ]
