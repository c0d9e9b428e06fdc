"""Expected trouble, by whose fault it is.

AdmittanceError
├── SetupError        the installation is wrong; the sentence says what to do
├── Unavailable       the bus did not answer; whether it did what we asked is unknown
├── Superseded        a successor reads in our place; stop
└── Refused           the bus said no, and did nothing
    ├── StaleRevision     somebody else wrote first: load and decide anew
    ├── Fenced            we lead the domain no longer: stop deciding for it
    ├── Busy              too much in flight on one fence; ask again
    ├── Repeated          an atomic batch has a message id that was said before
    └── TooBig            longer than the server takes
"""

from __future__ import annotations

from typing import Final

WRONG_LAST_SEQUENCE: Final = frozenset({10070, 10071})
BUSY: Final = frozenset({10164, 10176, 10210})
"""10164: another message on that fence is in flight. 10176: a batch was abandoned, nothing of it
is stored. 10210: too many batches at once. 10077, a full stream, is not mended by asking again."""
TOO_BIG: Final = 10054
REPEATED: Final = 10201


class AdmittanceError(Exception):
    """Trouble that was to be expected."""


class SetupError(AdmittanceError):
    """One line that says what is wrong with the installation, and what to do."""


class Unavailable(AdmittanceError):
    """No answer in time. What was asked may have happened or not."""


class Superseded(AdmittanceError):
    """Somebody with a newer epoch has taken over what we were reading."""


class Refused(AdmittanceError):
    """The server refused, and nothing happened. ``code`` is the server's error code."""

    def __init__(self, code: int, description: str) -> None:
        super().__init__(f"{description} ({code})")
        self.code = code
        self.description = description


class StaleRevision(Refused):
    """The revision that was expected is no longer the last one."""


class Fenced(Refused):
    """The epoch in the fence is no longer the domain's last one."""


class Busy(Refused):
    """Too much in flight at once; nothing is wrong with the message."""


class Repeated(Refused):
    """A message id of an atomic batch was said before, so all of the batch was refused: most likely
    the very batch is stored already."""


class TooBig(Refused):
    """Message and headers are longer than the server's max_payload."""


def refusal(code: int, description: str, *, fenced: bool = False) -> Refused:
    """The exception for the server's answer. ``fenced``: the message named a fence and no
    revision of its own, so a wrong sequence means the fence."""
    if code in WRONG_LAST_SEQUENCE:
        return Fenced(code, description) if fenced else StaleRevision(code, description)
    if code in BUSY:
        return Busy(code, description)
    if code == REPEATED:
        return Repeated(code, description)
    if code == TOO_BIG:
        return TooBig(code, description)
    return Refused(code, description)
