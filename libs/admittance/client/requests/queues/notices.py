"""Changes of quota and queues, as the scheduler says them on the bus."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from admittance.client.requests.link import Link
from admittance.events.names import plain
from admittance.events.subjects import CHANGED


async def changed_domains(link: Link) -> AsyncGenerator[frozenset[str]]:
    """Yields the names of the domains that changed since the last step, at least one. The first
    step subscribes."""
    names: set[str] = set()
    news = asyncio.Event()

    def on_message(subject: bytes, _reply: bytes, _data: bytes, _headers: bytes) -> None:
        names.add(plain(subject.decode()[len(CHANGED) :]))
        news.set()

    subscription = await link.bus.nc.listen(f"{CHANGED}*", on_message)
    try:
        while True:
            await news.wait()
            news.clear()
            changed = frozenset(names)
            names.clear()
            yield changed
    finally:
        await link.bus.nc.unlisten(subscription)
