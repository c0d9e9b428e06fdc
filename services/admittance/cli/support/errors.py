"""Errors of commands, those of the client: one line on standard error, and an exit status.

``ClientError`` ─┬─ ``BadInput`` (2): the command line or a file is wrong
                 └─ ``RequestFailed`` (1): not found, refused, failed, no service answers
                    └─ ``NotAllowed``: this login lacks a right, or is refused
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from admittance.client.errors import ClientError, one_line

INTERRUPTED: Final = 130
"""Exit status after Ctrl-C, as shells give it."""


def lines_of(error: BaseException) -> Iterable[str]:
    """The lines to print for any exception of Admittance."""
    if isinstance(error, ClientError):
        return error.lines
    return (one_line(str(error)) or type(error).__name__,)
