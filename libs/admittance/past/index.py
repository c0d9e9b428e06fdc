"""The light index of the history: blocks of `BLOCK` revisions, each with the state at its begin.
The module is pure.

A picture of any revision needs one block: its begin, and the rows up to that revision. Blocks are
made from the history again where they are missing."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from admittance.events.reader import BROKEN
from admittance.past.rows import Row

BLOCK: Final = 20_000
HORIZON: Final = 5_000
"""A missing revision was replaced before it was copied, so that its key has a later one soon after:
gaps among so many revisions before a moment count for it, older ones do not."""
FORMAT: Final = 1
"""Changes with the meaning of rows: blocks of another format are made again."""


class BadBlock(ValueError):
    """A stored block cannot be used."""


class Block(msgspec.Struct, frozen=True, array_like=True):
    """``history``: of which bucket it is, and where its history begins. ``begin``: the newest
    revision before the block; ``base``: the rows of the keys that were there then. ``rows``: those
    of the block, by revision. ``lacks``: pairs of a first and a last revision that the history
    lacks."""

    format: int
    history: str
    begin: int
    base: tuple[Row, ...]
    rows: tuple[Row, ...]
    lacks: tuple[tuple[int, int], ...] = ()

    @property
    def end(self) -> int:
        """The newest revision of the block."""
        return self.rows[-1].revision if self.rows else self.begin

    def state_at(self, revision: int) -> dict[str, Row]:
        """The rows of the keys that were there at the revision, by key."""
        state = {row.key: row for row in self.base}
        for row in self.rows:
            if row.revision > revision:
                break
            if row.present:
                state[row.key] = row
            else:
                state.pop(row.key, None)
        return state

    def lacking(self, revision: int) -> int:
        """How many revisions shortly before this one are missing, so that some keys may have the
        value of an earlier revision."""
        return sum(
            min(last, revision) - first + 1
            for first, last in self.lacks
            if first <= revision < last + HORIZON
        )


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Block).decode


def packed(block: Block) -> bytes:
    """The block as bytes."""
    return zlib.compress(_encode(block), 1)


def unpacked(data: bytes, history: str) -> Block:
    """The block of `packed`. Raises BadBlock for other bytes, or one of another history."""
    try:
        block = _decode(zlib.decompress(data))
    except (zlib.error, *BROKEN) as error:
        raise BadBlock(f"not a block: {error}") from None
    if block.format != FORMAT or block.history != history:
        raise BadBlock("it is of another version, or of another history")
    return block


class Growing:
    """The block that grows at the end of the index. ``begin``, ``base`` and ``history``: as those
    of a `Block`."""

    def __init__(self, history: str, begin: int, base: Iterable[Row]) -> None:
        self.history = history
        self.begin = begin
        self._base = tuple(base)
        self._state = {row.key: row for row in self._base}
        self._rows: list[Row] = []
        self._lacks: list[tuple[int, int]] = []

    @property
    def end(self) -> int:
        """The newest revision that was added."""
        return self._rows[-1].revision if self._rows else self.begin

    def add(self, rows: Sequence[Row]) -> Iterator[Block]:
        """Adds rows by revision; yields each block that is full."""
        for row in rows:
            expected = self.end + 1
            if row.revision > expected:
                self._lacks.append((expected, row.revision - 1))
            self._rows.append(row)
            if row.present:
                self._state[row.key] = row
            else:
                self._state.pop(row.key, None)
            if len(self._rows) == BLOCK:
                yield self.block()
                self.begin, self._base = self.end, tuple(self._state.values())
                # What was missing last may be missing in the state at the begin of the next block.
                self._lacks = [gap for gap in self._lacks if gap[1] > self.begin - HORIZON]
                self._rows = []

    def block(self) -> Block:
        """The block as it is now."""
        lacks = tuple(self._lacks)
        return Block(FORMAT, self.history, self.begin, self._base, tuple(self._rows), lacks)

    def state(self) -> Mapping[str, Row]:
        """The rows of the keys that are there now."""
        return self._state
