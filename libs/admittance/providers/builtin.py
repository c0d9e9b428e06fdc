"""Parts that the providers of Admittance share: labels of the objects that they create, the name of
the installation, the stored requests, and the removal of orphans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Container, Iterable
from typing import Any, Final, NamedTuple

import structlog

from admittance.events.names import token
from admittance.events.subjects import PROVIDERS
from admittance.providers.answers import Status
from admittance.providers.provider import Provider
from admittance.providers.request import Cancellation, Request
from admittance.providers.status_store import CANCELLED, StoredStatus, status_of
from admittance.runtime import chance
from admittance.runtime.bus import bucket
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import StaleRevision

INSTALLATION: Final = "admittance.dev/installation"
"""Label of an object: the Admittance installation that created the object."""
REQUEST: Final = "admittance.dev/request"
"""Label, tag or annotation of an object: the id of the request for which it was created, or a hash
of the id.
"""
CLASS: Final = "admittance.dev/provisioning-class"
GRACE_SECONDS: Final = 1.0
"""Seconds that the functions of a built-in provider get to finish at a stop: few, because they only
wait, or make calls with a time limit.
"""


def provider_of(
    provisioning_class: str,
    obtain: Callable[[Request], Awaitable[Status]],
    free: Callable[[Cancellation], Awaitable[None]],
    *,
    parameters: type[Any] | None = None,
) -> Provider:
    """Makes a provider of the provisioning class from these two functions."""
    provider = Provider(provisioning_class, parameters=parameters, grace_seconds=GRACE_SECONDS)
    provider.requested(obtain)
    provider.cancelled(free)
    return provider


async def installation(bus: Bus, provider: str) -> str:
    """The name of this installation, which is drawn at random once per provider and kept on the
    bus. ``provider``: the provider's name, as a token of a subject."""
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
    """The key of a provider's `installation`. The keys of provisioning classes in the bucket never
    begin with ``_``.
    """
    return f"_{provider}.installation"


log = structlog.get_logger()


class StoredRequest(NamedTuple):
    """The last stored status of a request, and the request's provisioning class."""

    provisioning_class: str
    status: StoredStatus


async def stored_requests(bus: Bus, classes: Iterable[str]) -> dict[str, StoredRequest]:
    """The stored requests of these provisioning classes, by id."""
    found: dict[str, StoredRequest] = {}
    for name in classes:
        for entry in await bucket.read_all(bus, f"{token(name)}.*", bucket=PROVIDERS):
            status = status_of(entry)
            if status is not None:
                found[status.id] = StoredRequest(name, status)
    return found


class OrphanSweep:
    """Removes objects that were created for requests that are not live any more.

    A request is stored before any object is created for it. So if the objects are listed before the
    store is read, either the store has the request of an object, or the request is not live.
    ``in_progress``: requests that this process works on; their objects are kept.
    ``only_cancelled``: for a provider that cannot recognise its own objects, or creates them before
    the first status: objects of unknown and new requests are kept.
    """

    def __init__(
        self,
        bus: Bus,
        classes: Collection[str],
        in_progress: Container[str] = (),
        *,
        only_cancelled: bool = False,
    ) -> None:
        self._bus = bus
        self._classes = classes
        self._in_progress = in_progress
        self._only_cancelled = only_cancelled

    async def sweep(
        self, listed: Iterable[tuple[str, Callable[[], Awaitable[object]]]]
    ) -> dict[str, StoredRequest]:
        """Removes the orphans among ``listed``: request ids, each with the call that removes its
        object. Returns the stored requests, by id."""
        stored = await stored_requests(self._bus, self._classes)
        for request_id, remove in listed:
            found = stored.get(request_id)
            if self.is_orphan(request_id, found.status if found is not None else None):
                await remove()
        return stored

    def is_orphan(self, request_id: str, status: StoredStatus | None) -> bool:
        """Whether an object at the provider belongs to no live request, given the stored status of
        its request."""
        if request_id in self._in_progress:
            return False
        if status is None or not status.status:
            return not self._only_cancelled
        return status.status == CANCELLED


class OtherInstallations:
    """Logs once each other installation of Admittance that has objects in the same place. The
    objects of other installations are kept, because those installations may still run. ``event``:
    the name of the log event.
    """

    def __init__(self, ours: str, event: str) -> None:
        self._ours = ours
        self._event = event
        self._logged: set[str] = set()

    def log(self, owners: Iterable[str]) -> None:
        """``owners``: for each listed object the installation that owns the object."""
        others = Counter(owners)
        del others[self._ours]
        if others.keys() - self._logged:
            log.info(self._event, ours=self._ours, others=dict(others))
        self._logged = set(others)
