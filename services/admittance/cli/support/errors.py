"""How a command fails: one line on standard error, and the exit status that goes with it.

``CliError`` ─┬─ ``BadInput`` (2): what was typed or written in a file is wrong
              └─ ``AnswerIsNo`` (1): not found, refused, failed, nobody there
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

INTERRUPTED: Final = 130
"""Exit status after Ctrl-C, as shells give it."""


class CliError(Exception):
    """Ends a command. ``lines`` go to standard error, each one a whole sentence."""

    status = 1

    def __init__(self, *lines: str) -> None:
        super().__init__("; ".join(lines))
        self.lines = tuple(one_line(line) for line in lines)


class BadInput(CliError):
    """What was typed, or what a file says, is wrong."""

    status = 2


class AnswerIsNo(CliError):
    """The question was understood, and the answer is no."""

    status = 1


def one_line(text: str) -> str:
    """text without line breaks, so that one error stays one line for whoever greps."""
    return " ".join(text.split())


def lines_of(error: BaseException) -> Iterable[str]:
    """What standard error says about any exception of ours."""
    if isinstance(error, CliError):
        return error.lines
    return (one_line(str(error)) or type(error).__name__,)
