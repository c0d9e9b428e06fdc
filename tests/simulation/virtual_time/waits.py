"""`asyncio.wait_for` and `asyncio.gather` with the same callbacks in every version of Python.

Those of Python 3.12 and later schedule fewer callbacks than those of Python 3.11, so a seed would
be another story with each version. These here behave as in Python 3.11, which is the harder one for
programs: a cancellation that comes together with the result of `wait_for` is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch


@contextmanager
def same_in_every_version() -> Iterator[None]:
    """Replaces the two functions of asyncio in the block."""
    with patch.object(asyncio, "wait_for", wait_for), patch.object(asyncio, "gather", gather):
        yield


async def wait_for(work: Any, timeout: float | None) -> Any:
    """The result of an awaitable. Raises TimeoutError after ``timeout`` seconds, once the awaitable
    has ended by its cancellation."""
    if timeout is None:
        return await work
    future = asyncio.ensure_future(work)
    if timeout > 0:
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        timer = loop.call_later(timeout, _wake, waiter)
        try:
            await _first(future, waiter)
        except asyncio.CancelledError:
            if not future.done():
                await _cancelled(future)
                raise
        finally:
            timer.cancel()
    if future.done():
        return future.result()
    await _cancelled(future)
    try:
        return future.result()
    except asyncio.CancelledError:
        raise TimeoutError from None


async def _first(future: asyncio.Future[Any], waiter: asyncio.Future[None]) -> None:
    """Waits for the end of the future or for the waiter."""

    def ended(_: object) -> None:
        _wake(waiter)

    future.add_done_callback(ended)
    try:
        await waiter
    finally:
        future.remove_done_callback(ended)


async def _cancelled(future: asyncio.Future[Any]) -> None:
    """Cancels a future and waits for its end."""
    waiter = asyncio.get_running_loop().create_future()
    future.cancel()
    await _first(future, waiter)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def gather(*work: Any, return_exceptions: bool = False) -> asyncio.Future[list[Any]]:
    """The results of all awaitables, in their order. Without ``return_exceptions`` the first
    exception is that of the whole, and the other awaitables go on."""
    futures = [asyncio.ensure_future(awaitable) for awaitable in work]
    return Gathered(futures, return_exceptions=return_exceptions)


class Gathered(asyncio.Future[list[Any]]):
    """The results of several futures."""

    def __init__(self, futures: Sequence[asyncio.Future[Any]], *, return_exceptions: bool) -> None:
        super().__init__()
        self._all = futures
        self._left = len(futures)
        self._asked = False
        """A future that was asked to cancel, and is cancelled when all its futures have ended."""
        self._returns = return_exceptions
        if not futures:
            self.set_result([])
        for future in futures:
            future.add_done_callback(self._ended)

    def cancel(self, msg: Any = None) -> bool:
        """Cancels the futures that have not ended."""
        if self.done():
            return False
        cancelled = [future.cancel(msg) for future in self._all]
        self._asked = self._asked or any(cancelled)
        return any(cancelled)

    def _ended(self, future: asyncio.Future[Any]) -> None:
        self._left -= 1
        # Asked for, so that no loop reports an exception that was never retrieved.
        error = None if future.cancelled() else future.exception()
        if self.done():
            return
        if not self._returns and future.cancelled():
            self.set_exception(asyncio.CancelledError())
        elif not self._returns and error is not None:
            self.set_exception(error)
        elif not self._left and self._asked:
            self.set_exception(asyncio.CancelledError())
        elif not self._left:
            self.set_result([_outcome(future) for future in self._all])


def _outcome(future: asyncio.Future[Any]) -> Any:
    if future.cancelled():
        return asyncio.CancelledError()
    error = future.exception()
    return future.result() if error is None else error
