"""Where the calls of a client run: on the event loop that connected it, until it is closed; those
of a `SyncClient` on a thread with a loop of its own.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Generic, NamedTuple, TypeVar
from weakref import WeakSet

from admittance.client.errors import BadInput, Closed, NotAllowed, Unavailable, WrongUse
from admittance.client.requests.link import Link
from admittance.runtime import errors as bus_errors
from admittance.runtime.bus.bus import Bus
from admittance.runtime.nats.opening import is_open

T = TypeVar("T")

CLOSED: Final = "the client is closed: connect another one"
EXITING: Final = "Python ends, and its clients are closed"
CLOSE_SECONDS: Final = 2.0
"""Longest wait for open calls, and for a thread, at the end of a client."""


class Login(NamedTuple):
    """The user of a connection, as its credentials name it. ``user`` and ``role`` "": the
    credentials name none. ``namespaces``: (): all, as far as the role goes. ``demanded``: False if
    the server accepts every connection, whatever its credentials."""

    user: str = ""
    role: str = ""
    namespaces: tuple[str, ...] = ()
    demanded: bool = True


class Calls:
    """The open calls and streams of a client. ``link``: its connection, which belongs to the
    process and the event loop that made it."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self._loop = asyncio.get_running_loop()
        self._process = os.getpid()
        self._open: set[Call] = set()
        self._streams: WeakSet[Stream[Any]] = WeakSet()
        self._closed = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._connection = _closed_at_last(link.bus)

    async def start(self) -> None:
        """Makes the connection end with the event loop at the latest."""
        await anext(self._connection)

    @property
    def login(self) -> Login:
        """The user of the connection."""
        connection = self.link.bus.nc
        return Login(
            connection.user,
            connection.role,
            connection.namespaces,
            demanded=not is_open(connection),
        )

    async def login_ended(self) -> str:
        """Waits until the server refuses the login for good. Returns the reason. Raises Closed."""
        bus = self.link.bus
        ended = asyncio.Event()

        def note(_: bus_errors.AccessDenied) -> None:
            ended.set()

        bus.login_refused.append(note)
        try:
            async with self.call():
                if bus.is_up or bus.refused is None:
                    await ended.wait()
            return str(bus.refused)
        finally:
            bus.login_refused.remove(note)

    @property
    def is_closed(self) -> bool:
        """Whether the client is closed."""
        return self._closed

    def begin(self, call: Call) -> None:
        """Adds a call. Raises Closed and WrongUse."""
        self.check()
        if self._closed:
            raise Closed(CLOSED)
        self._open.add(call)
        self._idle.clear()

    def end(self, call: Call) -> None:
        """Removes a call that has ended."""
        self._open.discard(call)
        if not self._open:
            self._idle.set()

    def check(self) -> None:
        """Raises WrongUse in another process or event loop than those of the connection."""
        if os.getpid() != self._process:
            raise WrongUse(
                f"the client was connected by process {self._process}, and this is process "
                f"{os.getpid()}: connect a client after the fork"
            )
        if asyncio.get_running_loop() is not self._loop:
            raise WrongUse(
                "the client was connected in another event loop: connect a client in each loop"
            )

    def call(self) -> Call:
        """A context manager for one call, which returns the link."""
        return Call(self)

    def stream(self, make: Callable[[Link], AsyncGenerator[T]]) -> Stream[T]:
        """An iterator over what ``make`` yields, which begins with the first step."""
        stream: Stream[T] = Stream(self, make)
        self._streams.add(stream)
        return stream

    async def close(self) -> None:
        """Ends all calls with Closed, then the connection. Closing again does nothing."""
        self.check()
        if self._closed:
            return
        self._closed = True
        for call in list(self._open):
            call.interrupt()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._idle.wait()
        for stream in list(self._streams):
            await stream.abandon()
        await self._connection.aclose()


async def _closed_at_last(bus: Bus) -> AsyncGenerator[None]:
    """Yields once, and closes the bus when it ends: an event loop that ends, and the garbage
    collector, end a generator that was left open, so that a forgotten client warns of nothing."""
    try:
        yield
    finally:
        await bus.close()


