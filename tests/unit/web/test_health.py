"""The page of health: what is to look at, and the bytes of dead letters."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from admittance.client.health_report import (
    ConsumerRow,
    DeadLetterRow,
    HealthReport,
    HealthRow,
    LeaderRow,
)
from admittance.doctor.finding import note, ok, wrong
from admittance.doctor.report import consumer_row, rows_of
from admittance.events.requests.services import HealthReply, Series
from admittance.web.views.frame import menu_of
from admittance.web.views.system.health import SHOWN_BYTES, HealthView, build, charts, shown

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
OK_ROW = HealthRow(severity="ok", about="services", what="scheduler", found="ready")
NOTE_ROW = HealthRow(severity="note", about="bus", what="durability", found="s", todo="set it")
WRONG_ROW = HealthRow(
    severity="wrong",
    about="checks",
    what="check controller c",
    found="away",
    todo="start it",
    since=NOW - timedelta(minutes=6),
)


def view(*rows: HealthRow, **given: Any) -> HealthView:
    fields: dict[str, Any] = {
        "healthy": True,
        "rows": rows,
        "instances": (HealthReply(service="scheduler"), HealthReply(service="scheduler")),
        **dict.fromkeys(("consumers", "leaders", "streams", "dead_letters"), ()),
        "dead_letter_count": {},
        **given,
    }
    return build(HealthReport(**fields), NOW)


@pytest.mark.parametrize(
    ("rows", "word", "say", "title"),
    [
        pytest.param(
            [OK_ROW], "all well", "Nothing is wrong, and 1 service answers.", "Health", id="well"
        ),
        pytest.param(
            [OK_ROW, NOTE_ROW],
            "1 to look at",
            "Nothing is wrong, and 1 service answers; one thing may be on purpose.",
            "Health",
            id="a note",
        ),
        pytest.param(
            [NOTE_ROW, WRONG_ROW, WRONG_ROW],
            "2 wrong",
            "check controller c is wrong, and 1 more: away.",
            "Health: 2 wrong",
            id="errors",
        ),
    ],
)
def test_the_sentence_says_whether_something_is_wrong(
    rows: list[HealthRow], word: str, say: str, title: str
) -> None:
    made = view(*rows)
    assert (made.word.text, made.say, made.title) == (word, say, title)
    assert made.trouble == ("wrong" in title)


def test_errors_stand_before_notes_with_what_to_do() -> None:
    first, second = view(OK_ROW, NOTE_ROW, WRONG_ROW).look
    assert (first.what, first.todo, first.since) == (
        "check controller c",
        "start it",
        "since 11:54:00",
    )
    assert (second.word.text, second.todo) == ("note", "set it")


def test_leaders_and_consumers_have_their_numbers() -> None:
    at = NOW - timedelta(minutes=2)
    made = view(
        leaders=(LeaderRow(domain="lab", owner="s-1", epoch=17, since=at),),
        consumers=(ConsumerRow(name="runner-a", unread=1200, unacknowledged=3, active=at),),
    )
    [leader], [consumer] = made.leaders, made.consumers
    assert (leader.found, leader.since) == ("s-1, epoch 17", "since 11:58:00")
    assert (consumer.found, consumer.behind) == (
        "3 not acknowledged, active 2 min ago",
        "1,200",
    )


@pytest.mark.parametrize(
    ("data", "text", "is_cut"),
    [
        pytest.param(b"", "", False, id="empty"),
        pytest.param(b'{"a": "\xc3\xa9"}', '{"a": "é"}', False, id="text"),
        pytest.param(b"<b>x</b>\n", "<b>x</b>\n", False, id="hostile text is the template's"),
        pytest.param(b"\xff\x00", "ff 00", False, id="no text"),
        pytest.param(b"a\x1b[31m", "61 1b 5b 33 31 6d", False, id="text with control characters"),
        pytest.param("é".encode() * 301, "é" * 300, True, id="long text"),
        pytest.param(b"x" + "é".encode() * 300, "x" + "é" * 299, True, id="cut in a character"),
        pytest.param(b"\xff" * 601, " ".join(["ff"] * SHOWN_BYTES), True, id="long bytes"),
    ],
)
def test_the_bytes_of_a_dead_letter_can_be_read(data: bytes, text: str, is_cut: bool) -> None:
    assert shown(data) == (text, is_cut)


def test_further_dead_letters_are_counted() -> None:
    letter = DeadLetterRow(
        sequence=9, time=NOW, service="s", subject="admit.x", reason="Invalid", data=b"{"
    )
    made = view(dead_letters=(letter,), dead_letter_count={"s": 3})
    assert (made.letters[0].text, made.letters_more) == ("{", 2)


def test_only_roles_that_may_examine_the_system_have_the_page() -> None:
    pages = {
        role: "Health" in [place.text for place in menu_of(role)]
        for role in ("", "viewer", "admin", "user", "approver")
    }
    assert pages == {"": True, "viewer": True, "admin": True, "user": False, "approver": False}


def test_findings_become_rows_by_what_they_are_about() -> None:
    rows = rows_of([("bus", [ok("server", "2.15")]), ("checks", [note("c", "n", "t")])])
    assert [(row.about, row.severity, row.what, row.todo) for row in rows] == [
        ("bus", "ok", "server", ""),
        ("checks", "note", "c", "t"),
    ]
    assert rows_of([("bus", [wrong("w", "f", "t")])])[0].severity == "wrong"


def test_a_consumer_has_the_time_of_its_last_delivery() -> None:
    info = {
        "name": "c",
        "num_pending": 2,
        "num_ack_pending": 1,
        "delivered": {"last_active": "2026-01-01T12:00:00Z"},
    }
    row = ConsumerRow(name="c", unread=2, unacknowledged=1, active=NOW)
    assert consumer_row(info) == row
    assert consumer_row({"name": "c"}).active is None


def test_charts_add_the_schedulers_up_minute_by_minute() -> None:
    made = charts(
        [
            Series(decisions=(1, 2, 3), p99_ms=(1.0, 0.0, 4.6), waiting=(9, 9, 9)),
            Series(decisions=(10,), p99_ms=(2.0,), waiting=(1,)),
        ]
    )
    assert [(chart.now, chart.highest, chart.since) for chart in made] == [
        ("13", "13", "2 min ago"),
        ("4.6 ms", "4.6 ms", "2 min ago"),
        ("10", "10", "2 min ago"),
    ]
    assert made[0].line == "M0 51.6 300 48.2 600 11.0"


def test_charts_of_a_quiet_minute_are_flat_lines() -> None:
    [decisions, times, _] = charts([Series(decisions=(0,), p99_ms=(0.0,), waiting=(0,))])
    assert (decisions.line, decisions.now, times.now) == ("M0 55.0 600 55.0", "0", "none")
    assert charts([]) == ()
