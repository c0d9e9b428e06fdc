"""Every `admit …` command that a page quotes exists, with its options."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.exceptions import ClickException, Exit, NoArgsIsHelpError

from admittance.cli.commands.program import program
from admittance.client.errors import BadInput

ROOT = Path(__file__).resolve().parents[3]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *(page for page in sorted((ROOT / "docs").rglob("*.md")) if page.parent.name != "spec"),
    *sorted((ROOT / "deploy").rglob("*.md")),
]
BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`(admit [^`]+)`")
LINE = re.compile(
    r"^\s*(?:\$ )?(?:[A-Z_]+=\S+ )*(?:docker compose run --rm )?(admit [^#\n]*?)\s*(?:#.*)?$"
)
PLACEHOLDERS = {"SEQ": "1", "N": "1", "S": "1", "F": "1", "…": None, "...": None, "&&": None}
END = re.compile(r"^[|&;<>]|^2>|\)$")
"""A word that ends the command in a line of a shell."""


def quoted(page: Path) -> Iterator[str]:
    """The commands on the page, in blocks of a shell and in the text."""
    text = page.read_text()
    for language, block in BLOCK.findall(text):
        if language in ("sh", "bash", "console"):
            for line in block.replace("\\\n", " ").splitlines():
                if match := LINE.match(line):
                    yield match[1]
    for match in INLINE.finditer(BLOCK.sub("", text)):
        yield " ".join(match[1].split())


def words_of(command: str) -> list[str]:
    """The words of a command after ``admit``; of alternatives the first one."""
    words: list[str] = []
    for word in shlex.split(command.replace("[", "").replace("]", ""))[1:]:
        if END.search(word):
            break
        first = word.split("|")[0]
        if (shown := PLACEHOLDERS.get(first, first)) is not None:
            words.append(shown)
    return words


def mistake(words: list[str]) -> str:
    """Why the command line cannot be parsed; empty if it can, or if arguments are left out."""
    if not words or words[0] in ("COMMAND", "--help", "--version"):
        return ""
    command: Any = program()
    context, left = None, words
    try:
        while True:
            context = command.make_context("admit", list(left), parent=context)
            if not hasattr(command, "resolve_command"):
                return ""
            left = [*context._protected_args, *context.args]
            if not left:
                return ""
            _, command, left = command.resolve_command(context, left)
            if command is None:
                return "no such command"
    except (Exit, NoArgsIsHelpError):
        return ""  # --help
    except (ClickException, BadInput) as error:
        left_out = ("Missing", "requires an argument")
        return "" if any(words in str(error) for words in left_out) else str(error)


def test_commands_quoted_on_pages_can_be_parsed() -> None:
    wrong = {}
    for name, command in [(page.name, command) for page in PAGES for command in quoted(page)]:
        try:
            problem = mistake(words_of(command))
        except ValueError as error:
            problem = str(error)
        if problem:
            wrong[f"{name}: {command}"] = problem
    assert wrong == {}


@pytest.mark.parametrize(
    "command", ["admit frobnicate", "admit get wl --frob", "admit auth nonsense", "admit doctor -x"]
)
def test_commands_that_do_not_exist_are_found(command: str) -> None:
    assert mistake(words_of(command))
