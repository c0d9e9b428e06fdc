"""The trace of a workload as a table, and the one that docs/traces.md shows."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from admittance.cli.show.span_tree import bar, duration, trace_table, tree_of
from admittance.cli.support.output import aligned
from admittance.traces.builder import TraceBuilder
from support.builders import NOON
from support.traced_story import LoggedCores, drawing, spans_shown, told_story

PAGE = Path(__file__).parents[3] / "docs" / "traces.md"


def test_the_page_shows_exactly_the_spans_of_the_story() -> None:
    shown = PAGE.read_text().partition("```text\nSPAN")[2].partition("\n```")[0]
    assert f"SPAN{shown}" == drawing(told_story().log, "train")


def test_a_refused_second_submission_does_not_hide_the_workload() -> None:
    cores = LoggedCores()
    cores.offer({"a": 4})
    cores.job("j")
    cores.done("j")
    cores.at(60)
    cores.job("j", gpu=2)
    [root] = [span for span in spans_shown(cores.log, "j") if span.name == "workload"]
    assert root.attributes["admittance.outcome"] == "Succeeded"


def test_bars_of_open_spans_end_now() -> None:
    cores = LoggedCores()
    cores.offer({"a": 4})
    cores.job("j")
    cores.at(10)
    cores.started("j")
    builder = TraceBuilder()
    spans = [span for logged in cores.log for span in builder.feed(logged)]
    placed = tree_of([*spans, *builder.open_spans("ns", "j")])
    lines = list(aligned(trace_table(placed, NOON + timedelta(seconds=40), 9).narrowed(False)))
    assert lines == [
        "SPAN              AT   TOOK   TIME        DETAIL",
        "workload          0s    40s   ████████▶   still open, queue cq",
        "├─ queue          0s     0s   │",
        "│  └─ attempt     0s     0s   │           assigned, gpu=a",
        "├─ reservation    0s     0s   │           cq, gpu=a",
        "└─ admission      0s    40s   ████████▶   cq, gpu=a",
        "   ├─ start       0s    10s   ███",
        "   └─ run        10s    30s     ██████▶",
    ]


@pytest.mark.parametrize(
    ("start", "took", "whole", "expected"),
    [
        (0, 10, 10, "█████"),
        (5, 0, 10, "  │"),
        (0, 0, 0, "│"),
        (10, 0, 10, "    │"),
    ],
)
def test_a_bar_lies_at_the_time_of_its_span(
    start: float, took: float, whole: float, expected: str
) -> None:
    assert bar(start, took, whole, 5) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0, "0s"), (0.0123, "12ms"), (4.21, "4.2s"), (5, "5s"), (42.4, "42s"), (310, "5m10s")],
)
def test_a_duration_has_the_digits_that_matter(seconds: float, expected: str) -> None:
    assert duration(seconds) == expected
