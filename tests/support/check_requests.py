"""Sends requests to a check controller over a real bus, as the workload-controller does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from nats.aio.subscription import Subscription

from admittance.checks import AdmissionCheckController
from admittance.events.codec import encode
from admittance.events.facts import CheckReported, CheckRequested, CheckWithdrawn
from admittance.events.names import token
from admittance.events.subjects import STREAM, check_durable, subject_of
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.bus.durables import check_durables
from support.servers import until, within

NAME = "example.com/budget"


def requested(
    name: str = "w", cycle: int = 1, *, parameters: Any = None, **more: Any
) -> CheckRequested:
    """A request about ``ns/<name>``."""
    return CheckRequested(
        **{
            "namespace": "ns",
            "name": name,
            "uid": f"uid-{name}",
            "controller": NAME,
            "check": "budget",
            "cycle": cycle,
            "parameters": msgspec.Raw(msgspec.json.encode(parameters)),
            "workload": msgspec.Raw(
                b'{"metadata":{"labels":{"team":"a"}},"spec":{"queueName":"q"}}'
            ),
            **more,
        }
    )


def withdrawn(name: str = "w", cycle: int = 1, reason: str = "Preempted") -> CheckWithdrawn:
    """The withdrawal of the request of `requested`."""
    return CheckWithdrawn(
        namespace="ns",
        name=name,
        uid=f"uid-{name}",
        controller=NAME,
        check="budget",
        cycle=cycle,
        reason=reason,
    )


class CheckRequester:
    """Sends requests to a controller, and records its verdicts."""

    def __init__(self, bus: Bus, controller: str = NAME) -> None:
        self.bus = bus
        self.controller = controller
        self.verdicts: list[CheckReported] = []
        self.headers: list[dict[str, str]] = []
        self.subscription: Subscription | None = None

    async def start(self, *, durable: bool = True) -> CheckRequester:
        if durable:
            await check_durables.make(self.bus, self.controller)

        async def on_message(message: Any) -> None:
            self.verdicts.append(msgspec.json.decode(message.data, type=CheckReported))
            self.headers.append(dict(message.headers or {}))

        subject = f"admit.check.reported.{token(self.controller)}.>"
        self.subscription = await self.bus.nc.subscribe(subject, cb=on_message)
        await self.bus.nc.flush()
        return self

    async def ask(self, *facts: CheckRequested | CheckWithdrawn, **headers: str) -> None:
        outcomes = await self.bus.publish_all(
            [Outgoing(subject_of(fact), encode(fact), headers or None) for fact in facts]
        )
        assert all(isinstance(outcome, int) for outcome in outcomes), outcomes

    def states(self, name: str = "w") -> list[str]:
        """The states sent for ``ns/<name>``, in order."""
        return [verdict.state for verdict in self.verdicts if verdict.name == name]

    async def until(self, claim: Callable[[], bool]) -> None:
        await until(claim)

    async def unacknowledged(self) -> int:
        """The numbers of unacknowledged and of undelivered messages."""
        name = check_durable(self.controller)
        info = await self.bus.api(f"CONSUMER.INFO.{STREAM}.{name}")
        return int(info["num_ack_pending"]) + int(info["num_pending"])

    async def until_acknowledged(self) -> None:
        async def poll() -> None:
            while await self.unacknowledged():  # noqa: ASYNC110  # it happens at the server
                await asyncio.sleep(0.02)

        await within(poll())


@asynccontextmanager
async def running(controller: AdmissionCheckController, url: str) -> AsyncIterator[asyncio.Event]:
    """Runs the controller during the block; the event ends it sooner."""
    stop = asyncio.Event()
    serving = asyncio.create_task(controller.serve(url, stop=stop))
    try:
        yield stop
    finally:
        stop.set()
        await within(serving)
