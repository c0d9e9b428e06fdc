"""Checkpoints as bytes, and which of them are kept."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from admittance.control.checkpoint import (
    PART_SIZE,
    BadCheckpoint,
    Packer,
    Snapshot,
    rows,
    superfluous,
    unpack,
)
from admittance.control.manifests.objects import StoredObject
from admittance.control.workloads import VersionedWorkload
from admittance.events.stored.checkpoints import (
    CheckpointMade,
    CheckpointRow,
    Committed,
    RowKind,
    runs_of,
)

NOON = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


def written(rows: list[CheckpointRow], at_once: int = 7) -> tuple[CheckpointMade, list[bytes]]:
    """The rows as a checkpoint."""
    packer = Packer()
    parts = []
    for start in range(0, len(rows), at_once):
        parts += packer.add(rows[start : start + at_once])
    parts += packer.end()
    made = CheckpointMade(
        id="1-2",
        time=NOON,
        through=1,
        revision=2,
        floor=0,
        rows=packer.rows,
        parts=len(parts),
        size=packer.size,
        digest=packer.digest(),
    )
    return made, parts


def some_rows(count: int, size: int = 10) -> list[CheckpointRow]:
    """Rows that no packing makes small."""
    chance = random.Random(1)
    return [
        CheckpointRow(f"workload.ns.w{n}", n, 2 * n, RowKind.VALUE, chance.randbytes(size))
        for n in range(count)
    ]


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param([], id="nothing"),
        pytest.param(
            [CheckpointRow("a.b", 1, 2, RowKind.GONE), CheckpointRow("c", 0, 3, RowKind.FINISHED)],
            id="ends",
        ),
        pytest.param(some_rows(100), id="one part"),
        pytest.param(some_rows(3_000, 900), id="several parts"),
        pytest.param(some_rows(3, 900_000), id="rows that are longer than a part"),
    ],
)
def test_packed_rows_are_unpacked_unchanged(rows: list[CheckpointRow]) -> None:
    made, parts = written(rows)
    assert all(0 < len(part) <= PART_SIZE for part in parts)
    assert made.size == sum(map(len, parts))
    assert list(unpack(made, parts)) == rows


def test_only_rows_of_workloads_name_a_fact() -> None:
    taken = Snapshot(
        through=9,
        revision=9,
        floor=0,
        workloads=[("workload.ns.gone", VersionedWorkload(None, 3, 4))],
        finished=[("workload.ns.gone", 4), ("workload.ns.past", 5)],
        objects=[("flavor.a", StoredObject(None, b"{}", 6))],
        markers=[("flavor.b", 7)],
    )
    assert list(rows(taken)) == [
        CheckpointRow("flavor.a", 6, 0, RowKind.VALUE, b"{}"),
        CheckpointRow("flavor.b", 7, 0, RowKind.GONE),
        CheckpointRow("workload.ns.gone", 3, 4, RowKind.GONE),
        CheckpointRow("workload.ns.past", 0, 5, RowKind.FINISHED),
    ]


def test_a_checkpoint_with_a_part_missing_or_changed_is_refused() -> None:
    made, parts = written(some_rows(3_000, 900))
    assert len(parts) > 2
    broken = [parts[:-1], parts[1:], [*parts[1:], parts[0]], [b"?" + parts[0][1:], *parts[1:]]]
    for wrong in broken:
        with pytest.raises(BadCheckpoint):
            unpack(made, wrong)
    with pytest.raises(BadCheckpoint):
        list(unpack(replace(made, rows=made.rows + 1), parts))


@pytest.mark.parametrize(
    ("hours", "gone"),
    [
        pytest.param([20, 16, 12, 8, 4, 0], [], id="the newest ones stay"),
        pytest.param([24, 20, 16, 12, 8, 4, 0], [], id="and the oldest of its week"),
        pytest.param([28, 24, 20, 16, 12, 8, 4, 0], [24], id="one of a week is enough"),
        pytest.param(
            [24 * 60, 24 * 9, 24, 20, 16, 12, 8, 4, 0],
            [24 * 60],
            id="what is older than the log goes",
        ),
    ],
)
def test_which_checkpoints_are_not_kept(hours: list[int], gone: list[int]) -> None:
    now = datetime(2026, 3, 4, 12, 0, tzinfo=UTC)
    made = [(str(hour), now - timedelta(hours=hour)) for hour in hours]
    assert superfluous(made, now) == [str(hour) for hour in gone]


def test_at_most_14_checkpoints_are_kept_with_one_of_each_week() -> None:
    kept: list[tuple[str, datetime]] = []
    now = NOON
    for number in range(6 * 7 * 8):
        now = NOON + number * timedelta(hours=4)
        kept.append((str(number), now))
        gone = set(superfluous(kept, now))
        kept = [row for row in kept if row[0] not in gone]
        assert len(kept) <= 14
    ages = [(now - time).days // 7 for _, time in kept]
    assert {0, 1, 2, 3, 4} <= set(ages)


@pytest.mark.parametrize(
    ("revisions", "runs"),
    [
        pytest.param([], (), id="none"),
        pytest.param([7], (7, 1), id="one"),
        pytest.param([7, 8, 9, 12, 3, 4], (7, 3, 12, 1, 3, 2), id="runs of them"),
    ],
)
def test_revisions_are_encoded_as_runs(revisions: list[int], runs: tuple[int, ...]) -> None:
    assert runs_of(revisions) == runs
    keys = tuple(f"ns.w{n}" for n in range(len(revisions)))
    commit = Committed(through=1, now=NOON, keys=keys, runs=runs)
    assert list(commit.written()) == list(zip(keys, revisions, strict=True))
