"""Errors of the client, each with one sentence for people.

``ClientError`` ─┬─ ``BadInput``: the arguments are wrong, and nothing was sent
                 ├─ ``Closed``: the client is closed, or Python ends
                 ├─ ``WrongUse``: a wrong process, event loop or thread uses the client
                 └─ ``RequestFailed``: the request was valid but has failed
                    ├─ ``NotFound``: there is no such object
                    ├─ ``Refused``: the system refuses it, for a ``reason``
                    ├─ ``NotAllowed``: this login lacks a right, or is refused
                    ├─ ``Unavailable``: no server or no service answers
                    │  └─ ``NoResponder``: the service for the request does not run
                    ├─ ``TimedOut``: it did not happen in the given time
                    └─ ``JobFailed``: the job has ended, and failed
"""

from __future__ import annotations


class ClientError(Exception):
    """An error of the client. ``lines``: one sentence for each problem, without line breaks.
    ``status``: the exit status of a command that ends with the error."""

    status = 1

    def __init__(self, *lines: str) -> None:
        super().__init__("; ".join(lines))
        self.lines = tuple(one_line(line) for line in lines)


class BadInput(ClientError):
    """The arguments, or a manifest among them, are wrong. Nothing was sent."""

    status = 2


class Closed(ClientError):
    """The client was closed, or the interpreter ends."""


class WrongUse(ClientError):
    """The client is used in another process or event loop than the one that connected it, or a
    `SyncClient` inside a running event loop."""


class RequestFailed(ClientError):
    """The request was valid but has failed: not found, refused, or not answered."""


class NotFound(RequestFailed):
    """The object does not exist."""


class Refused(RequestFailed):
    """The system refuses the request. ``reason``: a stable word such as ``AlreadyExists``; "" if
    the system gives none."""

    def __init__(self, *lines: str, reason: str = "") -> None:
        super().__init__(*lines)
        self.reason = reason


class NotAllowed(RequestFailed):
    """This login lacks a right, or the server refuses it."""


class Unavailable(RequestFailed):
    """No server or service answers. A write may have arrived all the same; the sentence says so."""


class NoResponder(Unavailable):
    """No service listens for the request, so the request was not carried out."""


class TimedOut(RequestFailed):
    """What was waited for did not happen in the given time."""


class JobFailed(RequestFailed):
    """The job has ended, and failed. ``reason``: a stable word; ``exit_code``: None if it is not
    known."""

    def __init__(self, line: str, *, reason: str = "", exit_code: int | None = None) -> None:
        super().__init__(line)
        self.reason = reason
        self.exit_code = exit_code


def one_line(text: str) -> str:
    """``text`` as one line, so that grep finds the whole error."""
    return " ".join(text.split())


def sentence(*parts: str) -> str:
    """``reason: message``; empty parts are left out."""
    return ": ".join(filter(None, parts))
