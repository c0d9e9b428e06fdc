"""Parts that the built-in providers share: labels of the objects that a provider creates, the name
of the installation, the stored requests, and the removal of objects without a request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Container, Iterable
from typing import Any, Final, NamedTuple, TypeVar

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
from admittance.runtime.errors import AdmittanceError, StaleRevision
from admittance.runtime.telemetry.object_faults import faults

INSTALLATION: Final = "admittance.dev/installation"
"""Label of an object that a provider created: the name of its Admittance installation."""
REQUEST: Final = "admittance.dev/request"
"""Label, tag or annotation of an object that a provider created: the id of the capacity request for
which the object was created, or a hash of the id.
"""
CLASS: Final = "admittance.dev/provisioning-class"
GRACE_SECONDS: Final = 1.0
"""Seconds that requests in progress get to finish when a built-in provider stops: few, because its
functions only wait, or make calls with a time limit.
"""


T = TypeVar("T")


class ObjectSteps(NamedTuple):
    """Performs the steps of a built-in provider that concern one request each, so that an exception
    of one step ends neither the process nor the steps for other requests. ``service``: the name of
    the provider's service; ``expected``: the errors of the place where the provider obtains
    capacity: the caller handles them, as it handles every AdmittanceError.
    """

    service: str
    expected: tuple[type[Exception], ...] = ()

    @property
    def _handled(self) -> tuple[type[Exception], ...]:
        return (AdmittanceError, *self.expected)

    async def attempt(self, step: str, request_id: str, work: Awaitable[object]) -> None:
        """Awaits a step for one request. Raises only expected errors; records any other exception
        as a fault of the request.
        """
        try:
            await work
        except self._handled:
            raise
        except Exception as error:
            faults.record(self.service, step, f"request {request_id}", error)

    async def call(self, step: str, request_id: str, work: Awaitable[T]) -> T:
        """Awaits a step for one request and returns its result. Records an exception that is not
        expected as a fault of the request, and raises it: for a caller that repeats the step.
        """
        try:
            return await work
        except self._handled:
            raise
        except Exception as error:
            faults.record(self.service, step, f"request {request_id}", error)
            raise


def provider_of(
    steps: ObjectSteps,
    provisioning_class: str,
    obtain: Callable[[Request], Awaitable[Status]],
    free: Callable[[Cancellation], Awaitable[None]],
    *,
    parameters: type[Any] | None = None,
) -> Provider:
    """Makes a provider of the provisioning class from ``obtain``, which obtains capacity, and
    ``free``, which frees it.
    """
    provider = Provider(provisioning_class, parameters=parameters, grace_seconds=GRACE_SECONDS)

    async def requested(request: Request) -> Status:
        return await steps.call("obtain capacity", request.id, obtain(request))

    async def cancelled(cancellation: Cancellation) -> None:
        await steps.call("free capacity", cancellation.id, free(cancellation))

    provider.requested(requested)
    provider.cancelled(cancelled)
    return provider


async def installation(bus: Bus, provider: str) -> str:
    """Returns the name of this Admittance installation for one provider. The name is drawn at
    random once and stored on the bus. ``provider``: the provider's name, as a token of a subject.
    """
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
    """The key under which a provider's `installation` is stored. The key begins with ``_``, as no
    key of a provisioning class in the bucket does.
    """
    return f"_{provider}.installation"


log = structlog.get_logger()


class StoredRequest(NamedTuple):
    """The last stored status of a request, and the request's provisioning class."""

    provisioning_class: str
    status: StoredStatus


async def stored_requests(bus: Bus, classes: Iterable[str]) -> dict[str, StoredRequest]:
    """Reads the stored requests of these provisioning classes; returns them by request id."""
    requests: dict[str, StoredRequest] = {}
    for name in classes:
        for entry in await bucket.read_all(bus, f"{token(name)}.*", bucket=PROVIDERS):
            status = status_of(entry)
            if status is not None:
                requests[status.id] = StoredRequest(name, status)
    return requests


class OrphanSweep:
    """Removes objects that a provider created for requests that are not live any more.

    A provider stores a request before it creates an object for the request. If the objects are
    listed before the stored requests are read, each object without a live request is therefore an
    orphan. ``in_progress``: the ids of the requests that this process works on; the objects of
    these requests are kept. ``only_cancelled``: remove only objects of cancelled requests, and keep
    objects of unknown and new requests; for a provider that cannot recognise its own objects, or
    creates them before the first status.
    """

    def __init__(
        self,
        bus: Bus,
        steps: ObjectSteps,
        classes: Collection[str],
        in_progress: Container[str] = (),
        *,
        only_cancelled: bool = False,
    ) -> None:
        self._bus = bus
        self._steps = steps
        self._classes = classes
        self._in_progress = in_progress
        self._only_cancelled = only_cancelled

    async def sweep(
        self, listed: Iterable[tuple[str, Callable[[], Awaitable[object]]]]
    ) -> dict[str, StoredRequest]:
        """Removes the objects among ``listed`` that have no live request. ``listed``: for each
        object the id of its request, and the call that removes the object. Returns the stored
        requests, by id. If a call raises an error that the provider does not expect, the error is
        recorded as a fault, and the other objects are removed.
        """
        stored = await stored_requests(self._bus, self._classes)
        for request_id, remove in listed:
            request = stored.get(request_id)
            if self.is_orphan(request_id, request.status if request is not None else None):
                await self._steps.attempt("remove an orphan", request_id, remove())
        return stored

    def is_orphan(self, request_id: str, status: StoredStatus | None) -> bool:
        """Whether an object belongs to no live request and must be removed. ``status``: the stored
        status of the object's request; None: the request is not stored.
        """
        if request_id in self._in_progress:
            return False
        if status is None or not status.status:
            return not self._only_cancelled
        return status.status == CANCELLED


class OtherInstallations:
    """Logs each other installation of Admittance that has objects in the same place, once. The
    objects of other installations are never removed, because those installations may still run.
    ``event``: the name of the log event.
    """

    def __init__(self, ours: str, event: str) -> None:
        self._ours = ours
        self._event = event
        self._logged: set[str] = set()

    def log(self, owners: Iterable[str]) -> None:
        """Logs the other installations among ``owners``: for each object the installation that
        created it.
        """
        others = Counter(owners)
        del others[self._ours]
        if others.keys() - self._logged:
            log.info(self._event, ours=self._ours, others=dict(others))
        self._logged = set(others)
