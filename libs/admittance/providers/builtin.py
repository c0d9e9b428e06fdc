"""What the providers that come with Admittance have in common: what they call what they make, and
how they are begun and end.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, NamedTuple

import structlog

from admittance.events.names import token
from admittance.events.reading import SetAside, Unreadable
from admittance.events.subjects import PROVIDERS
from admittance.providers.answers import Status
from admittance.providers.provider import Provider
from admittance.providers.request import Cancellation, Request
from admittance.providers.store import CANCELLED, Said, read_said
from admittance.runtime.bus import bucket
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import StaleRevision
from admittance.runtime.telemetry.set_aside import tell

INSTALLATION: Final = "admittance.dev/installation"
"""Label: which Admittance made it."""
REQUEST: Final = "admittance.dev/request"
"""Label, tag or annotation: for which request, by its id or a hash of it."""
CLASS: Final = "admittance.dev/provisioning-class"
GRACE_SECONDS: Final = 1.0
"""At the end: nothing is under way but waiting, and calls, which come to their end in any case."""


def provider_of(
    provisioning_class: str,
    obtain: Callable[[Request], Awaitable[Status]],
    free: Callable[[Cancellation], Awaitable[None]],
    *,
    parameters: type[Any] | None = None,
) -> Provider:
    """A provider of the class by these two functions."""
    provider = Provider(provisioning_class, parameters=parameters, grace_seconds=GRACE_SECONDS)
    provider.requested(obtain)
    provider.cancelled(free)
    return provider


async def installation(bus: Bus, provider: str) -> str:
    """Drawn once for each provider, and kept on the bus. ``provider``: a token."""
    # No class of capacity has a key that begins so.
    key = f"_{provider}.installation"
    while True:
        entry = await bucket.get(bus, key, bucket=PROVIDERS)
        if entry is not None and entry.value is not None:
            return entry.value.decode()
        drawn = secrets.token_hex(6).encode()
        expected = entry.revision if entry is not None else 0
        try:
            await bus.publish(bucket.put_message(key, drawn, expected=expected, bucket=PROVIDERS))
        except StaleRevision:
            continue
        return drawn.decode()


log = structlog.get_logger()


class Asked(NamedTuple):
    """What was said last of a request, and the class that it is of."""

    provisioning_class: str
    said: Said


async def all_asked(bus: Bus, classes: Iterable[str]) -> dict[str, Asked]:
    """Of every request of these classes, by its id: what the store has, in one reading of each."""
    found: dict[str, Asked] = {}
    for name in classes:
        entries = await bucket.read_all(bus, f"{token(name)}.*", bucket=PROVIDERS)
        for entry in entries:
            try:
                said = read_said(entry.value)
            except Unreadable as error:
                # Put there by another hand: as good as none.
                tell(SetAside(f"KV_{PROVIDERS}", entry.key, entry.revision, str(error)))
                continue
            found[said.id] = Asked(name, said)
    return found


def is_nobodys(said: Said | None) -> bool:
    """What there is for a request of which the store says so belongs to nobody, unless the request
    is worked on here: for before anything is made it is said that it will be."""
    return said is None or said.status in ("", CANCELLED)
