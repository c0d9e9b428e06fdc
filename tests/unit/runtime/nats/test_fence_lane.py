"""Messages of one fence go batch after batch."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from admittance.runtime.errors import BusUnavailable
from admittance.runtime.nats.jetstream import FenceLane, Outcomes, Outgoing
from support.servers import within


def message(name: str) -> Outgoing:
    return Outgoing(name, b"")


class Stream:
    """Notes the batches; takes the next batch when `free` is set."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.free = asyncio.Event()
        self.ended = 0
        self.error: Exception | None = None

    async def send(self, messages: Sequence[Outgoing]) -> Outcomes:
        self.batches.append([message.subject for message in messages])
        await self.free.wait()
        error, self.error = self.error, None
        if error is not None:
            raise error
        return [len(self.batches)] * len(messages)

    def end(self) -> None:
        self.ended += 1


async def test_messages_put_during_a_batch_go_together_in_the_next_one() -> None:
    stream = Stream()
    lane = FenceLane(stream.send, stream.end, most=10)
    first = asyncio.create_task(lane.put([message("a")]))
    while not stream.batches:  # noqa: ASYNC110  (the lane's task begins)
        await asyncio.sleep(0)
    more = [asyncio.create_task(lane.put([message(name)])) for name in "bcd"]
    await asyncio.sleep(0)
    stream.free.set()
    assert await within(first) == [1]
    assert await within(asyncio.gather(*more)) == [[2], [2], [2]]
    assert stream.batches == [["a"], ["b", "c", "d"]]
    assert stream.ended == 1


async def test_a_batch_has_at_most_the_allowed_number_of_messages() -> None:
    stream = Stream()
    stream.free.set()
    lane = FenceLane(stream.send, stream.end, most=2)
    assert await within(lane.put([message(name) for name in "abcde"])) == [1, 1, 2, 2, 3]


async def test_a_failed_batch_fails_its_messages_and_not_the_next_ones() -> None:
    stream = Stream()
    stream.error = BusUnavailable("gone")
    lane = FenceLane(stream.send, stream.end, most=1)
    first, two = (asyncio.create_task(lane.put([message(name)])) for name in "ab")
    await asyncio.sleep(0)
    stream.free.set()
    with pytest.raises(BusUnavailable, match="gone"):
        await within(first)
    assert await within(two) == [2]
