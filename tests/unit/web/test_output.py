"""The output of pods on the page."""

from __future__ import annotations

import pytest

from admittance.events.shapes import PodLog
from admittance.web.views.details.output import (
    KEPT_MAX,
    LINE_MAX,
    PODS_MAX,
    Tails,
    build,
    output_of,
    shown,
)


@pytest.mark.parametrize(
    ("text", "last"),
    [
        ("one\ntwo\nthree\n", "two\nthree\n"),
        ("one\ntwo\nthree", "two\nthree"),
        ("one\n", "one\n"),
        ("", ""),
        ("a\n\n\n", "\n\n"),
    ],
    ids=[
        "ends with a newline",
        "a line that goes on",
        "fewer lines than asked for",
        "nothing",
        "empty lines",
    ],
)
def test_the_last_lines_are_shown(text: str, last: str) -> None:
    assert shown(text, 2) == last


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07x\x1b]8;;http://a\x1b\\y", "xy"),
        ("\x1b]never ended\nnext", "\nnext"),
        ("\x9b31mx\x1bcy", "xy"),
        ("10 %\r50 %\r100 %\r\nnext", "100 %\nnext"),
        ("a\x00b\x08c\tz", "a\ufffdb\ufffdc\tz"),
        ("\u202eexe.txt\u2066", "\ufffdexe.txt\ufffd"),
        ("<script>alert(1)</script>", "<script>alert(1)</script>"),
    ],
    ids=[
        "colours",
        "titles and links",
        "a title without an end",
        "other sequences",
        "a line that was written over",
        "control characters",
        "text in another direction",
        "markup, which the template escapes",
    ],
)
def test_what_a_terminal_acts_on_is_not_shown(text: str, plain: str) -> None:
    assert shown(text, 10) == plain


def test_a_long_line_is_cut() -> None:
    assert shown("x" * (LINE_MAX + 1500) + "\nend", 5) == (
        "x" * LINE_MAX + " … 1,500 more characters\nend"
    )


def test_output_without_end_does_not_fill_the_memory() -> None:
    tails = Tails()
    for _ in range(20):
        tails.add(PodLog(pod="main-0", text="y" * (KEPT_MAX // 4)))
        assert len(tails.texts["main-0"]) <= 2 * KEPT_MAX
    [pod] = tails.pods(5)
    assert pod.note == "The lines before this are too long to show."


def test_pods_come_by_their_index_and_not_all_at_once() -> None:
    tails = Tails()
    for number in reversed(range(PODS_MAX + 5)):
        tails.add(PodLog(pod=f"main-{number}", text="x"))
    view = build("ns", "w", tails)
    assert [pod.pod for pod in view.pods] == [f"main-{number}" for number in range(PODS_MAX)]
    assert view.more == 5
    block = output_of("ns", "w", tails, "", 12, follows=True)
    assert block.pod is not None
    assert (block.pod.pod, block.others) == ("main-0", PODS_MAX + 4)


def test_removed_output_is_noted() -> None:
    tails = Tails()
    tails.add(PodLog(pod="main-0", text="x", cut=500))
    assert tails.pods(5)[0].note == "The runner has removed output before this."


def test_earlier_runs_are_linked_as_far_as_there_are_some() -> None:
    def choices(previous: int) -> list[tuple[str, str]]:
        view = build("ns", "a b", Tails(), previous=previous, restarts=1)
        return [(link.text, link.href) for link in view.choices if "run" in link.text]

    assert choices(0) == [("Earlier run", "/workloads/ns/a%20b/logs?lines=200&previous=1")]
    assert choices(1) == [("Later run", "/workloads/ns/a%20b/logs?lines=200")]
