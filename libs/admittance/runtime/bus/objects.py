"""Lists stored objects without a consumer: page by page, by a service or by direct get."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from admittance.events import subjects
from admittance.events.names import token
from admittance.events.requests import Objects, ObjectsReply
from admittance.events.subjects import ALL_NAMESPACES
from admittance.runtime.bus.bucket import Entry, get_directly, read_page
from admittance.runtime.bus.bus import Bus

PAGE: Final = 500


def objects_subject(namespace: str | None) -> str:
    """The subject that lists objects of the namespace, of all namespaces (None), or without
    namespace ("").
    """
    if namespace == "":
        return "admit.api.objects"
    return f"admit.api.objects.{ALL_NAMESPACES if namespace is None else token(namespace)}"


async def list_objects(
    bus: Bus, ask: Callable[[Objects], Awaitable[ObjectsReply]], kind: str
) -> list[Entry]:
    """All objects of a kind that ``ask`` returns page by page, by key. ``ask`` sends a request on
    an `objects_subject`. Raises what ``ask`` raises, Unavailable, and Refused.
    """
    found: dict[str, Entry] = {}
    after = 0
    while True:
        reply = await ask(Objects(kind=kind, after=after, limit=PAGE))
        for one in reply.objects:
            if one.value is not msgspec.UNSET:
                found[one.key] = Entry(one.key, bytes(one.value), one.revision)
            elif (entry := await get_directly(bus, one.key)) is not None:
                found[one.key] = entry
        after = reply.last
        if not after:
            return _present(found)


async def read_directly(bus: Bus, pattern: str, *, bucket: str = subjects.BUCKET) -> list[Entry]:
    """All entries under the pattern, by key, read by direct get: only for users that may read the
    whole bucket. Raises Unavailable and Refused.
    """
    found: dict[str, Entry] = {}
    after = 0
    while True:
        page = await read_page(bus, pattern, after=after, limit=PAGE, bucket=bucket)
        found.update((entry.key, entry) for entry in page)
        if len(page) < PAGE:
            return _present(found)
        after = page[-1].revision


def _present(found: dict[str, Entry]) -> list[Entry]:
    return sorted(
        (entry for entry in found.values() if entry.value is not None),
        key=lambda entry: entry.key,
    )
