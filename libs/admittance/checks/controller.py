"""`AdmissionCheckController`: what the author of a check holds in the hand."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from admittance.checks.activity import Activity
from admittance.checks.request import Reference, Request, Withdrawal, is_too_late, parameters_of
from admittance.checks.verdicts import Later, Pending, Ready, Rejected, Retry, Verdict
from admittance.events.names import token
from admittance.events.system import CheckActive
from admittance.sdk.threads import Threads, from_thread

CONCURRENCY: Final = 100
THREADS: Final = 16
GRACE_SECONDS: Final = 7.0
"""Less than the ten seconds after which a container is ended by force."""

F = TypeVar("F", bound=Callable[..., Any])


class AdmissionCheckController:
    """A controller of admission checks: the name that AdmissionChecks name, and what judges.

    ``parameters``: a msgspec Struct that ``request.parameters`` is to be; without it, they are a
    dict. ``concurrency``: how many judgements one process makes at once; 100, or 16 where the check
    is a plain function, which runs in a thread. ``grace_seconds``: how long a judgement that is
    under way may take to end when the process is asked to.
    """

    def __init__(
        self,
        name: str,
        *,
        parameters: type[Any] | None = None,
        concurrency: int | None = None,
        grace_seconds: float = GRACE_SECONDS,
    ) -> None:
        token(name)  # raises ValueError for a name that has none
        if concurrency is not None and concurrency < 1:
            raise ValueError(f"concurrency={concurrency}: at least one judgement at a time")
        self.name = name
        self.shape = parameters
        self.grace_seconds = grace_seconds
        self.activity = Activity()
        self._concurrency = concurrency
        self._check: Callable[..., Any] | None = None
        self._withdrawn: Callable[..., Any] | None = None
        self._threads = Threads(concurrency or THREADS)
        self._say: Callable[[Request | Reference, Verdict], Any] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    # What an author says. -----------------------------------------------------------------

    def check(self, function: F) -> F:
        """Decorates the function that judges: takes a `Request`, answers a verdict."""
        if self._check is not None:
            raise ValueError(f"{self.name} has a check already: {self._check.__qualname__}")
        self._check = function
        return function

    def withdrawn(self, function: F) -> F:
        """Decorates the function that is told, by a `Withdrawal`, that a request was taken back.

        It is told at least once, perhaps by two replicas, and perhaps of a request that this
        process never saw: freeing twice must be harmless.
        """
        if self._withdrawn is not None:
            raise ValueError(f"{self.name} has such a callback already")
        self._withdrawn = function
        return function

    def inactive(self, message: str, *, reason: str = "NotReady", check: str = "") -> None:
        """From now on the heartbeat says that ``check`` (empty: every one of ours) cannot be
        evaluated: its queues reserve nothing more until `active` is called. Any thread may."""
        self.activity.put(check, CheckActive(active=False, reason=reason, message=message))

    def active(self, check: str = "") -> None:
        """It can be evaluated again."""
        self.activity.put(check, CheckActive())

    # Judging. -----------------------------------------------------------------------------

    async def judge(self, request: Request) -> Verdict | None:
        """What the check answers to request: no bus, no retries; for tests, and for the helper.
        None: it said what it had to say by `report`, or will (`Later`).

        A dict of parameters is made the Struct that the controller was given. Raises BadParameters,
        whatever the check raises, and TypeError when it answers what is no verdict.
        """
        if self._check is None:
            raise RuntimeError(f"{self.name} has no check: decorate a function with @….check")
        shape = self.shape
        if shape is not None and not isinstance(request.parameters, shape):
            encoded = msgspec.json.encode(request.parameters)
            request.parameters = parameters_of(encoded, shape)
        answer = await self._threads.outcome(self._check, request)
        if isinstance(answer, Later):
            request.later = True
            return None
        if answer is None or isinstance(answer, Pending | Ready | Retry | Rejected):
            return answer
        raise TypeError(f"the check answered {answer!r}: return Pending, Ready, Retry or Rejected")

    async def free(self, withdrawal: Withdrawal) -> None:
        """Calls the withdrawn callback, if there is one."""
        if self._withdrawn is not None:
            await self._threads.outcome(self._withdrawn, withdrawal)

    async def report(self, about: Request | Reference, verdict: Verdict) -> bool:
        """Says verdict about a request of earlier, known by what ``request.reference`` gave.

        False: nobody waits for this any more, as far as we know. Raises RuntimeError when the
        controller does not run.
        """
        if isinstance(about, Request) and is_too_late(about, verdict):
            return False
        if self._say is None:
            raise RuntimeError(f"{self.name} is not running")
        return bool(await self._say(about, verdict))

    def report_from_thread(self, about: Request | Reference, verdict: Verdict) -> bool:
        """`report`, where no event loop runs: in a plain function, or in a thread of your own."""
        return from_thread(self.report(about, verdict), self._loop)

    # What the helper asks. ----------------------------------------------------------------

    @property
    def has_check(self) -> bool:
        """A function is decorated."""
        return self._check is not None

    @property
    def has_withdrawn(self) -> bool:
        """A callback is decorated."""
        return self._withdrawn is not None

    @property
    def concurrency(self) -> int:
        """Judgements that one process makes at once."""
        if self._concurrency is not None:
            return self._concurrency
        return CONCURRENCY if inspect.iscoroutinefunction(self._check) else THREADS

    @property
    def program(self) -> str:
        """What runs here, for the heartbeat: replicas of one program say the same."""
        function = self._check
        if function is None:
            return ""
        try:
            file = Path(inspect.getsourcefile(function) or "").name
        except TypeError:
            file = ""
        return f"{file}:{getattr(function, '__qualname__', type(function).__name__)}"

    def report_through(self, say: Callable[[Request | Reference, Verdict], Any] | None) -> None:
        """Where `report` goes from now on, in the running event loop; None: nowhere."""
        self._say = say
        self._loop = asyncio.get_running_loop() if say is not None else None

    # Running. -----------------------------------------------------------------------------

    async def serve(
        self,
        url: str | None = None,
        *,
        creds: str | None = None,
        stop: asyncio.Event | None = None,
    ) -> None:
        """Judges until stop is set or this is cancelled; for a program with a loop of its own.

        ``url``, ``creds``: else ADMIT_NATS_URL and ADMIT_NATS_CREDS. While nobody answers there, it
        is tried again and again.
        """
        from admittance.checks.service import serve

        await serve(self, url=url, creds=creds, stop=stop or asyncio.Event())

    def run(self, url: str | None = None, *, creds: str | None = None) -> None:
        """Judges until SIGINT or SIGTERM. `serve` has the arguments."""
        from admittance.checks.service import run

        run(self, url=url, creds=creds)
