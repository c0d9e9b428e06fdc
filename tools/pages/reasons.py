"""``python -m tools.pages.reasons`` writes docs/reference/reasons.md: every reason with its
meaning, from the constants of `admittance.events.reasons`."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from admittance.events import reasons

PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "reasons.md"

HEAD: Final = """# Reasons

Made by `python -m tools.pages.reasons` from `libs/admittance/events/reasons.py`. Do not edit.

A reason is a fixed word that says why: in the conditions of a workload or a queue, in facts of the
log, in the outcome of a fact, and in refusals. Programs compare reasons; the message beside a
reason is for people and may change. Kueue's reasons have Kueue's meaning.
"""


class Reason(NamedTuple):
    """A reason. ``about``: its meaning, in one sentence."""

    constant: str
    word: str
    about: str


def sections() -> Iterator[tuple[str, list[Reason]]]:
    """The reasons of each section of the module, by the heading of the section."""
    source = inspect.getsource(reasons)
    headings = {
        number: heading[1]
        for number, line in enumerate(source.splitlines(), 1)
        if (heading := re.match(r"# (.+?)\.? -+$", line))
    }
    body = ast.parse(source).body
    listed: dict[str, list[Reason]] = {each: [] for each in headings.values()}
    for node, after in pairwise(body):
        match node, after:
            case (
                ast.AnnAssign(target=ast.Name(id=constant), value=ast.Constant(value=str(word))),
                ast.Expr(value=ast.Constant(value=str(about))),
            ):
                above = max(number for number in headings if number < node.lineno)
                listed[headings[above]].append(Reason(constant, word, " ".join(about.split())))
    yield from listed.items()


def page() -> str:
    """The text of docs/reference/reasons.md."""
    return HEAD + "".join(
        f"\n## {heading}\n\n| reason | meaning |\n| --- | --- |\n"
        + "".join(f"| `{reason.word}` | {reason.about} |\n" for reason in listed)
        for heading, listed in sections()
    )


if __name__ == "__main__":
    PAGE.write_text(page())
