"""The rows of `admit top`: their order, the filter, and the titles."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from admittance.cli.top import lines
from admittance.cli.top.lines import Choice, Order
from admittance.client.requests.queues.overview import QueueOverview, RunningRow, WaitingRow
from admittance.events.requests.queues import FlavorUsage, QueueStatus

NOON = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
CHOICE = Choice()


def waiting(name: str, minutes: int | None = 0, **fields: Any) -> WaitingRow:
    since = None if minutes is None else NOON - timedelta(minutes=minutes)
    whole = {"namespace": "ns", "queue": "q", "cluster_queue": "cq", "position": 1, "since": since}
    return WaitingRow(name=name, **{**whole, **fields})


def running(name: str, minutes: int | None = 0, **fields: Any) -> RunningRow:
    started = None if minutes is None else NOON - timedelta(minutes=minutes)
    whole = {"namespace": "ns", "queue": "q", "cluster_queue": "cq", "phase": "Running"}
    return RunningRow(name=name, started=started, **{**whole, **fields})


WAITING = [
    waiting("c", 1, priority=2, user="bob"),
    waiting("a", None, priority=9, user="cy"),
    waiting("b", 5, user="ada", namespace="other"),
    waiting("a", 3, namespace="other", user="bob"),
]


@pytest.mark.parametrize(
    ("choice", "places"),
    [
        (Choice(), [0, 1, 2, 3]),
        (Choice(reverse=True), [3, 2, 1, 0]),
        (Choice(Order.NAME), [1, 0, 3, 2]),
        (Choice(Order.NAME, reverse=True), [2, 3, 0, 1]),
        (Choice(Order.PRIORITY), [1, 0, 2, 3]),
        (Choice(Order.TIME), [2, 3, 0, 1]),
        (Choice(Order.USER), [2, 0, 3, 1]),
        (Choice(words="OTHER"), [2, 3]),
        (Choice(words="bob other"), [3]),
        (Choice(words="nothing"), []),
    ],
)
def test_waiting_rows_stand_in_the_chosen_order(choice: Choice, places: list[int]) -> None:
    assert lines.chosen(WAITING, choice) == [WAITING[place] for place in places]


def test_rows_that_run_are_ordered_by_their_start() -> None:
    rows = [running("young", 1), running("not-started", None), running("old", 9)]
    ordered = lines.chosen(rows, Choice(Order.TIME))
    assert [row.name for row in ordered] == ["old", "young", "not-started"]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (running("a", machines=("gpu-1",)), "gpu-1"),
        (waiting("a", reason="WaitingForQuota"), "forquota"),
        (waiting("train"), "rai"),
        (waiting("a", queue="research"), "research"),
        (waiting("a", user="ada"), "ada"),
    ],
)
def test_words_are_looked_for_in_all_short_fields(row: lines.Row, words: str) -> None:
    assert lines.chosen([row], Choice(words=words)) == [row]


def test_the_same_order_again_is_reversed() -> None:
    by_name = CHOICE.by(Order.NAME)
    assert by_name == Choice(Order.NAME)
    assert by_name.by(Order.NAME) == Choice(Order.NAME, reverse=True)
    assert by_name.by(Order.NAME).by(Order.NAME) == by_name
    assert by_name.by(Order.NAME).by(Order.USER) == Choice(Order.USER)
    assert CHOICE.by(Order.QUEUE) == Choice(reverse=True)


@pytest.mark.parametrize(
    ("choice", "sentence"),
    [
        (CHOICE, "by queue"),
        (Choice(Order.TIME, reverse=True), "by time, reversed"),
        (Choice(Order.USER, words="gpu"), 'by user, with "gpu"'),
    ],
)
def test_the_head_has_the_choice(choice: Choice, sentence: str) -> None:
    assert choice.sentence() == sentence


@pytest.mark.parametrize(
    ("shown", "read", "total", "title"),
    [
        (0, 0, 0, "Waiting: none"),
        (3, 3, 3, "Waiting: 3"),
        (2, 2, 1_200, "Waiting: 1,200"),
        (1, 2, 1_200, "Waiting: 1,200, 1 rows shown"),
        (0, 2, 2, "Waiting: 2, 0 rows shown"),
    ],
)
def test_a_title_counts_workloads(shown: int, read: int, total: int, title: str) -> None:
    assert lines.title("Waiting", shown, read, total) == title


def test_stored_text_does_not_control_the_terminal() -> None:
    table = lines.waiting([waiting("a", message="x\x1b[31m")], NOON, several=False)
    assert table.rows[0][-1] == "x [31m"
    table = lines.running([running("a\x07")], NOON, several=True)
    assert table.rows[0][:2] == ["ns", "a "]


def test_the_queues_are_lines_with_bars() -> None:
    use = FlavorUsage(flavor="f", resource="cpu", nominal=4000, reserved=2000)
    status = QueueStatus(name="cq", active=True, reserving=1, pending=2, usage=(use,))
    seen = QueueOverview(queues=(status,), running=(), running_total=0, waiting=(), waiting_total=0)
    head, row = lines.queue_lines(seen).splitlines()
    assert head.split() == ["CLUSTERQUEUE", "RUNNING", "WAITING", "USE"]
    assert row.split() == ["cq", "1", "2", "cpu", "█████░░░░░", "2/4"]
