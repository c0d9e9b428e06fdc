"""Blocks of the index: what the history lacks, and bytes that are no block."""

from __future__ import annotations

import zlib

import pytest

from admittance.past.index import BLOCK, HORIZON, BadBlock, Block, Growing, packed, unpacked
from admittance.past.rows import Row


def grown(*revisions: int) -> Growing:
    growing = Growing("h", 0, ())
    assert not list(growing.add([Row("k", revision, revision, True) for revision in revisions]))
    return growing


def test_a_state_after_missing_revisions_says_so() -> None:
    block = grown(1, 2, 5, 6).block()
    assert block.lacks == ((3, 4),)
    assert [block.lacking(revision) for revision in (1, 2, 3, 6)] == [0, 0, 1, 2]
    assert [block.lacking(4 + revision) for revision in (HORIZON - 1, HORIZON)] == [2, 0]


def test_revisions_that_are_missing_at_the_end_of_a_block_count_in_the_next_one() -> None:
    growing = Growing("h", 0, ())
    rows = [Row("k", revision, revision, True) for revision in range(1, BLOCK)]
    early = [row for row in rows if row.revision != 5]
    [*blocks] = growing.add([*early, Row("k", BLOCK + 2, 1), Row("k", BLOCK + 3, 1)])
    assert [block.lacks for block in blocks] == [((5, 5), (BLOCK, BLOCK + 1))]
    assert growing.block().lacks == ((BLOCK, BLOCK + 1),)


def test_a_packed_block_is_read_again() -> None:
    block = grown(1, 2).block()
    assert unpacked(packed(block), "h") == block


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(packed(grown(1).block())[:-5], id="cut"),
        pytest.param(zlib.compress(b"\x00"), id="no block"),
        pytest.param(packed(Block(0, "h", 0, (), ())), id="another format"),
        pytest.param(packed(Block(1, "other", 0, (), ())), id="another history"),
    ],
)
def test_other_bytes_are_no_block(data: bytes) -> None:
    with pytest.raises(BadBlock):
        unpacked(data, "h")
