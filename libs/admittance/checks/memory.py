"""What one replica remembers of requests, so that what is heard twice is acted on once.

It is bounded, and gone after a restart: then a request that was not acknowledged is judged again.
"""

from __future__ import annotations

import asyncio
import weakref
from typing import Final, NamedTuple, Protocol

from admittance.checks.request import BY_OTHER_CHECK, Request

KEPT: Final = 50_000


class Identity(NamedTuple):
    """One judgement, wherever it is spoken of."""

    uid: str
    namespace: str
    name: str
    check: str
    cycle: int


class Known:
    """``judged``: it was answered, or never will be. ``begun``: this replica called the check.
    ``cancelled``: it was taken back, so that it is not to be judged. ``unlisted``: because the
    check was taken off the queue, which may list it again in the same cycle. ``revision``: of the
    workload in the newest request. ``freed``: the reasons for which the callback ran. ``request``:
    as long as anybody holds it. ``parameters``: those of the newest request, as they came."""

    __slots__ = (
        "begun",
        "cancelled",
        "freed",
        "judged",
        "parameters",
        "request",
        "revision",
        "unlisted",
    )

    def __init__(self) -> None:
        self.judged = False
        self.begun = False
        self.cancelled = False
        self.freed: tuple[str, ...] = ()
        self.request: weakref.ref[Request] | None = None
        self.parameters = b""
        self.revision = 0
        self.unlisted = False


class Memory:
    """The newest `KEPT` requests and withdrawals."""

    def __init__(self) -> None:
        self._known: dict[Identity, Known] = {}

    def of(self, identity: Identity) -> Known | None:
        """What is known of it."""
        return self._known.get(identity)

    def begun(self, identity: Identity, request: Request) -> None:
        """The check is called for it."""
        known = self._noted(identity)
        known.begun = True
        known.request = weakref.ref(request)

    def judged(self, identity: Identity) -> None:
        """It is not to be judged again."""
        self._noted(identity).judged = True

    def cancelled(self, identity: Identity, *, unlisted: bool = False) -> None:
        """It was taken back."""
        known = self._noted(identity)
        known.cancelled = True
        known.unlisted = unlisted

    def asked(self, identity: Identity, parameters: bytes, revision: int = 0) -> None:
        """It is to be judged, with these parameters; whatever was judged with others."""
        known = self._noted(identity)
        known.parameters = parameters
        known.revision = max(known.revision, revision)
        known.judged = False

    def freed(self, identity: Identity, reason: str) -> None:
        """The callback ran for it."""
        self._noted(identity).freed += (reason,)

    def forget(self, identity: Identity) -> None:
        """It may be judged once more."""
        self._known.pop(identity, None)

    def request(self, identity: Identity) -> Request | None:
        """The request, if anybody still holds it."""
        known = self._known.get(identity)
        return known.request() if known is not None and known.request is not None else None

    def _noted(self, identity: Identity) -> Known:
        known = self._known.get(identity)
        if known is None:
            if len(self._known) >= KEPT:
                del self._known[next(iter(self._known))]
            known = self._known[identity] = Known()
        return known


class Desk(Protocol):
    """Where deliveries are acknowledged; an empty reply is nobody's."""

    def done(self, reply: str) -> None: ...
    def again(self, reply: str, delay_seconds: float = 0.0) -> None: ...
    def let_wait(self, reply: str) -> None: ...


class Judgement:
    """One request on its way to a verdict."""

    __slots__ = ("attempts", "calls", "identity", "reply", "request", "task", "timer")

    def __init__(self, identity: Identity, request: Request, reply: str) -> None:
        self.identity = identity
        self.request = request
        self.reply = reply
        self.attempts = 0
        self.calls = False
        """It takes one of the places for calls."""
        self.task: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None


class Line:
    """The judgements of one workload by one check: the one whose turn it is, and the next."""

    __slots__ = ("first", "next")

    def __init__(self, first: Judgement) -> None:
        self.first = first
        self.next: Judgement | None = None


def is_over(request: Request) -> bool:
    """It was taken back, and nothing of it counts any more."""
    return request.withdrawn not in ("", BY_OTHER_CHECK)


def names_of(identity: Identity) -> dict[str, object]:
    """What log lines say of it."""
    return {
        "workload": f"{identity.namespace}/{identity.name}",
        "check": identity.check,
        "cycle": identity.cycle,
    }
