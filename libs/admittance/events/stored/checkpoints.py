"""The journal of the workload-controller and its checkpoints, as they are stored."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from enum import IntEnum

import msgspec

from admittance.events.system import SystemMessage


class Adopted(
    msgspec.Struct, frozen=True, kw_only=True, rename={"key": "k", "revision": "r", "fact": "f"}
):
    """A write by an earlier leader that did not record it, found by a later leader. At ``revision``
    the workload contains the facts about the workload up to ``fact``. ``key``: ``<ns>.<name>``, as
    in the bucket.
    """

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
    """One commit: the facts up to ``through`` were folded at the time ``now``, and the resulting
    workloads ``keys`` (``<ns>.<name>``) were written, in this order.

    ``runs``: the revisions of the writes, as pairs of a first revision and a count. ``unsure``
    true: facts up to ``through`` may concern workloads that ``keys`` does not list; these workloads
    were not written, and are folded again in the next commit. ``adopted``: writes of another leader
    that were found in place of this leader's own.
    """

    through: int
    now: datetime
    keys: tuple[str, ...] = ()
    runs: tuple[int, ...] = ()
    adopted: tuple[Adopted, ...] = ()
    unsure: bool = False

    def written(self) -> Iterator[tuple[str, int]]:
        """Each written key with the revision of the write."""
        revisions = (
            revision
            for first, count in zip(self.runs[::2], self.runs[1::2], strict=True)
            for revision in range(first, first + count)
        )
        return zip(self.keys, revisions, strict=True)


def runs_of(revisions: list[int]) -> tuple[int, ...]:
    """Revisions as pairs: the first revision of a run of consecutive ones, and the length of the
    run.
    """
    runs: list[int] = []
    for revision in revisions:
        if runs and revision == runs[-2] + runs[-1]:
            runs[-1] += 1
        else:
            runs += (revision, 1)
    return tuple(runs)


class Commits(SystemMessage, frozen=True, kw_only=True):
    """``admit.checkpoint.commits``: what one leader committed, in order.

    ``floor``: decisions made before this revision count as made from older manifests. ``newest``:
    the newest recorded revision of a workload. ``begins``: no commit came before the first of these
    commits. ``gap``: an earlier commit could not be recorded.
    """

    epoch: int
    floor: int = 0
    newest: int = 0
    commits: tuple[Committed, ...] = ()
    begins: bool = False
    gap: bool = False


class CheckpointMade(SystemMessage, frozen=True, kw_only=True):
    """``admit.checkpoint.made.<id>``: a checkpoint is complete; without this message it is invalid.

    The checkpoint is the content of the bucket after every fact up to ``through``, with no write
    newer than ``revision``. The ``parts`` of the checkpoint (``admit.checkpoint.part.<id>``),
    joined in order, are ``size`` bytes of zlib with the BLAKE2b ``digest`` (16 bytes, hexadecimal)
    and contain ``rows`` rows. The checkpoint includes all commits recorded on the stream up to the
    sequence ``told``.
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
    """What a row of a checkpoint contains."""

    VALUE = 0
    GONE = 1
    FINISHED = 2
    """The row is about a finished workload, and has no value."""


class CheckpointRow(msgspec.Struct, frozen=True, array_like=True):
    """One key of the bucket in a checkpoint. ``fact``: sequence of the last fact applied to the
    workload.
    """

    key: str
    revision: int
    fact: int
    kind: RowKind
    value: bytes = b""
