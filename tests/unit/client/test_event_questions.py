"""Questions about facts of the log, and answers of a service that cannot narrow them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from admittance.client.errors import BadInput, RequestFailed
from admittance.client.requests.workloads import news
from admittance.client.requests.workloads.facts import narrowing, newest_facts, newest_pages
from admittance.client.requests.workloads.history import facts_about
from admittance.client.requests.workloads.news import newest_sequences
from admittance.events.fact_types import FACT_TYPES
from admittance.events.requests.history import Events, EventsReply, LogEntry
from support.builders import NOON


class Log(SimpleNamespace):
    """A link to a service with these answers. ``asked``: the questions."""

    def __init__(self, *replies: EventsReply) -> None:
        super().__init__(replies=list(replies), asked=[])

    async def ask(self, _what: str, query: Events, _reply: type, **_: Any) -> EventsReply:
        self.asked.append(query)
        reply: EventsReply = self.replies[len(self.asked) - 1]
        return reply


@pytest.mark.parametrize(
    ("given", "types"),
    [
        ("admitted", ("admitted",)),
        ("Admitted, check-reported,admitted", ("admitted", "check_reported")),
        (["quota reserved"], ("quota_reserved",)),
        ("", ()),
        ("admitted,", ("admitted",)),
    ],
)
def test_types_have_the_words_of_events(given: Any, types: tuple[str, ...]) -> None:
    assert narrowing(given).types == types
    assert {*types} <= FACT_TYPES.keys()


def test_an_unknown_type_is_refused_with_the_known_ones() -> None:
    with pytest.raises(BadInput, match=r'--types "<b>" is not one of activated, admitted, .*timer'):
        narrowing("admitted,<b>", spelled="--types")


def test_an_answer_of_an_earlier_version_is_an_error() -> None:
    old = EventsReply()
    link: Any = Log(old, old)
    with pytest.raises(RequestFailed, match="cannot narrow events by newest first: update it"):
        asyncio.run(newest_facts(link, "ns", None))

    async def in_order() -> None:
        narrowed = narrowing(types="admitted")
        async for _ in facts_about(link, "ns", None, narrowed=narrowed, follow=False):
            raise AssertionError

    with pytest.raises(RequestFailed, match="cannot narrow events by types: update it"):
        asyncio.run(in_order())


def test_newest_pages_go_on_where_the_one_before_ended() -> None:
    narrowed = narrowing("admitted", "main", NOON)
    applied = ("newest_first", "types", "queue", "until", "before")
    link: Any = Log(
        EventsReply(before=70, complete=False, applied=applied[:-1]),
        EventsReply(before=1, applied=applied),
    )

    async def read() -> None:
        async for _ in newest_pages(link, None, None, narrowed=narrowed, limit=7):
            pass

    asyncio.run(read())
    first, second = link.asked
    assert (first.before, second.before) == (0, 70)
    assert (first.types, first.queue, first.until) == (("admitted",), "main", NOON)
    assert (first.limit, first.newest_first) == (7, True)


class Bell:
    """A connection that passes each message to those that listen."""

    def __init__(self) -> None:
        self.handlers: list[Callable[..., None]] = []
        self.listened = asyncio.Event()

    async def listen(self, _subject: str, handler: Callable[..., None]) -> Callable[..., None]:
        self.handlers.append(handler)
        self.listened.set()
        return handler

    async def unlisten(self, handler: Callable[..., None]) -> None:
        self.handlers.remove(handler)

    def ring(self) -> None:
        for handler in self.handlers:
            handler(b"admit.workload.admitted.ns.w", b"", b"{}", b"")


def newest(sequence: int, end: int) -> EventsReply:
    """The answer of a log with the newest message ``end``, of which that at ``sequence`` is the
    newest that was asked for."""
    fact = LogEntry(sequence=sequence, time=NOON, subject="", data=msgspec.Raw(b"{}"))
    return EventsReply(entries=(fact,), after=end, applied=("newest_first",))


def test_new_facts_cost_one_question_and_nothing_between_two_steps() -> None:
    bell = Bell()
    nothing = EventsReply(after=9, applied=("newest_first",))
    link: Any = Log(newest(7, 9), nothing, newest(40, 41))
    link.bus = SimpleNamespace(nc=bell)

    async def read() -> None:
        sequences = newest_sequences(link, "ns", after=5)
        assert await anext(sequences) == 7
        assert not bell.handlers
        bell.listened.clear()
        step = asyncio.ensure_future(anext(sequences))
        await bell.listened.wait()
        bell.ring()
        assert await step == 40
        assert not bell.handlers
        await sequences.aclose()

    asyncio.run(read())
    assert [(query.after, query.limit) for query in link.asked] == [(5, 1), (9, 1), (9, 1)]
    assert all(query.newest_first for query in link.asked)


def test_a_fact_stored_after_the_first_question_of_a_step_is_soon_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # It was published before the subscription, so no notification comes.
    monkeypatch.setattr(news, "AGAIN_SECONDS", 3600.0)
    nothing = EventsReply(after=9, applied=("newest_first",))
    link: Any = Log(newest(7, 9), nothing, newest(10, 10))
    link.bus = SimpleNamespace(nc=Bell())

    async def read() -> None:
        sequences = newest_sequences(link, "ns", after=5)
        assert await anext(sequences) == 7
        assert await asyncio.wait_for(anext(sequences), 30) == 10
        await sequences.aclose()

    asyncio.run(read())
