"""Requests for a history: pages of the log, and questions that have no answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from admittance.client.errors import ClientError
from admittance.client.requests import past
from admittance.client.requests.past import LATE, History
from admittance.events.requests.history import Events, EventsReply, LogEntry
from admittance.runtime import clock
from support.builders import NOON
from unit.usage.test_run_history import EVICTED, a_report


def an_entry(sequence: int, name: str, kind: str = "quota_released", **fields: Any) -> LogEntry:
    report = a_report(name, sequence, **fields).report
    return LogEntry(
        sequence=sequence,
        time=NOON + timedelta(seconds=sequence),
        subject=f"admit.workload.{kind}.ns.{name}",
        data=msgspec.Raw(msgspec.json.encode(report)),
    )


class Log(SimpleNamespace):
    """A link to a log of pages, without objects."""

    namespace, user, shown_url = "ns", "", "nats://x"

    def __init__(self, *pages: EventsReply) -> None:
        super().__init__(pages=list(pages), asked=[])

    async def ask(
        self, what: str, query: Events, _reply: type, *, namespace: str | None
    ) -> EventsReply:
        assert (what, query.only) == ("events", ("quota_released",))
        self.asked.append((namespace, query.after))
        reply: EventsReply = self.pages[len(self.asked) - 1]
        return reply

    async def get(self, _key: str) -> None:
        return None


def asked(monkeypatch: pytest.MonkeyPatch, log: Log, **fields: Any) -> History:
    monkeypatch.setattr(clock, "now", lambda: NOON + timedelta(hours=1))
    link: Any = log
    return asyncio.run(past.history(link, "ns", **fields))


def names(history: History) -> list[str]:
    return [row.name for row in history.rows]


def page(*entries: LogEntry, complete: bool = False, **fields: Any) -> EventsReply:
    return EventsReply(entries=entries, complete=complete, **fields)


def test_a_history_reads_page_after_page(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(
        page(an_entry(1, "a"), after=4),
        page(an_entry(5, "b"), an_entry(6, "noted", "noted")),
        page(complete=True, compacted_until=NOON),
    )
    history = asked(monkeypatch, log, sort="name")
    assert (names(history), log.asked) == (["a", "b"], [("ns", 0), ("ns", 4), ("ns", 6)])
    assert history.removed_until == NOON
    assert (history.since, history.until) == (
        NOON + timedelta(hours=-23),
        NOON + timedelta(hours=1),
    )


@pytest.mark.parametrize(("late", "pages"), [(timedelta(0), 2), (timedelta(seconds=1), 1)])
def test_a_history_of_old_runs_does_not_read_to_the_end_of_the_log(
    monkeypatch: pytest.MonkeyPatch, late: timedelta, pages: int
) -> None:
    until = NOON + timedelta(seconds=30)
    newest = msgspec.structs.replace(an_entry(40, "b"), time=until + LATE + late)
    log = Log(page(an_entry(1, "a"), newest), page(complete=True))
    assert names(asked(monkeypatch, log, until=until)) == ["a"]
    assert len(log.asked) == pages


def test_removed_facts_before_the_span_are_not_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    since = NOON - timedelta(hours=1)
    log = Log(page(complete=True, compacted_until=since))
    assert asked(monkeypatch, log, since=since).removed_until is None


def test_a_fact_that_cannot_be_read_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    junk = msgspec.structs.replace(an_entry(1, "a"), data=msgspec.Raw(b"{}"))
    log = Log(page(junk, an_entry(2, "b", **EVICTED), complete=True))
    assert names(asked(monkeypatch, log)) == ["b"]


REFUSED: Sequence[tuple[dict[str, Any], str]] = [
    ({"states": ("lost",)}, 'states "lost" is not one of succeeded, failed, evicted'),
    ({"sort": "age"}, 'sort "age" is not one of ended, submitted, waited'),
    (
        {"since": NOON + timedelta(hours=2)},
        "since 2026-01-01T14:00:00Z is in the future: it is 2026-01-01T13:00:00Z",
    ),
    (
        {"since": NOON, "until": NOON},
        "since 2026-01-01T12:00:00Z is not before until 2026-01-01T12:00:00Z",
    ),
    ({"user": "ada"}, "nats://x has no users: leave out the user"),
    ({"queue": "none"}, 'there is neither a localqueue "none" in namespace ns nor a clusterqueue'),
]


@pytest.mark.parametrize(("fields", "said"), REFUSED)
def test_a_wrong_question_is_refused_with_a_sentence(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], said: str
) -> None:
    with pytest.raises(ClientError) as error:
        asked(monkeypatch, Log(page(complete=True)), **fields)
    assert said in str(error.value)


def test_the_answer_of_the_server_is_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ClientError, match="no leader"):
        asked(monkeypatch, Log(page(error="no leader")))
