"""What an answer says: cut where nobody minds, refused where its author has to know."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from admittance.events.base import MESSAGE_MAX, too_long
from admittance.events.shapes import PodSetUpdate


def sayable(message: str, most: int = MESSAGE_MAX) -> str:
    """A message as it is said: cut, and text where it was none (as names of files may be)."""
    return message[:most].encode("utf-8", "replace").decode()


def bounded(what: str, value: Any) -> None:
    """Raises ValueError, a sentence about ``what``, where value is too long as a whole, or is
    nothing that can be said."""
    try:
        found = too_long(what, value)
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as error:
        raise ValueError(f"{what}: {error}") from None
    if found:
        raise ValueError(found)


def updates_of(found: Sequence[PodSetUpdate | Mapping[str, Any]]) -> tuple[PodSetUpdate, ...]:
    """``pod_set_updates`` in one shape. Raises ValueError."""
    what = "pod_set_updates"
    try:
        updates = tuple(
            one if isinstance(one, PodSetUpdate) else msgspec.convert(one, PodSetUpdate)
            for one in found
        )
    except (TypeError, msgspec.ValidationError) as error:
        raise ValueError(f"{what}: {error}") from None
    bounded(what, updates)
    return updates


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
