"""Expected trouble, by whose fault it is.

AdmittanceError
├── SetupError        the installation is wrong; the sentence says what to do
├── Unavailable       the bus did not answer; whether it did what we asked is unknown
│   ├── NoServer          no server answers at the address
│   └── AccessDenied      the server refuses our credentials, certificate or permissions
├── Superseded        a successor reads in our place; stop
└── Refused           the bus said no, and did nothing
    ├── StaleRevision     somebody else wrote first: load and decide anew
    ├── Fenced            we lead the domain no longer: stop deciding for it
    ├── Busy              not now: no leader, too much in flight; ask again
    ├── Full              no room: a person must make some, then it goes on
    ├── Repeated          an atomic batch has a message id that was said before
    └── TooBig            longer than the server takes

Which error code of the server is which is decided in `server_errors`.
"""

from __future__ import annotations

from typing import Final

import nats.errors

from admittance.runtime.server_errors import Meaning, meaning


class AdmittanceError(Exception):
    """Trouble that was to be expected."""


class SetupError(AdmittanceError):
    """One line that says what is wrong with the installation, and what to do."""


class Unavailable(AdmittanceError):
    """No answer in time. What was asked may have happened or not."""


class NoServer(Unavailable):
    """No server answers at the address. A service tries again: it may be about to start."""


class AccessDenied(Unavailable):
    """The server refuses our credentials, our certificate or what we ask. A command ends; a service
    says so and tries again, since that may be mended at the server."""


class Superseded(AdmittanceError):
    """Somebody with a newer epoch has taken over what we were reading."""


class Refused(AdmittanceError):
    """The server refused, and nothing happened. ``code`` is the server's error code."""

    def __init__(self, code: int, description: str, meaning: Meaning = Meaning.WRONG) -> None:
        super().__init__(f"{description} ({code})")
        self.code = code
        self.description = description
        self.meaning = meaning


class StaleRevision(Refused):
    """The revision that was expected is no longer the last one."""


class Fenced(Refused):
    """The epoch in the fence is no longer the domain's last one."""


class Busy(Refused):
    """Not now: JetStream has no leader, or too much is in flight. Nothing is wrong with what was
    asked."""


class Full(Refused):
    """There is no room for it: on the disk, in memory, or within the limits of the account."""


class Repeated(Refused):
    """A message id of an atomic batch was said before, so all of the batch was refused: most likely
    the very batch is stored already."""


class TooBig(Refused):
    """Message and headers are longer than the server's max_payload."""


def refusal(code: int, description: str, *, status: int = 400, fenced: bool = False) -> Refused:
    """The exception for the server's answer. ``status``: the HTTP-like one of the answer.
    ``fenced``: the message named a fence and no revision of its own, so a wrong sequence means the
    fence."""
    found = meaning(code, status)
    kind = _CLASSES.get(found, Refused)
    if found is Meaning.SEQUENCE and fenced:
        kind = Fenced
    return kind(code, description, found)


_CLASSES: Final = {
    Meaning.SEQUENCE: StaleRevision,
    Meaning.NOT_NOW: Busy,
    Meaning.FULL: Full,
    Meaning.REPEATED: Repeated,
    Meaning.TOO_BIG: TooBig,
}


def passes(error: BaseException) -> bool:
    """Whether the error goes by itself, or when a person makes room, so that asking again mends it:
    no answer, not now, no room. Otherwise a person must change a setting, or there is a bug."""
    if isinstance(error, BaseExceptionGroup):
        return all(passes(one) for one in error.exceptions)
    return isinstance(error, _PASSING)


_PASSING: Final = (
    Unavailable,
    Busy,
    Full,
    # What the client itself says of a connection that is lost, or is being made anew.
    ConnectionError,
    nats.errors.ConnectionClosedError,
    nats.errors.ConnectionDrainingError,
    nats.errors.ConnectionReconnectingError,
    nats.errors.NoRespondersError,
    nats.errors.NoServersError,
    nats.errors.OutboundBufferLimitError,
    nats.errors.StaleConnectionError,
    nats.errors.TimeoutError,
    nats.errors.UnexpectedEOF,
)
