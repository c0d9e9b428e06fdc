"""Answers wait for a log that refuses them now."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence

import pytest

from admittance.runtime.bus.bus import Outgoing
from admittance.runtime.errors import BusRefused, BusUnavailable, refusal
from admittance.sdk.outbox import Outbox
from support.servers import within


class Log:
    """A log with prepared outcomes; afterwards it accepts everything."""

    def __init__(self, *answers: list[int | BusRefused] | BusUnavailable) -> None:
        self.answers = list(answers)
        self.asked: list[list[str]] = []

    async def publish_all(self, messages: Sequence[Outgoing]) -> list[int | BusRefused]:
        self.asked.append([message.subject for message in messages])
        answer = self.answers.pop(0) if self.answers else [1] * len(messages)
        if isinstance(answer, BusUnavailable):
            raise answer
        return answer


async def test_an_answer_is_published_again_until_the_log_accepts_it() -> None:
    log = Log(
        [1, refusal(10008, "not now"), refusal(10077, "full")],
        BusUnavailable("no answer"),
        [refusal(10005, "no peers")],
    )
    outbox = Outbox(log)  # type: ignore[arg-type]
    first, second, third = (outbox.put(Outgoing(name, b"")) for name in ("a", "b", "c"))
    running = asyncio.create_task(outbox.run())
    await within(first)
    await within(second)
    with pytest.raises(BusRefused, match="full"):
        await within(third)
    await within(outbox.emptied())
    assert log.asked == [["a", "b", "c"], ["b"], ["b"], ["b"]]
    running.cancel()


async def test_asyncio_reports_no_error_when_a_cancelled_put_is_refused() -> None:
    reported: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reported.append(context["message"]))
    outbox = Outbox(Log([refusal(10077, "full")]))  # type: ignore[arg-type]
    waiter = asyncio.shield(outbox.put(Outgoing("a", b"")))
    waiter.cancel()
    running = asyncio.create_task(outbox.run())
    await within(outbox.emptied())
    running.cancel()
    await asyncio.wait([running])
    del running
    gc.collect()
    assert reported == []
