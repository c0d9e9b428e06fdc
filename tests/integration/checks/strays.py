"""Check controllers with one fault each, written with a NATS client only."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from admittance.runtime.bus.bus import Bus

Said = dict[str, Any]
DURABLE = "check-example_com=2Fstray"
STRAY = "example.com/stray"


class Stray:
    """Has no fault; its subclasses have one each."""

    acknowledges = True
    listens = "durable"
    durable = DURABLE
    asked = "admit.check.requested."
    taken_back = "admit.check.withdrawn."
    all_of_it = "admit.check.*.example_com=2Fstray.>"

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.tasks: set[asyncio.Task[None]] = set()
        self.withdrawn: set[tuple[str, int]] = set()

    async def run(self) -> None:
        if self.listens == "subscription":
            await self.bus.nc.subscribe(self.all_of_it, cb=self.on_message)
            await self.bus.nc.flush()
            await asyncio.Event().wait()
        inbox = self.bus.nc.new_inbox()
        await self.bus.nc.subscribe(inbox, cb=self.on_message)
        while True:
            await self.bus.nc.publish(
                f"$JS.API.CONSUMER.MSG.NEXT.ADMITTANCE.{self.durable}",
                b'{"batch":500,"expires":1000000000}',
                reply=inbox,
            )
            await asyncio.sleep(0.2)

    async def on_message(self, message: Any) -> None:
        if message.subject.startswith(self.asked):
            self.on_asked(message.data)
        elif message.subject.startswith(self.taken_back):
            said = json.loads(message.data)
            self.withdrawn.add((said["name"], said["cycle"]))
            self.start(self.on_withdrawn(said))
        else:
            return
        if self.acknowledges and self.listens == "durable":
            await self.bus.nc.publish(message.reply, b"+ACK")

    def on_asked(self, data: bytes) -> None:
        self.start(self.on_requested(json.loads(data)))

    def start(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def on_requested(self, asked: Said) -> None:
        await self.say(asked)

    async def on_withdrawn(self, asked: Said) -> None:
        pass

    async def say(self, asked: Said, **more: Any) -> None:
        said = {key: asked[key] for key in ("namespace", "name", "uid", "check", "cycle")}
        await self.put(asked, json.dumps({**said, "state": "Ready", **more}).encode())

    def subject(self, asked: Said) -> str:
        name = asked["name"].replace(".", "_")
        return f"admit.check.reported.example_com=2Fstray.{asked['namespace']}.{name}"

    async def put(self, asked: Said, data: bytes) -> None:
        await self.bus.nc.publish(self.subject(asked), data)


def answering(**fields: Any) -> type[Stray]:
    """A controller that gives its verdicts these fields."""

    class Answering(Stray):
        async def on_requested(self, asked: Said) -> None:
            await self.say(asked, **fields)

    return Answering


class NeverAnswers(Stray):
    async def on_requested(self, asked: Said) -> None:
        pass


class SendsNoJson(Stray):
    async def on_requested(self, asked: Said) -> None:
        await self.put(asked, b"{'state': 'Ready'}")


class JudgesAfterWithdrawal(Stray):
    """Continues its work when its request is withdrawn."""

    async def on_requested(self, asked: Said) -> None:
        await asyncio.sleep(0.6)
        await self.say(asked)


class AnswersWithdrawals(Stray):
    """Sends its verdict again when the request is withdrawn."""

    async def on_withdrawn(self, asked: Said) -> None:
        await self.say(asked)


class NeverAcknowledges(Stray):
    acknowledges = False


class LeavesNamesUnescaped(Stray):
    def subject(self, asked: Said) -> str:
        return f"admit.check.reported.example_com=2Fstray.{asked['namespace']}.{asked['name']}"


class ChangesItsVerdict(Stray):
    """Sends another verdict each time it gets a request for the same workload."""

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus)
        self.seen: set[str] = set()

    async def on_requested(self, asked: Said) -> None:
        first = asked["name"] not in self.seen
        self.seen.add(asked["name"])
        await self.say(asked, state="Ready" if first else "Retry")


class DropsLateRetries(Stray):
    """Stops its work at every withdrawal, whatever the reason."""

    async def on_requested(self, asked: Said) -> None:
        await asyncio.sleep(0.2)
        if (asked["name"], asked["cycle"]) not in self.withdrawn:
            await self.say(asked, state="Retry", requeueAfterSeconds=60)


class EndsAtUnknownFields(Stray):
    """Stops working at the first request with unknown parameters or fields."""

    dead = False

    async def on_requested(self, asked: Said) -> None:
        self.dead = self.dead or "checkTestUnknown" in (asked.get("parameters") or {})
        if not self.dead:
            await self.say(asked)


class TenASecond(Stray):
    """Handles at most ten requests a second."""

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus)
        self.lock = asyncio.Semaphore(1)

    async def on_requested(self, asked: Said) -> None:
        async with self.lock:
            await asyncio.sleep(0.1)
            await self.say(asked)


class RepeatsVerdicts(Stray):
    async def on_requested(self, asked: Said) -> None:
        for _ in range(30):
            await self.say(asked, message="still fine")


class SendsWrongHeartbeats(Stray):
    """Sends invalid heartbeats."""

    async def on_requested(self, asked: Said) -> None:
        await self.bus.nc.publish("admit.alive.check.example_com=2Fstray", b"I am well")
        await self.say(asked)


class PlainSubscription(Stray):
    """A controller without a fault that uses a plain subscription instead of the durable."""

    listens = "subscription"


@asynccontextmanager
async def at_work(make: Callable[[Bus], Stray], url: str) -> AsyncIterator[Stray]:
    """Runs the stray on its own connection during the block."""
    bus = await Bus.connect(url, name="stray")
    stray = make(bus)
    working = asyncio.create_task(stray.run())
    try:
        yield stray
    finally:
        for task in (working, *stray.tasks):
            task.cancel()
        await asyncio.gather(working, *stray.tasks, return_exceptions=True)
        await bus.close()
