"""Says that there are new facts, without reading them all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, Final

from admittance.client.requests.link import Link
from admittance.client.requests.workloads.facts import newest_facts
from admittance.events.names import token
from admittance.events.subjects import USER_FACTS
from admittance.runtime.tasks import set_within

GATHER_SECONDS: Final = 0.05
"""Seconds within which facts are gathered for one request, because facts come in bursts, and reach
subscribers before they are on the log."""
AGAIN_SECONDS: Final = 5.0
"""Seconds between two readings of the log without a notification, in case a broken connection lost
one."""
SOON_SECONDS: Final = 0.5
"""The same while a published fact may not be on the log yet."""


async def notify_of_facts(
    link: Link, namespace: str | None, workload: str | None, news: asyncio.Event
) -> list[Any]:
    """Sets ``news`` whenever a fact of the workload is published; None: of all workloads, or
    namespaces. The fact is then read from the log by its sequence, so that no fact is lost or shown
    twice. Returns the subscriptions."""
    where = "*" if namespace is None else token(namespace)
    name = "*" if workload is None else token(workload)

    def on_message(_subject: bytes, _reply: bytes, _data: bytes, _headers: bytes) -> None:
        news.set()

    return [
        await link.bus.nc.listen(subject, on_message)
        for subject in (
            f"admit.workload.*.{where}.{name}",
            f"admit.check.*.*.{where}.{name}",
            f"admit.provisioning.*.*.{where}.{name}",
            f"{USER_FACTS}*.*.{where}.{name}",
        )
    ]


async def newest_sequences(link: Link, namespace: str | None, *, after: int) -> AsyncGenerator[int]:
    """Yields the sequence of the newest fact, first the one at the beginning (0: there is none),
    then each time that there are newer ones: one request, however many facts there are.

    ``namespace``: None is all namespaces. ``after``: only later facts are looked for. Between two
    steps nothing is subscribed to, so that facts cost nothing until the next step.
    """
    newest, begun, news = after, False, asyncio.Event()
    while True:
        news.clear()
        subscriptions = await notify_of_facts(link, namespace, None, news)
        try:
            # A fact that was published before the subscription may come to the log after the read.
            found, may_come = newest, True
            while True:
                reply = await newest_facts(link, namespace, None, after=after, limit=1)
                after = max(after, reply.after)
                found = max([found, *(entry.sequence for entry in reply.entries)])
                if found > newest or not begun:
                    break
                may_come = await set_within(news, SOON_SECONDS if may_come else AGAIN_SECONDS)
                await asyncio.sleep(GATHER_SECONDS)
                news.clear()
        finally:
            for subscription in subscriptions:
                await link.bus.nc.unlisten(subscription)
        newest, begun = found, True
        yield newest
