"""`Hold`: quota for a program that no runner starts, such as a notebook, while a block of it runs.

The workload has a lease, which this module renews; the workload-controller finishes the workload
when its lease ends. docs/decisions/0077-a-program-holds-quota-by-a-lease.md has the reasons.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias, TypedDict

from msgspec import structs

from admittance.api.workload import Workload
from admittance.client.calls import Calls, LoopThread
from admittance.client.errors import BadInput, ClientError, Closed
from admittance.client.requests.link import Link
from admittance.client.requests.objects import follow
from admittance.client.requests.submissions.holds import devices_of, variables_of, why_lost
from admittance.client.requests.workloads import changes
from admittance.client.requests.workloads.waits import reach
from admittance.events import facts
from admittance.events.requests.history import SettledReply
from admittance.phases import Phase
from admittance.runtime import clock
from admittance.runtime.tasks import end_tasks
from admittance.workload.stored import StoredWorkload

OnEvicted: TypeAlias = Callable[[str], object]
RENEWALS: Final = 4
"""How often a lease is renewed in the time for which it lasts."""
CLOSED_WHY: Final = "the client was closed"
NO_AMOUNT: Final = (
    "hold without an amount keeps a workload out of its queue, and begins no block; for a block "
    "with quota pass cpu, memory or gpu"
)
NOT_AWAITED: Final = (
    "hold with an amount takes quota for a block: async with client.hold(queue, cpu=1); to keep a "
    "workload out of its queue pass its name alone"
)


class HoldOptions(TypedDict, total=False):
    """The arguments of `Client.hold_quota` that `Client.hold` passes on."""

    cpu: str | float | None
    memory: str | int | None
    gpu: str | int | None
    priority: int | None
    priority_class: str | None
    labels: Mapping[str, str] | None
    flavors: Sequence[str]
    max_seconds: int | None
    lease_seconds: int
    on_evicted: OnEvicted | None
    timeout: float | None
    anyway: bool


class Held:
    """What a program holds. ``devices``: the ids of its devices by resource; empty without
    machines. ``runner``: the runner of the machine that they belong to; "": no machine was chosen.
    """

    def __init__(self, workload: StoredWorkload) -> None:
        self._workload = workload
        self._evicted = ""
        self.devices: Mapping[str, tuple[str, ...]] = devices_of(workload.status.placement)
        self.runner = next((part.runner for part in workload.status.placement), "")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.namespace}/{self.name}>"

    @property
    def name(self) -> str:
        """The name of the workload that has the quota."""
        return self._workload.metadata.name

    @property
    def namespace(self) -> str:
        """The namespace of the workload."""
        return self._workload.metadata.namespace

    @property
    def evicted(self) -> str:
        """Why the program must give its quota up, such as ``Preempted: …``; "": it need not."""
        return self._evicted

    def environ(self) -> dict[str, str]:
        """The variables that show the devices to a program and hide all others, such as
        ``CUDA_VISIBLE_DEVICES``."""
        return variables_of(self.devices)

    def lost(self, workload: StoredWorkload | None) -> str:
        """Notes a state of the workload; returns why the quota is lost, at the first such state."""
        return self.lose(why_lost(workload, self._workload))

    def lose(self, why: str) -> str:
        """Notes that the quota is lost; returns why, the first time."""
        if self._evicted or not why:
            return ""
        self._evicted = why
        return why


class WorkloadHold(Coroutine[Any, Any, SettledReply]):
    """What ``await`` of `Client.hold` with a name does: it keeps a workload out of its queue. It is
    no block, and ``async with`` raises BadInput."""

    def __init__(self, work: Coroutine[Any, Any, SettledReply]) -> None:
        self._work = work

    def __await__(self) -> Generator[Any, Any, SettledReply]:
        return self._work.__await__()

    def send(self, value: Any) -> Any:
        """The next step, for an event loop."""
        return self._work.send(value)

    def throw(self, *error: Any) -> Any:
        """An error at the present step, such as a cancellation."""
        return self._work.throw(*error)

    def close(self) -> None:
        """Does nothing of what is left."""
        self._work.close()

    if not TYPE_CHECKING:

        async def __aenter__(self) -> NoReturn:
            self.close()
            raise BadInput(NO_AMOUNT)

        async def __aexit__(self, *_: object) -> None:
            """Is never reached."""


class Hold:
    """Quota while the block of an ``async with`` runs, which begins once there is quota. `Held` is
    what it has."""

    def __init__(
        self,
        calls: Calls,
        submit: Callable[[Link], Awaitable[Workload]],
        *,
        lease_seconds: int,
        timeout: float | None,
        on_evicted: OnEvicted | None,
    ) -> None:
        self._calls = calls
        self._submit = submit
        self._lease_seconds = lease_seconds
        self._timeout = timeout
        self._on_evicted = on_evicted
        self._about: facts.Renewed | None = None
        self._renewed_at = 0.0
        self._tasks: list[asyncio.Task[None]] = []

    if not TYPE_CHECKING:

        def __await__(self) -> NoReturn:
            raise BadInput(NOT_AWAITED)

    async def __aenter__(self) -> Held:
        if self._about is not None:
            raise BadInput("the hold was used before: make another one")
        self._renewed_at = clock.monotonic()
        async with AsyncExitStack() as stack:
            async with self._calls.call() as link:
                meta = (await self._submit(link)).metadata
            about = facts.Renewed(namespace=meta.namespace, name=meta.name)
            self._about = about
            stack.push_async_callback(self._end, "it was given up before it had quota")
            waiting = asyncio.create_task(self._renew(None))
            self._tasks.append(waiting)
            async with self._calls.call() as link:
                workload = await reach(
                    link, meta.namespace, meta.name, Phase.ADMITTED, self._timeout
                )
            held = Held(workload)
            await end_tasks(waiting)
            self._tasks = [
                asyncio.create_task(self._renew(held)),
                asyncio.create_task(self._watch(held)),
            ]
            stack.pop_all()
        return held

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, SystemExit):
            await self._end(f"exit code {error.code}" if error.code else "", error.code)
        else:
            await self._end("" if error is None else f"{type(error).__name__}: {error}")

    async def _end(self, failed: str = "", code: object = 0) -> None:
        """Gives the quota back. ``failed``: why the program failed; "": it succeeded."""
        await end_tasks(*self._tasks)
        assert self._about is not None, "the workload was submitted"
        ended = facts.Renewed(
            namespace=self._about.namespace,
            name=self._about.name,
            ended=True,
            succeeded=not failed,
            message=failed,
            exit_code=code if isinstance(code, int) and 0 < code < 256 else None,
        )
        # Without a connection the lease ends by itself.
        with suppress(Closed):
            async with self._calls.call() as link:
                await changes.outcome_of(link, ended)

    async def _renew(self, held: Held | None) -> None:
        """Renews the lease, until it could not be renewed for as long as it lasts."""
        assert self._about is not None, "the workload was submitted"
        while True:
            await asyncio.sleep(self._lease_seconds / RENEWALS)
            began = clock.monotonic()
            try:
                async with self._calls.call() as link:
                    await link.publish(self._about)
                self._renewed_at = began
            except Closed:
                return
            except ClientError as error:
                if held is not None and began - self._renewed_at > self._lease_seconds:
                    await self._lost(held, held.lose(f"the lease was not renewed: {error}"))
                    return

    async def _watch(self, held: Held) -> None:
        """Looks at each state of the workload, until the quota is lost."""
        try:
            while not held.evicted:
                with suppress(ClientError):
                    async with (
                        self._calls.call() as link,
                        aclosing(follow(link, held.namespace, held.name)) as states,
                    ):
                        async for stored in states:
                            why = held.lost(None if stored is None else stored.workload())
                            if why:
                                break
                if held.evicted:
                    await self._lost(held, held.evicted)
                elif self._calls.is_closed:
                    await self._lost(held, held.lose(CLOSED_WHY))
                else:
                    await asyncio.sleep(self._lease_seconds / RENEWALS)
        except Closed:
            await self._lost(held, held.lose(CLOSED_WHY))

    async def _lost(self, held: Held, why: str) -> None:
        """Keeps the workload from quota that its program would not notice, and calls the program
        back once."""
        if not why:
            return
        # The workload may be finished, deleted or stopped already, and the lease ends it anyway.
        with suppress(ClientError):
            async with self._calls.call() as link:
                stop = facts.Deactivated(namespace=held.namespace, name=held.name)
                await changes.outcome_of(link, stop)
        if self._on_evicted is not None:
            made = self._on_evicted(why)
            if isinstance(made, Awaitable):
                await made


class Kept(SettledReply, frozen=True):
    """The outcome of `SyncClient.hold` with a name. It is no block: ``with`` raises BadInput."""

    if not TYPE_CHECKING:

        def __enter__(self) -> NoReturn:
            raise BadInput(NO_AMOUNT)

        def __exit__(self, *_: object) -> None:
            """Is never reached."""


class SyncHold:
    """`Hold` for ``with``. The lease is renewed on the thread of the client, also while the program
    computes."""

    def __init__(self, thread: LoopThread, make: Callable[[], Hold]) -> None:
        self._thread = thread
        self._make = make
        self._hold: Hold | None = None

    def __enter__(self) -> Held:
        self._hold = self._make()
        return self._thread.run(self._hold.__aenter__)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        hold = self._hold
        assert hold is not None, "with calls __enter__ first"
        self._thread.run(lambda: hold.__aexit__(kind, error, trace))


def hold_on(thread: LoopThread, make: Callable[[], Hold | WorkloadHold]) -> SyncHold | Kept:
    """A hold for programs without a loop: that of a workload happens at once."""

    async def begin() -> Hold | SettledReply:
        made = make()
        return made if isinstance(made, Hold) else await made

    match thread.run(begin):
        case Hold() as hold:
            return SyncHold(thread, lambda: hold)
        case reply:
            return Kept(**structs.asdict(reply))
