"""Shared parts of the providers that come with Admittance: labels of what they create, the
installation's name, and the stored statuses of their requests.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, NamedTuple

import structlog

from admittance.events.names import token
from admittance.events.reader import SetAside, Unreadable
from admittance.events.subjects import PROVIDERS
from admittance.providers.answers import Status
from admittance.providers.provider import Provider
from admittance.providers.request import Cancellation, Request
from admittance.providers.status_store import CANCELLED, StoredStatus, read_status
from admittance.runtime import chance
from admittance.runtime.bus import bucket
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import StaleRevision
from admittance.runtime.telemetry.logger import log_set_aside

INSTALLATION: Final = "admittance.dev/installation"
"""Label: the Admittance installation that created the object."""
REQUEST: Final = "admittance.dev/request"
"""Label, tag or annotation: the request the object was created for, as its id or a hash of it."""
CLASS: Final = "admittance.dev/provisioning-class"
GRACE_SECONDS: Final = 1.0
"""Short, because nothing but waiting and calls that end by themselves is under way."""


def provider_of(
    provisioning_class: str,
    obtain: Callable[[Request], Awaitable[Status]],
    free: Callable[[Cancellation], Awaitable[None]],
    *,
    parameters: type[Any] | None = None,
) -> Provider:
    """A provider of the class that obtains and frees with these two functions."""
    provider = Provider(provisioning_class, parameters=parameters, grace_seconds=GRACE_SECONDS)
    provider.requested(obtain)
    provider.cancelled(free)
    return provider


async def installation(bus: Bus, provider: str) -> str:
    """The random name of this installation, drawn once per provider and kept on the bus.
    ``provider``: a token."""
    key = installation_key(provider)
    while True:
        entry = await bucket.get(bus, key, bucket=PROVIDERS)
        if entry is not None and entry.value is not None:
            return entry.value.decode()
        drawn = chance.token_hex(6).encode()
        expected = entry.revision if entry is not None else 0
        try:
            await bus.publish(bucket.put_message(key, drawn, expected=expected, bucket=PROVIDERS))
        except StaleRevision:
            continue
        return drawn.decode()


def installation_key(provider: str) -> str:
    """The key of a provider's `installation`. Keys of a class never begin with ``_``."""
    return f"_{provider}.installation"


log = structlog.get_logger()


class StoredRequest(NamedTuple):
    """The last status of a request, and its class."""

    provisioning_class: str
    status: StoredStatus


async def stored_requests(bus: Bus, classes: Iterable[str]) -> dict[str, StoredRequest]:
    """Every request in the store of these classes, by its id."""
    found: dict[str, StoredRequest] = {}
    for name in classes:
        entries = await bucket.read_all(bus, f"{token(name)}.*", bucket=PROVIDERS)
        for entry in entries:
            try:
                status = read_status(entry.value)
            except Unreadable as error:
                # Not written by Admittance: treated as absent.
                log_set_aside(SetAside(f"KV_{PROVIDERS}", entry.key, entry.revision, str(error)))
                continue
            found[status.id] = StoredRequest(name, status)
    return found


def is_orphan(status: StoredStatus | None) -> bool:
    """Whether an object created for a request with this stored status is an orphan, if the request
    is not worked on here: a request is stored before anything is created for it."""
    return status is None or status.status in ("", CANCELLED)
