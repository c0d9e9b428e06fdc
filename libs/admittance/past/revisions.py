"""Reads the history of the bucket, and keeps the light index of it in a folder.

The folder may be deleted at any time: blocks that are missing are made again from the history."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Final, NamedTuple

from admittance.events import subjects
from admittance.past.index import BadBlock, Block, Growing, packed, unpacked
from admittance.past.rows import Row, RowMaker
from admittance.runtime.bus.bucket import is_gone
from admittance.runtime.bus.bucket_history import HistoryState, read_state, revision_of
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.history import (
    StoredMessage,
    batched_direct_get,
    place_of,
    read_messages,
)
from admittance.runtime.bus.outside_reads import read_directly
from admittance.scheduling.state.config import Config

PAGE: Final = 5_000
PAGE_BYTES: Final = 8 << 20
AT_ONCE: Final = 50
"""How many values are read at the same time."""
PREFIX: Final = f"$KV.{subjects.BUCKET}."
SUFFIX: Final = ".block"


class NoHistory(Exception):
    """The history has no revision of that moment; the text says why."""


class PastState(NamedTuple):
    """The rows at a revision. ``lacks``: how many revisions shortly before it are missing.
    ``values``: the whole values of a state that was made from the log; None: they are in the
    history. ``finished``: keys of workloads that had finished, and of which nothing else is
    known."""

    rows: Mapping[str, Row]
    lacks: int
    values: Mapping[str, bytes] | None = None
    finished: Set[str] = frozenset()


class Revisions:
    """The index of the history of one bucket."""

    def __init__(self, bus: Bus, folder: Path, config: Config) -> None:
        self._bus = bus
        self._folder = folder
        self._maker = RowMaker(config)
        self._growing: Growing | None = None
        self._sequence = 0
        self._history = ""
        self._blocks: list[tuple[int, int, Path]] = []
        """Begin, end and file of the full blocks, by revision."""
        self._last: Block | None = None

    async def newest(self) -> int:
        """Reads what is new, and returns the newest revision. Raises NoHistory, BusRefused and
        BusUnavailable."""
        state = await read_state(self._bus)
        if state is None:
            raise NoHistory("the server keeps no history of the bucket")
        if state.begins is None:
            raise NoHistory("the history of the bucket has not begun yet")
        history = f"{state.bucket}/{state.begins}"
        if self._growing is None or history != self._history:
            await self._open(state, history)
        growing = self._growing
        assert growing is not None
        while self._sequence < state.last:
            page = await self._next_page()
            if not page:
                break
            self._add(growing, page)
            self._sequence = page[-1].sequence
        return growing.end

    def _add(self, growing: Growing, page: Sequence[StoredMessage]) -> None:
        begin = growing.begin
        for block in growing.add([self._row(message) for message in page]):
            self._keep(block)
        if growing.begin != begin:
            self._last = None

    def _row(self, message: StoredMessage) -> Row:
        value = None if is_gone(message.headers) else message.data
        return self._maker.row(
            message.subject[len(PREFIX) :],
            value,
            revision_of(message.headers),
            message.sequence,
            message.time,
        )

    def _keep(self, block: Block) -> None:
        path = self._folder / f"{block.begin}-{block.end}{SUFFIX}"
        new = path.with_suffix(".new")
        new.write_bytes(packed(block))
        new.replace(path)
        self._blocks.append((block.begin, block.end, path))

    async def _open(self, state: HistoryState, history: str) -> None:
        """Continues after the stored blocks of this history, or begins the index."""
        self._history, self._last = history, None
        self._blocks = []
        end = -1
        last: Block | None = None
        for begin, until, path in sorted(_files(self._folder)):
            if end in (-1, begin) and (block := self._read(path)) is not None:
                self._blocks.append((begin, until, path))
                end, last = until, block
            else:
                path.unlink(missing_ok=True)
        if last is not None and last.rows[-1].sequence + 1 >= state.first:
            base = last.state_at(last.end)
            self._growing = Growing(history, last.end, base.values())
            self._sequence = last.rows[-1].sequence
            return
        for _, _, path in self._blocks:
            path.unlink(missing_ok=True)
        self._blocks = []
        await self._begin(state, history)

    async def _begin(self, state: HistoryState, history: str) -> None:
        first = await read_messages(self._bus, [">"], limit=1, stream=subjects.HISTORY)
        begin = revision_of(first[0].headers) - 1 if first else state.reached
        if state.first <= 1 and state.begins is not None:
            # Until the history had caught up, it has only the newest revision of each key.
            self._growing, self._sequence = Growing(history, 0, ()), 0
            await self._read_first(state.begins)
            return
        # What is older than the history and has not changed since is in the bucket.
        old = [
            self._maker.row(entry.key, entry.value, entry.revision, 0, first[0].time)
            for entry in await read_directly(self._bus, ">")
            if entry.revision <= begin
        ]
        self._growing, self._sequence = Growing(history, begin, old), state.first - 1

    async def _next_page(self) -> list[StoredMessage]:
        return await read_messages(
            self._bus,
            [">"],
            after=self._sequence,
            limit=PAGE,
            bytes_max=PAGE_BYTES,
            stream=subjects.HISTORY,
        )

    async def _read_first(self, begins: int) -> None:
        """Reads the revisions up to the one at which the history had caught up: they are the state
        at its begin."""
        state: dict[str, Row] = {}
        while begins:
            page = await self._next_page()
            known = [message for message in page if revision_of(message.headers) <= begins]
            for message in known:
                row = self._row(message)
                state[row.key] = row
                self._sequence = message.sequence
            if not page or len(known) < len(page):
                break
        present = [row for row in state.values() if row.present]
        self._growing = Growing(self._history, begins, present)

    def _read(self, path: Path) -> Block | None:
        try:
            return unpacked(path.read_bytes(), self._history)
        except (OSError, BadBlock):
            return None

    def has(self, revision: int) -> bool:
        """Whether the index, which `newest` has made, reaches back to the revision."""
        begins = [begin for begin, _, _ in self._blocks]
        if self._growing is not None:
            begins.append(self._growing.begin)
        return revision >= min(begins, default=revision)

    async def at(self, revision: int) -> PastState:
        """The rows at the revision, which `newest` has reached. Raises NoHistory."""
        growing = self._growing
        assert growing is not None
        if revision >= growing.begin:
            block = growing.block()
        else:
            block = await self._block(revision)
        return PastState(block.state_at(revision), block.lacking(revision))

    async def _block(self, revision: int) -> Block:
        if self._last is not None and self._last.begin <= revision <= self._last.end:
            return self._last
        for begin, end, path in self._blocks:
            if begin <= revision <= end:
                block = await asyncio.to_thread(self._read, path)
                if block is None:
                    self._growing = None  # The folder was changed: the next question reads it anew.
                    raise NoHistory("the index was deleted, and is made again: ask again")
                self._last = block
                return block
        raise NoHistory("the history of the bucket begins later")

    async def values(self, state: PastState, rows: Sequence[Row]) -> dict[str, bytes]:
        """The whole values of rows of the state, by key. What has left the history is left out,
        unless the bucket still has the revision."""
        if state.values is not None:
            return {row.key: state.values[row.key] for row in rows}
        found: dict[str, bytes] = {}
        for start in range(0, len(rows), AT_ONCE):
            part = rows[start : start + AT_ONCE]
            for row, value in zip(part, await asyncio.gather(*map(self._value, part)), strict=True):
                if value is not None:
                    found[row.key] = value
        return found

    async def _value(self, row: Row) -> bytes | None:
        if row.value is not None:
            return row.value
        if row.sequence:
            request = {"seq": row.sequence, "batch": 1}
            for data, headers in await batched_direct_get(self._bus, subjects.HISTORY, request):
                if place_of(headers) == (row.sequence, f"{PREFIX}{row.key}"):
                    return data
        present = await read_directly(self._bus, row.key)
        same = [entry.value for entry in present if entry.revision == row.revision]
        return same[0] if same else None


def _files(folder: Path) -> Iterator[tuple[int, int, Path]]:
    for path in folder.glob(f"*{SUFFIX}"):
        begin, _, end = path.stem.partition("-")
        if begin.isdecimal() and end.isdecimal():
            yield int(begin), int(end), path
