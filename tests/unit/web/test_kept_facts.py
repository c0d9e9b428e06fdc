"""A session keeps the facts that it has read, and asks for later ones only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from admittance.client.errors import NotAllowed
from admittance.events.requests.history import LogEntry
from admittance.runtime import clock
from admittance.web.kept.facts import KeptFacts

AGO = timedelta(minutes=1)


def fact(sequence: int, name: str = "w", *, ago: timedelta = AGO, outcome: str = "") -> LogEntry:
    return LogEntry(
        sequence=sequence,
        time=clock.now() - ago,
        subject=f"admit.workload.held.ns.{name}",
        data=msgspec.Raw(b"{}"),
        outcome=outcome,
    )


class Log(SimpleNamespace):
    """A client of a log with these facts. ``asked``: the sequences after which it was asked;
    ``refuses``: whether the server lets the user read nothing."""

    def __init__(self, *entries: LogEntry) -> None:
        super().__init__(entries=list(entries), asked=[], refuses=False)

    async def events(self, _name: str, *, after: int, **_: Any) -> AsyncIterator[LogEntry]:
        self.asked.append(after)
        if self.refuses:
            raise NotAllowed("no")
        for entry in self.entries:
            if entry.sequence > after:
                yield entry


def kept(log: Log, **limits: Any) -> KeptFacts:
    client: Any = log
    return KeptFacts(client, **limits)


def sequences(facts: KeptFacts, name: str = "w") -> list[int]:
    return [entry.sequence for entry in asyncio.run(facts.of("ns", name))]


def test_a_page_that_is_shown_again_reads_only_later_facts() -> None:
    log = Log(*(fact(sequence) for sequence in range(1, 601)))
    facts = kept(log)
    assert len(sequences(facts)) == 600
    log.entries.append(fact(601))
    assert sequences(facts) == list(range(1, 602))
    assert log.asked == [0, 599]


def test_young_facts_are_read_again_until_their_outcome_is_settled() -> None:
    log = Log(fact(1), fact(2, ago=timedelta(0)))
    facts = kept(log)
    assert sequences(facts) == [1, 2]
    log.entries[1] = fact(2, outcome="refused")
    assert [entry.outcome for entry in asyncio.run(facts.of("ns", "w"))] == ["", "refused"]


@pytest.mark.parametrize(
    "entries",
    [
        [fact(1), fact(2, "w-spot"), fact(3), fact(4, "w-spot")],
        [fact(3, ago=2 * AGO), fact(4)],
        [fact(1)],
        [],
    ],
    ids=["a new variant", "another log", "a shorter log", "an empty log"],
)
def test_all_facts_are_read_if_the_known_ones_do_not_lead_to_the_later_ones(
    entries: list[LogEntry],
) -> None:
    log = Log(fact(1), fact(3))
    facts = kept(log)
    assert sequences(facts) == [1, 3]
    log.entries[:] = entries
    assert sequences(facts) == [entry.sequence for entry in entries]
    assert log.asked == [0, 2, 0]


def test_a_user_that_may_no_longer_read_gets_no_kept_facts() -> None:
    log = Log(fact(1))
    facts = kept(log)
    assert sequences(facts) == [1]
    log.refuses = True
    assert sequences(facts) == []
    log.refuses = False
    assert (sequences(facts), log.asked) == ([1], [0, 0, 0])


def test_a_session_keeps_the_workloads_shown_last_within_its_limit() -> None:
    log = Log(fact(1), fact(2))
    facts = kept(log, bytes_max=2500)
    for name in ("a", "b", "a", "c"):
        assert sequences(facts, name) == [1, 2]
    assert log.asked == [0, 0, 1, 0]
    sequences(facts, "b")
    sequences(facts, "a")
    assert log.asked == [0, 0, 1, 0, 0, 0]