class Call:
    """One call of a client. Errors of the bus become errors of the client."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._interrupted = False

    async def __aenter__(self) -> Link:
        self._calls.begin(self)
        self._task = asyncio.current_task()
        assert self._task is not None, "the client is used in a task"
        self._cancelling = self._task.cancelling()
        return self._calls.link

    def interrupt(self) -> None:
        """Ends the call with Closed."""
        if self._task is not None and self._task is not asyncio.current_task():
            self._interrupted = True
            self._task.cancel()
        else:
            self._calls.end(self)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._calls.end(self)
        assert self._task is not None
        if self._interrupted:
            if kind is None or not issubclass(kind, asyncio.CancelledError):
                # The call ended in the same turn of the loop; its cancellation is still to come.
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(0)
            if self._task.uncancel() <= self._cancelling:
                raise Closed(CLOSED) from None
            raise asyncio.CancelledError
        match error:
            case bus_errors.AccessDenied():
                raise NotAllowed(str(error)) from None
            case bus_errors.AdmittanceError():
                raise Unavailable(str(error)) from None


class Stream(Generic[T]):
    """An asynchronous iterator. It ends with its last item, with `aclose`, or with the client."""

    def __init__(self, calls: Calls, make: Callable[[Link], AsyncGenerator[T]]) -> None:
        self._calls = calls
        self._make = make
        self._items: AsyncGenerator[T] | None = None
        self._step: Call | None = None
        self._ended = False

    def __aiter__(self) -> Stream[T]:
        return self

    async def __anext__(self) -> T:
        step = self._calls.call()
        try:
            async with step as link:
                if self._ended:
                    raise StopAsyncIteration
                if self._step is not None:
                    raise WrongUse("another task waits for the next item: iterate in one task")
                self._step = step
                if self._items is None:
                    self._items = self._make(link)
                return await anext(self._items)
        except Closed:
            if self._ended and not self._calls.is_closed:
                raise StopAsyncIteration from None
            raise
        finally:
            if self._step is step:
                self._step = None

    async def aclose(self) -> None:
        """Ends the iteration, also while another task waits for its next item."""
        self._calls.check()
        await self.abandon()

    async def abandon(self) -> None:
        """Ends the iteration without a look at the client."""
        self._ended = True
        items, self._items = self._items, None
        if self._step is not None:
            self._step.interrupt()
        elif items is not None:
            await items.aclose()

    async def __aenter__(self) -> Stream[T]:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def check_timeout(seconds: float | None) -> float | None:
    """The time limit in seconds. Raises BadInput if it is not a positive number."""
    if seconds is not None and not seconds > 0:
        raise BadInput(f"timeout {seconds!r} is not a positive number of seconds")
    try:
        return None if seconds is None else float(seconds)
    except OverflowError:
        raise BadInput("timeout is too great a number") from None


# The thread of a `SyncClient`. ----------------------------------------------------------

_threads: WeakSet[LoopThread] = WeakSet()
_exiting = threading.Event()


class LoopThread:
    """A thread with an event loop, for calls from programs without one. It is a daemon, and ends
    at the latest when Python ends, so that a program never waits for it."""

    def __init__(self) -> None:
        refuse_running_loop()
        if _exiting.is_set():
            raise Closed(EXITING)
        self._process = os.getpid()
        self._ended = False
        self._closing: Callable[[], Coroutine[Any, Any, None]] | None = None
        self._lock = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="admittance-client", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # Python ends.
            self._loop.close()
            raise Closed(EXITING) from None
        _threads.add(self)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            tasks = asyncio.all_tasks(self._loop)
            for task in tasks:
                task.cancel()
            if tasks:
                self._loop.run_until_complete(asyncio.wait(tasks, timeout=CLOSE_SECONDS))
            self._loop.close()

    def close_with(self, closing: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Sets what closes the client, before the thread ends."""
        self._closing = closing

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result of the work on the thread's loop. Raises what the work raises, Closed and
        WrongUse. An interrupt of the waiting thread, such as Ctrl-C, cancels the work."""
        refuse_running_loop()
        running = self.start(work)
        try:
            return running.result()
        except CancelledError:
            raise Closed(EXITING if _exiting.is_set() else CLOSED) from None
        except BaseException:
            running.cancel()
            raise

    def start(self, work: Callable[[], Coroutine[Any, Any, T]]) -> Future[T]:
        """Begins the work on the thread's loop. Raises Closed and WrongUse."""
        if os.getpid() != self._process:
            raise WrongUse(
                f"the client was connected by process {self._process}, and this is process "
                f"{os.getpid()}: connect a client after the fork"
            )
        with self._lock:
            if self._ended:
                raise Closed(EXITING if _exiting.is_set() else CLOSED)
            return asyncio.run_coroutine_threadsafe(work(), self._loop)

    def iterate(self, make: Callable[[], Stream[T]]) -> Iterator[T]:
        """The items of the stream that ``make`` returns; the stream ends with the iterator."""

        async def begin() -> Stream[T]:
            return make()

        stream = self.run(begin)
        try:
            while (item := self.run(lambda: _next(stream))) is not _END:
                yield item
        finally:
            with suppress(Closed, WrongUse):
                self.run(stream.aclose)

    def end(self) -> None:
        """Closes the client and ends the thread. Ending again does nothing."""
        if os.getpid() != self._process:
            return
        with self._lock:
            if self._ended:
                return
            self._ended = True
        _threads.discard(self)
        try:
            if self._closing is not None:
                closing = asyncio.run_coroutine_threadsafe(self._closing(), self._loop)
                # A close that hangs is given up: the thread is a daemon.
                with suppress(TimeoutError, CancelledError):
                    closing.result(2 * CLOSE_SECONDS)
        finally:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._loop.stop)
            if threading.current_thread() is not self._thread:
                self._thread.join(2 * CLOSE_SECONDS)


_END: Final = object()


async def _next(stream: Stream[Any]) -> Any:
    """The next item of a stream; `_END` after the last."""
    try:
        return await anext(stream)
    except StopAsyncIteration:
        return _END


def refuse_running_loop() -> None:
    """Raises WrongUse inside a running event loop, which a blocking call would stop. The kernel of
    a notebook runs cells inside its own loop, and expects that they block."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    if not _in_notebook():
        raise WrongUse(
            "a SyncClient would block the running event loop: use Client and await its methods, "
            "or asyncio.to_thread"
        )


def _in_notebook() -> bool:
    """Whether a kernel of IPython runs this code."""
    python = sys.modules.get("IPython")
    shell = python.get_ipython() if python is not None else None
    return getattr(shell, "kernel", None) is not None


def _end_all() -> None:
    """Closes all clients of threads when Python ends."""
    _exiting.set()
    for thread in list(_threads):
        thread.end()


atexit.register(_end_all)
