"""What the workload-controller writes down so that the past can be rebuilt: which facts are in
which revisions of the bucket, and now and then all of it. Subjects: ``admit.checkpoint.…``.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from enum import IntEnum

import msgspec

from admittance.events.system import Message


class Adopted(
    msgspec.Struct, frozen=True, kw_only=True, rename={"key": "k", "revision": "r", "fact": "f"}
):
    """A workload as a leader found it, written by somebody who did not tell of it: at ``revision``
    the facts about it are in up to ``fact``. ``key``: ``<ns>.<name>``, as in the bucket."""

    key: str
    revision: int
    fact: int


class Committed(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    rename={"through": "t", "now": "n", "keys": "k", "runs": "r", "adopted": "a", "unsure": "u"},
):
    """One commit: the facts up to ``through`` were folded at the time ``now``, and what they made
    of the workloads ``keys`` (``<ns>.<name>``) was written, in this order.

    ``runs``: the revisions, as pairs of the first one and how many follow on. ``unsure``: what is
    not listed was not written, and is folded anew with the next commit. ``adopted``: what was found
    in its place.
    """

    through: int
    now: datetime
    keys: tuple[str, ...] = ()
    runs: tuple[int, ...] = ()
    adopted: tuple[Adopted, ...] = ()
    unsure: bool = False

    def written(self) -> Iterator[tuple[str, int]]:
        """Each key with its revision."""
        revisions = (
            revision
            for first, count in zip(self.runs[::2], self.runs[1::2], strict=True)
            for revision in range(first, first + count)
        )
        return zip(self.keys, revisions, strict=True)


def runs_of(revisions: list[int]) -> tuple[int, ...]:
    """Revisions as pairs of the first one of a run and its length."""
    runs: list[int] = []
    for revision in revisions:
        if runs and revision == runs[-2] + runs[-1]:
            runs[-1] += 1
        else:
            runs += (revision, 1)
    return tuple(runs)


class Commits(Message, frozen=True, kw_only=True):
    """``admit.checkpoint.commits``: what one leader committed, in order.

    ``floor``: decisions made before this revision it takes for made from older manifests.
    ``newest``: the newest revision of a workload told of so far. ``begins``: there was nothing to
    tell of before. ``gap``: something before this could not be told.
    """

    epoch: int
    floor: int = 0
    newest: int = 0
    commits: tuple[Committed, ...] = ()
    begins: bool = False
    gap: bool = False


class CheckpointMade(Message, frozen=True, kw_only=True):
    """``admit.checkpoint.made.<id>``: a checkpoint is complete; without this word it is none.

    It holds the bucket as every fact up to ``through`` has made it, and nothing that is newer than
    ``revision``. Its ``parts`` (``admit.checkpoint.part.<id>``) one behind the other are ``size``
    bytes of zlib with the BLAKE2b ``digest`` (16 bytes, hexadecimal); in it, ``rows`` rows. What is
    told of commits up to the sequence ``told`` of the stream is in it.
    """

    id: str
    time: datetime
    through: int
    revision: int
    floor: int
    rows: int
    parts: int
    size: int
    digest: str
    told: int = 0


class RowKind(IntEnum):
    """What a row of a checkpoint tells of its key."""

    VALUE = 0
    GONE = 1
    FINISHED = 2
    """A workload that has ended; what it was is not kept."""


class Row(msgspec.Struct, frozen=True, array_like=True):
    """One key of the bucket in a checkpoint. ``fact``: the last fact that is in a workload."""

    key: str
    revision: int
    fact: int
    kind: RowKind
    value: bytes = b""
