"""How wide the columns of a table are where it has to fit a terminal: what is cut, and how far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

NAMES: Final = frozenset({"NAME", "NAMESPACE", "WORKLOAD"})
"""Columns that are cut last: people copy what is in them."""

ELLIPSIS: Final = "…"
TITLE_MIN: Final = 4
TEXT_MIN: Final = 8
NAME_MIN: Final = 14
GAPS: Final = (3, 2, 1)
"""Spaces between columns: the first that lets the table fit uncut, else the narrowest but one."""


def fitted(
    titles: Sequence[str], rows: Sequence[Sequence[str]], room: int
) -> tuple[list[int], int]:
    """Width of each column and the spaces between them, so that a line has at most room characters.

    First titles that are wider than what stands below them give way, then the widest texts, then
    names. Only where even that is too little does a line go beyond room.
    """
    contents = [max((len(row[at]) for row in rows), default=0) for at in range(len(titles))]
    widths = [max(len(title), have) for title, have in zip(titles, contents, strict=True)]
    for gap in GAPS[:2]:
        if sum(widths) + gap * (len(widths) - 1) <= room:
            return widths, gap
    gap = GAPS[1]
    left = room - gap * (len(widths) - 1)
    names = [at for at, title in enumerate(titles) if title in NAMES]
    texts = [at for at in range(len(titles)) if at not in names]
    everywhere = range(len(titles))
    shrink(widths, everywhere, [max(TITLE_MIN, have) for have in contents], left)
    shrink(widths, texts, [TEXT_MIN] * len(widths), left)
    shrink(widths, names, [NAME_MIN] * len(widths), left)
    shrink(widths, texts, [TITLE_MIN] * len(widths), left)
    if sum(widths) > left:
        gap = GAPS[-1]
        left = room - gap * (len(widths) - 1)
        shrink(widths, everywhere, [TITLE_MIN] * len(widths), left)
    return widths, gap


def shrink(widths: list[int], among: Sequence[int], least: Sequence[int], total: int) -> None:
    """Makes the widest of the columns narrower, in place, until all have total or each its least.

    The columns end up as alike as they can, so that a short one keeps what it has.
    """
    while sum(widths) > total:
        at = max((at for at in among if widths[at] > least[at]), key=widths.__getitem__, default=-1)
        if at < 0:
            return
        widths[at] -= 1


def cut(text: str, width: int) -> str:
    """text in at most width characters, with an ellipsis where some are missing."""
    return text if len(text) <= width else text[: width - 1] + ELLIPSIS
