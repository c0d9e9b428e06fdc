"""`AdmissionCheckController`: the class with which you write a check."""

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
"""Less than the ten seconds after which a container is killed."""

F = TypeVar("F", bound=Callable[..., Any])


class AdmissionCheckController:
    """Controls the AdmissionChecks whose ``controllerName`` is ``name``.

    ``parameters``: the msgspec Struct of ``request.parameters``; a dict without it.
    ``concurrency``: the judgements that one process makes at once; by default 100, or 16 for a
    plain function, which runs in a thread. ``grace_seconds``: how long judgements under way may
    take to finish when the process ends.
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

    # For the author. -----------------------------------------------------------------

    def check(self, function: F) -> F:
        """Decorates the function that judges: it takes a `Request` and returns a verdict."""
        if self._check is not None:
            raise ValueError(f"{self.name} has a check already: {self._check.__qualname__}")
        self._check = function
        return function

    def withdrawn(self, function: F) -> F:
        """Decorates the function that frees what was booked for a withdrawn request.

        It is called at least once, perhaps by two replicas, and perhaps for a request that this
        process never received: freeing twice must be harmless.
        """
        if self._withdrawn is not None:
            raise ValueError(f"{self.name} has such a callback already")
        self._withdrawn = function
        return function

    def inactive(self, message: str, *, reason: str = "NotReady", check: str = "") -> None:
        """Makes ``check`` (empty: all checks) inactive: its queues reserve no quota until `active`
        is called. Any thread may call this."""
        self.activity.put(check, CheckActive(active=False, reason=reason, message=message))

    def active(self, check: str = "") -> None:
        """Makes the check active again."""
        self.activity.put(check, CheckActive())

    # Judging. -----------------------------------------------------------------------------

    async def judge(self, request: Request) -> Verdict | None:
        """Calls the check's function once, without a bus; for tests and for the service. Returns
        its verdict, or None if it uses `report` instead (`Later`).

        Converts a dict of parameters to the controller's Struct. Raises BadParameters, what the
        check raises, and TypeError if it returns anything else than a verdict.
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
        """Calls the withdrawn callback, if one is decorated."""
        if self._withdrawn is not None:
            await self._threads.outcome(self._withdrawn, withdrawal)

    async def report(self, about: Request | Reference, verdict: Verdict) -> bool:
        """Publishes a verdict on an earlier request, identified by its ``request.reference``.

        False: the verdict no longer counts, as far as this process knows. Raises RuntimeError if
        the controller is not running.
        """
        if isinstance(about, Request) and is_too_late(about, verdict):
            return False
        if self._say is None:
            raise RuntimeError(f"{self.name} is not running")
        return bool(await self._say(about, verdict))

    def report_from_thread(self, about: Request | Reference, verdict: Verdict) -> bool:
        """`report` outside the event loop: in a plain function or a thread of your own."""
        return from_thread(self.report(about, verdict), self._loop)

    # For the service. ----------------------------------------------------------------

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
        """The judgements that one process makes at once."""
        if self._concurrency is not None:
            return self._concurrency
        return CONCURRENCY if inspect.iscoroutinefunction(self._check) else THREADS

    @property
    def program(self) -> str:
        """The name of the program, for the heartbeat: equal for all its replicas."""
        function = self._check
        if function is None:
            return ""
        try:
            file = Path(inspect.getsourcefile(function) or "").name
        except TypeError:
            file = ""
        return f"{file}:{getattr(function, '__qualname__', type(function).__name__)}"

    def report_through(self, say: Callable[[Request | Reference, Verdict], Any] | None) -> None:
        """Connects `report` to a function of the running event loop; None disconnects it."""
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

        ``url`` and ``creds`` default to ADMIT_NATS_URL and ADMIT_NATS_CREDS. Retries while no
        server answers.
        """
        from admittance.checks.service import serve

        await serve(self, url=url, creds=creds, stop=stop or asyncio.Event())

    def run(self, url: str | None = None, *, creds: str | None = None) -> None:
        """Judges until SIGINT or SIGTERM. Arguments as in `serve`."""
        from admittance.checks.service import run

        run(self, url=url, creds=creds)
