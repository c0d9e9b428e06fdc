"""Errors of commands: one line on standard error, and an exit status. They are those of the client.

``CliError`` ─┬─ ``BadInput`` (2): the command line or a file is wrong
              └─ ``AnswerIsNo`` (1): not found, refused, failed, no service answers
                 └─ ``NotAllowed``: this login lacks a right, or is refused
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from admittance.client.errors import BadInput as BadInput
from admittance.client.errors import ClientError as CliError
from admittance.client.errors import NotAllowed as NotAllowed
from admittance.client.errors import RequestFailed as AnswerIsNo
from admittance.client.errors import one_line

__all__ = [
    "INTERRUPTED",
    "AnswerIsNo",
    "BadInput",
    "CliError",
    "NotAllowed",
    "lines_of",
    "one_line",
]

INTERRUPTED: Final = 130
"""Exit status after Ctrl-C, as shells give it."""


def lines_of(error: BaseException) -> Iterable[str]:
    """The lines to print for any exception of Admittance."""
    if isinstance(error, CliError):
        return error.lines
    return (one_line(str(error)) or type(error).__name__,)
