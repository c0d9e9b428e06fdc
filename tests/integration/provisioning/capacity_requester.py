"""The provisioning check as a provider meets it, and a provider with the helper."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from admittance.events.codec import decode, encode
from admittance.events.provisioning import (
    ProvisioningCancelled,
    ProvisioningRequested,
    ProvisioningStatus,
)
from admittance.events.requests.services import ProviderQuery, ProviderReply
from admittance.events.subjects import subject_of
from admittance.providers import (
    Cancellation,
    Failed,
    Provider,
    Provisioned,
    Request,
)
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.bus.durables import provider_durables
from support.servers import TestServer, within

CLASS = "check-capacity.autoscaling.x-k8s.io"


def requested(request_id: str = "u/c/1/1", **fields: Any) -> ProvisioningRequested:
    """A request for capacity of the workload ``w``."""
    about = {"namespace": "ns", "name": "w", "uid": "u", "provisioning_class": CLASS}
    return ProvisioningRequested(
        id=request_id, check="c", cycle=1, attempt=1, **{**about, **fields}
    )


class CapacityRequester:
    """Acts as the provisioning check. ``said``: all statuses, in the order of the log."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self.said: list[ProvisioningStatus] = []

    async def start(self) -> CapacityRequester:
        await provider_durables.make(self._bus, CLASS)
        for word in ("accepted", "provisioned", "failed", "booking_expired", "capacity_revoked"):
            await self._bus.nc.listen(f"admit.provisioning.{word}.*.*.*", self._on_status)
        return self

    def _on_status(self, subject: bytes, _reply: bytes, data: bytes, _headers: bytes) -> None:
        fact = decode(subject.decode(), data)
        assert isinstance(fact, ProvisioningStatus)
        self.said.append(fact)

    async def asks(self, request_id: str = "u/c/1/1", **fields: Any) -> None:
        fact = requested(request_id, **fields)
        await self._bus.publish(Outgoing(subject_of(fact), encode(fact)))

    async def takes_back(self, request_id: str = "u/c/1/1") -> None:
        fact = ProvisioningCancelled(
            namespace="ns",
            name="w",
            uid="u",
            provisioning_class=CLASS,
            id=request_id,
            reason="Evicted",
        )
        await self._bus.publish(Outgoing(subject_of(fact), encode(fact)))

    async def query(self, request_id: str) -> ProviderReply:
        subject = "admit.api.provider.check-capacity_autoscaling_x-k8s_io"
        answer = await self._bus.request(subject, encode(ProviderQuery(id=request_id)))
        return msgspec.json.decode(answer, type=ProviderReply)

    def words(self) -> list[str]:
        return [type(status).__name__ for status in self.said]


@asynccontextmanager
async def running(provider: Provider, server: TestServer) -> AsyncIterator[asyncio.Event]:
    stop = asyncio.Event()
    task = asyncio.create_task(provider.serve(server.url, stop=stop))
    try:
        yield stop
    finally:
        stop.set()
        await within(task)


class Pool:
    """Capacity for a number of pods. ``booked``: pods by request."""

    def __init__(self, size: int = 10) -> None:
        self.size = size
        self.booked: dict[str, int] = {}
        self.calls: list[str] = []
        self.before: Callable[[Request], Awaitable[None]] | None = None

    def provider(self, **more: Any) -> Provider:
        made = Provider(CLASS, **more)

        @made.requested
        async def book(request: Request) -> Any:
            self.calls.append(request.id)
            if self.before is not None:
                await self.before(request)
            if request.pods > self.size - sum(self.booked.values()):
                return Failed(f"{request.pods} pods, and no room", retry_after=30)
            self.booked[request.id] = request.pods
            return Provisioned("booked", details={"pool": "a"})

        @made.cancelled
        async def free(cancellation: Cancellation) -> None:
            self.booked.pop(cancellation.id, None)

        return made


def pods(count: int) -> dict[str, Any]:
    containers = [{"name": "c", "resources": {"requests": {"cpu": "500m"}}}]
    template = msgspec.Raw(msgspec.json.encode({"spec": {"containers": containers}}))
    return {"pod_sets": ({"name": "main", "count": count, "template": template},)}


async def until_cancelled(requester: CapacityRequester, request_id: str = "u/c/1/1") -> None:
    async def poll() -> None:
        # Nothing is said of it that could be waited for.
        while (await requester.query(request_id)).status != "cancelled":  # noqa: ASYNC110
            await asyncio.sleep(0.02)

    await within(poll())
