"""Requests take turns, so that those of one namespace delay neither others nor other work."""

from __future__ import annotations

import asyncio
from itertools import pairwise

from admittance.events.requests.base import Reply
from admittance.runtime.nats.micro import Turns, in_turns


async def test_answers_of_namespaces_and_other_work_take_turns() -> None:
    order: list[str] = []

    async def answer(_: bytes, subject: str) -> Reply:
        order.append(subject.rpartition(".")[2])
        return Reply()

    async def work() -> None:
        while order.count("greedy") < 50:
            order.append("work")
            await asyncio.sleep(0)

    handle = in_turns({"admit.api.explain.*": answer})["admit.api.explain.*"]
    working = asyncio.create_task(work())
    asked = [
        asyncio.ensure_future(handle(b"", f"admit.api.explain.{namespace}"))
        for namespace in [*["greedy"] * 50, "quiet"]
    ]
    await asyncio.gather(working, *asked)
    answered = [turn for turn in order if turn != "work"]
    assert answered.index("quiet") <= 2
    assert not any(pair == ("greedy", "greedy") for pair in pairwise(order))


async def test_a_turn_is_free_again_after_an_error() -> None:
    turns = Turns(2, 1)
    for _ in range(3):
        try:
            async with turns.of("a"):
                raise ValueError
        except ValueError:
            pass
    async with asyncio.timeout(5), turns.of("a"), turns.of("b"):
        pass
