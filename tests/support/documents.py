"""The console and Python blocks and the marked tables of pages, and whether a program printed what
a block shows."""

from __future__ import annotations

import re
from difflib import unified_diff
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = (
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *(page for page in sorted((ROOT / "docs").rglob("*.md")) if page.parent.name != "spec"),
    *sorted((ROOT / "deploy").rglob("*.md")),
)
_BLOCK: Final = re.compile(
    r"(?:^ *<!-- compared: (?P<test>\S+) -->\n)?^ *```console\n(?P<text>.*?)^ *```$",
    re.MULTILINE | re.DOTALL,
)
_PYTHON: Final = re.compile(
    r"^<!-- compared: (?P<test>\S+) -->\n```python\n(?P<text>.*?)^```$"
    r"(?:\n\n```text\n(?P<shown>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)
_CHANGING: Final = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ|\b\d\d:\d\d:\d\dZ"), "TIME"),
    (re.compile(r"\b\d+(?:\.\d+)?(?:ms|s|m|h|d)(?:\d+(?:ms|s|m|h))*\b"), "SPAN"),
    (re.compile(r"\b\d+(?:\.\d+)? (?:ms|s)\b"), "SPAN"),
    (re.compile(r"\b127\.0\.0\.1:\d+"), "ADDRESS"),
    (re.compile(r" +"), " "),
)
"""Matches what differs between two runs: times, durations, ports, and the column widths that
follow."""


class Call(NamedTuple):
    """A command of a block, and what the block shows as its output."""

    command: str
    shown: str


class Block(NamedTuple):
    """A console block. ``test``: the file of the test that compares it; empty if none is named."""

    page: Path
    line: int
    test: str
    text: str

    @property
    def calls(self) -> list[Call]:
        """The commands of the block, in order; one without a command if it shows output only."""
        if not self.text.startswith("$ "):
            return [Call("", self.text)]
        commands = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", self.text, re.MULTILINE)
        return [Call(command, shown) for command, shown in commands]


def console_blocks(page: Path) -> list[Block]:
    """The console blocks of a page, in order."""
    text = page.read_text()
    return [
        Block(page, text.count("\n", 0, block.start("text")), block["test"] or "", block["text"])
        for block in _BLOCK.finditer(text)
    ]


class Program(NamedTuple):
    """A Python block that a test runs. ``shown``: what the page shows as its output."""

    page: Path
    line: int
    test: str
    text: str
    shown: str


def python_blocks(page: Path) -> list[Program]:
    """The Python blocks of a page that tests run, in order."""
    text = page.read_text()
    return [
        Program(
            page,
            text.count("\n", 0, block.start("text")),
            block["test"],
            block["text"],
            block["shown"] or "",
        )
        for block in _PYTHON.finditer(text)
    ]


def differences(shown: str, printed: str, *, gaps: bool = False) -> str:
    """How the output of a program differs from what a page shows; empty if it does not.

    ``…`` in ``shown`` stands for any text of a line, and on a line of its own for any lines. Times,
    spans of time, ports and the widths of columns do not count. ``gaps``: further lines may stand
    between those of the page, as other events may happen between those of a story."""
    shown, printed = _settled(shown), _settled(printed)
    parts = []
    for line in shown.splitlines():
        if line == "…":
            parts.append(r"(?:.*\n)*?")
        else:
            if gaps:
                parts.append(r"(?:.*\n)*?")
            parts.append(".*".join(re.escape(part) for part in line.split("…")) + r"\n")
    if re.fullmatch("".join(parts), printed):
        return ""
    lines = unified_diff(shown.splitlines(), printed.splitlines(), "page", "program", lineterm="")
    return "\n".join(lines)


def _settled(text: str) -> str:
    for changing, name in _CHANGING:
        text = changing.sub(name, text)
    return "".join(f"{line.strip()}\n" for line in text.splitlines() if line.strip())


def marked_table(page: Path, mark: str) -> list[list[str]]:
    """The rows of the table under the comment ``<!-- mark: … -->`` of a page, the head first."""
    text = page.read_text().partition(f"<!-- {mark}:")[2].partition("-->")[2]
    rows = []
    for line in text.strip().splitlines():
        if not line.startswith("|"):
            break
        if not set(line) <= set("|- "):
            rows.append([cell.strip() for cell in line.strip("|").split("|")])
    assert len(rows) > 1, f"{page.name} has no table {mark}"
    return rows
