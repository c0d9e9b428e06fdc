"""What a runner reads besides facts: the bucket's word on admissions, and the log's last ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from admittance.events.codec import Undecodable, decode
from admittance.events.facts import Admitted
from admittance.events.names import plain, token
from admittance.events.reading import SetAside, Unreadable
from admittance.events.subjects import BUCKET, STREAM, workload_key
from admittance.runner.standing import View, standing, view
from admittance.runtime.bucket import Entry, get, read_all
from admittance.runtime.bus import Bus
from admittance.runtime.history import PAGE, Past, last, past
from admittance.runtime.set_aside import tell
from admittance.runtime.tracing import extract
from admittance.workload.reading import read

AT_ONCE: Final = 100
"""Questions to the server in flight."""


class World:
    """Every call raises Unavailable when the bus does not answer."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus

    async def view(self, namespace: str, name: str) -> View | None:
        """The newest admission of a workload; None: there is no such workload."""
        entry = await get(self.bus, workload_key(namespace, name))
        if entry is None or entry.value is None:
            return None
        return _view(entry)

    async def standings(self, admissions: Sequence[tuple[str, str, int]]) -> list[View]:
        """How each admission (namespace, name, revision) stands now."""
        views: list[View] = []
        for start in range(0, len(admissions), AT_ONCE):
            part = admissions[start : start + AT_ONCE]
            found = await asyncio.gather(*(self.view(ns, name) for ns, name, _ in part))
            views += [
                standing(seen, revision) for seen, (_, _, revision) in zip(found, part, strict=True)
            ]
        return views

    async def all_views(self) -> dict[tuple[str, str], View]:
        """The newest admission of every workload that has or had one, by namespace and name."""
        views = {}
        for entry in await read_all(self.bus, "workload.>"):
            # Most of a long queue was never admitted: not worth a decoding.
            if entry.value is None or b'"Admitted"' not in entry.value:
                continue
            seen = _view(entry)
            if seen is not None and seen.revision:
                _, namespace, name = entry.key.split(".")
                views[plain(namespace), plain(name)] = seen
        return views

    async def last_admitted(
        self, namespace: str, name: str, fits: Callable[[int], bool] = lambda _: True
    ) -> tuple[Admitted, str] | None:
        """The newest ``admitted`` of a workload that is still on the log and whose revision fits,
        and its trace. What cannot be read there, or is of another revision, hides none before it:
        the job would never start."""
        subject = f"admit.workload.admitted.{token(namespace)}.{token(name)}"
        newest = await last(self.bus, subject)
        if newest is None:
            return None
        found = _admitted(newest, fits)
        if found is not None:
            return found
        after = 0
        while True:
            page = await past(self.bus, [subject], after=after)
            for one in page:
                found = _admitted(one, fits) or found
            if len(page) < PAGE:
                return found
            after = page[-1].sequence

    async def end_of_log(self) -> int:
        """The sequence of the newest message on the log."""
        info = await self.bus.api(f"STREAM.INFO.{STREAM}")
        return int(info["state"]["last_seq"])


def _admitted(said: Past, fits: Callable[[int], bool]) -> tuple[Admitted, str] | None:
    try:
        fact = decode(said.subject, said.data)
    except Undecodable:
        return None
    if not isinstance(fact, Admitted) or not fits(fact.revision):
        return None
    return fact, extract(said.headers)


def _view(entry: Entry) -> View | None:
    try:
        return view(read(entry.key, entry.value or b""), entry.revision)
    except Unreadable as error:
        # The workload-controller counts it as none, too.
        tell(SetAside(f"KV_{BUCKET}", entry.key, entry.revision, str(error)))
        return None
