"""Every console block of a page is compared with what the program prints."""

from __future__ import annotations

import pytest

from support.documents import PAGES, ROOT, Block, console_blocks, differences

BLOCKS = [block for page in PAGES for block in console_blocks(page)]


@pytest.mark.parametrize(
    "block", BLOCKS, ids=lambda block: f"{block.page.relative_to(ROOT)}:{block.line}"
)
def test_a_console_block_names_the_test_that_compares_it(block: Block) -> None:
    assert block.test, "write `<!-- compared: FILE OF THE TEST -->` above the block"
    source = (ROOT / block.test).read_text()
    assert block.page.name in source, f"{block.test} does not read the page"


def test_with_gaps_other_lines_may_stand_between() -> None:
    assert differences("a\nb\n", "a\nc\nb\n", gaps=True) == ""
    assert differences("a\nb\n", "b\na\n", gaps=True) != ""


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        pytest.param("a  b\n", "a b\n", True, id="widths of columns"),
        pytest.param("waits 4s\n", "waits 1m20s\n", True, id="spans"),
        pytest.param("at 2026-11-21T11:40:41Z\n", "at 2031-01-01T00:00:00Z\n", True, id="times"),
        pytest.param("a … c\n", "a b c\n", True, id="any text"),
        pytest.param("a\n…\nd\n", "a\nb\nc\nd\n", True, id="any lines"),
        pytest.param("a\n…\n", "a\n", True, id="no lines"),
        pytest.param("4 cpu\n", "5 cpu\n", False, id="an amount"),
        pytest.param("a\nb\n", "a\n", False, id="a missing line"),
        pytest.param("a\n", "a\nb\n", False, id="a line more"),
        pytest.param("a … c\n", "a b d\n", False, id="another end"),
    ],
)
def test_output_is_compared_but_for_what_changes(shown: str, printed: str, same: bool) -> None:
    assert (differences(shown, printed) == "") is same
