"""The screen of `admit top`: what keys do. The answers are prepared; a terminal is not needed."""

from __future__ import annotations

from typing import Any

import pytest
from textual.widgets import DataTable, Static

from admittance.cli.commands.program import invoke
from admittance.cli.top.answers import Question
from admittance.cli.top.lines import Row
from admittance.cli.top.screen import TextScreen, TopScreen
from admittance.client.errors import Unavailable
from admittance.client.requests.queues.overview import QueueOverview, RunningRow, WaitingRow

COMMON: dict[str, Any] = {"namespace": "ns", "queue": "q", "cluster_queue": "cq"}


def overview(*names: str) -> QueueOverview:
    rows = (
        WaitingRow(name=name, position=at, priority=at, **COMMON)
        for at, name in enumerate(names, 1)
    )
    return QueueOverview(
        queues=(),
        running=(RunningRow(name="train", phase="Running", **COMMON),),
        running_total=1,
        waiting=tuple(rows),
        waiting_total=len(names),
    )


class Prepared:
    """Answers that are prepared."""

    place = "nats://here default"
    question = Question(None, "default", mine=False, limit=200)

    def __init__(self) -> None:
        self.next: QueueOverview | Exception = overview("b", "a")
        self.cancelled: list[str] = []

    async def read(self) -> QueueOverview:
        if isinstance(self.next, Exception):
            raise self.next
        return self.next

    async def explain(self, row: Row) -> str:
        return f"why {row.name} waits"

    async def cancel(self, row: Row) -> str:
        self.cancelled.append(row.name)
        return f"{row.name} is stopped"


def screen(answers: Prepared) -> TopScreen:
    return TopScreen(answers, overview("b", "a"), every=3600)  # type: ignore[arg-type]


def names(app: TopScreen, part: str) -> list[str]:
    table = app.query_one(f"#{part}", DataTable)
    at = 0 if part == "running" else 1
    return [str(table.get_row_at(row)[at]) for row in range(table.row_count)]


def text(app: TopScreen, selector: str) -> str:
    return str(app.screen.query_one(selector, Static).render())


async def test_keys_order_filter_and_explain_rows() -> None:
    app = screen(Prepared())
    async with app.run_test() as pilot:
        assert (names(app, "running"), names(app, "waiting")) == (["train"], ["b", "a"])
        await pilot.press("n")
        assert names(app, "waiting") == ["a", "b"]
        await pilot.press("n")
        assert names(app, "waiting") == ["b", "a"]
        await pilot.press("slash", "A", "enter")
        assert (names(app, "running"), names(app, "waiting")) == (["train"], ["a"])
        await pilot.press("escape", "tab", "down", "enter")
        await pilot.pause()
        assert isinstance(app.screen, TextScreen)
        assert text(app, ".title") == "a"
        await pilot.press("escape", "question_mark")
        assert text(app, ".title") == "Keys"
        await pilot.press("q", "q")
    assert app.return_code == 0


async def test_a_workload_is_cancelled_after_a_yes_only() -> None:
    answers = Prepared()
    app = screen(answers)
    async with app.run_test() as pilot:
        await pilot.press("c")
        await pilot.pause()
        assert text(app, ".title") == "Cancel workload train?"
        await pilot.press("n")
        await pilot.pause()
        assert answers.cancelled == []
        await pilot.press("c")
        await pilot.pause()
        await pilot.press("y")
        await pilot.pause()
        assert answers.cancelled == ["train"]


async def test_a_chosen_workload_stays_chosen_and_a_failed_reading_keeps_the_rows() -> None:
    answers = Prepared()
    app = screen(answers)
    async with app.run_test() as pilot:
        await pilot.press("tab", "down")
        answers.next = overview("new", "b", "a")
        await pilot.press("r")
        await pilot.pause()
        assert names(app, "waiting") == ["new", "b", "a"]
        assert app.query_one("#waiting", DataTable).cursor_row == 2
        answers.next = Unavailable("the server is away")
        await pilot.press("r")
        await pilot.pause()
        assert names(app, "waiting") == ["new", "b", "a"]
        assert text(app, "#head").endswith("ago: the server is away")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ((), "admit top needs a terminal; `admit queue` prints the same once"),
        (
            ("--every", "0s"),
            '--every "0s" must be a whole number of seconds, at least 1',
        ),
        (("--every", "soon"), '--every "soon" is not a duration; write 90, 90s, 5m, 1h30m or 2d'),
    ],
)
def test_top_without_a_terminal_is_one_error_line(
    words: tuple[str, ...], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["top", *words]) == 2
    assert capsys.readouterr().err == f"error: {error}\n"
