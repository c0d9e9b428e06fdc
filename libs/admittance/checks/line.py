"""What a replica works on: requests on their way to a verdict, in line behind each other."""

from __future__ import annotations

import asyncio
from typing import Protocol

from admittance.checks.memory import Identity
from admittance.checks.request import BY_OTHER_CHECK, Request


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
