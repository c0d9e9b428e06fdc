"""Errors of commands: one line on standard error, and an exit status.

``CliError`` ─┬─ ``BadInput`` (2): the command line or a file is wrong
              └─ ``AnswerIsNo`` (1): not found, refused, failed, no service answers
                 └─ ``NotAllowed``: this login lacks a right, or is refused
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

INTERRUPTED: Final = 130
"""Exit status after Ctrl-C, as shells give it."""


class CliError(Exception):
    """An error that ends a command. Each of ``lines`` goes to standard error."""

    status = 1

    def __init__(self, *lines: str) -> None:
        super().__init__("; ".join(lines))
        self.lines = tuple(one_line(line) for line in lines)


class BadInput(CliError):
    """The command line or a file that it names is wrong."""

    status = 2


class AnswerIsNo(CliError):
    """The command was valid but has failed: not found, refused, or not answered by a service."""

    status = 1


class NotAllowed(AnswerIsNo):
    """This login lacks a right, or the server refuses it."""


def one_line(text: str) -> str:
    """``text`` as one line, so that grep finds the whole error."""
    return " ".join(text.split())


def lines_of(error: BaseException) -> Iterable[str]:
    """The lines to print for any exception of Admittance."""
    if isinstance(error, CliError):
        return error.lines
    return (one_line(str(error)) or type(error).__name__,)
