"""Calls that are not given up half way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


async def whole(call: Awaitable[T]) -> T:
    """Does what it does to its end, also when we are cancelled: a call that was given up may still
    be carried out, and what it makes would be found by nobody who frees at once."""
    task = asyncio.ensure_future(call)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if not task.done():
            await asyncio.wait([task])
        raise
