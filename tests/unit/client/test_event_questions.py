"""Questions about facts of the log, and answers of a service that cannot narrow them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from admittance.client.errors import BadInput, RequestFailed
from admittance.client.requests.workloads.facts import narrowing, newest_facts, newest_pages
from admittance.client.requests.workloads.history import facts_about
from admittance.events.fact_types import FACT_TYPES
from admittance.events.requests.history import Events, EventsReply
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
