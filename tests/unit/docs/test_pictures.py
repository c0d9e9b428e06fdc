"""The pictures of the web page in the docs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tools.pictures import BYTES_MAX, PICTURES

ROOT = Path(__file__).parents[3]
IMAGES = ROOT / "docs" / "images"
PAGE = (ROOT / "docs" / "page.md").read_text()


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_small_and_is_shown_with_words_instead(name: str) -> None:
    assert (IMAGES / f"{name}.png").stat().st_size <= BYTES_MAX
    shown = re.search(rf"!\[([^]]*)\]\(images/{name}\.png\)", PAGE)
    assert shown is not None and len(shown[1].split()) > 9


def test_the_docs_have_no_picture_that_the_tool_does_not_make() -> None:
    assert {path.name for path in IMAGES.iterdir()} == {f"{name}.png" for name in PICTURES}
