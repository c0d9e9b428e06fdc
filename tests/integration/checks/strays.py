"""Check controllers that do wrong, each in its own way, as somebody might write them with nothing
but a client of the bus."""

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
    """Does everything right, unless a subclass does it wrong."""

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


class Silent(Stray):
    async def on_requested(self, asked: Said) -> None:
        pass


class Forgetful(Stray):
    """Says the same cycle every time."""

    async def on_requested(self, asked: Said) -> None:
        await self.say(asked, cycle=1)


class Inventive(Stray):
    async def on_requested(self, asked: Said) -> None:
        await self.say(asked, state="Approved")


class Garbled(Stray):
    async def on_requested(self, asked: Said) -> None:
        await self.put(asked, b"{'state': 'Ready'}")


class Deaf(Stray):
    """Judges on when its request was withdrawn."""

    async def on_requested(self, asked: Said) -> None:
        await asyncio.sleep(0.6)
        await self.say(asked)


class Stubborn(Stray):
    """Says once more what it thinks when it is told to stop."""

    async def on_withdrawn(self, asked: Said) -> None:
        await self.say(asked)


class Hoarding(Stray):
    acknowledges = False


class Unescaped(Stray):
    def subject(self, asked: Said) -> str:
        return f"admit.check.reported.example_com=2Fstray.{asked['namespace']}.{asked['name']}"


class Impatient(Stray):
    """Asks for a delay from some time in the past."""

    async def on_requested(self, asked: Said) -> None:
        await self.say(asked, state="Retry", requeueAfterSeconds=-5)


class Endless(Stray):
    async def on_requested(self, asked: Said) -> None:
        await self.say(asked, state="Retry", requeueAfterSeconds=10_000_000_000)


class Doubting(Stray):
    """Answers the other way round each time it hears of a workload."""

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus)
        self.heard: set[str] = set()

    async def on_requested(self, asked: Said) -> None:
        first = asked["name"] not in self.heard
        self.heard.add(asked["name"])
        await self.say(asked, state="Ready" if first else "Retry")


class Dropping(Stray):
    """Would say Retry, but stops judging whatever the reason of the withdrawal."""

    async def on_requested(self, asked: Said) -> None:
        await asyncio.sleep(0.2)
        if (asked["name"], asked["cycle"]) not in self.withdrawn:
            await self.say(asked, state="Retry", requeueAfterSeconds=60)


class Strict(Stray):
    """Dies of what it does not know."""

    dead = False

    async def on_requested(self, asked: Said) -> None:
        self.dead = self.dead or "checkTestUnknown" in (asked.get("parameters") or {})
        if not self.dead:
            await self.say(asked)


class Overwhelmed(Stray):
    """Takes on no more than ten requests a second."""

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus)
        self.lock = asyncio.Semaphore(1)

    async def on_requested(self, asked: Said) -> None:
        async with self.lock:
            await asyncio.sleep(0.1)
            await self.say(asked)


class Chatty(Stray):
    async def on_requested(self, asked: Said) -> None:
        for _ in range(30):
            await self.say(asked, message="still fine")


class Overreaching(Stray):
    """Adds to a pod set that nobody has."""

    async def on_requested(self, asked: Said) -> None:
        await self.say(asked, podSetUpdates=[{"name": "workers", "labels": {"a": "b"}}])


class Breathless(Stray):
    """Its heartbeats are no heartbeats."""

    async def on_requested(self, asked: Said) -> None:
        await self.bus.nc.publish("admit.alive.check.example_com=2Fstray", b"I am well")
        await self.say(asked)


class Listening(Stray):
    """Does nothing wrong, and hears without the durable."""

    listens = "subscription"


@asynccontextmanager
async def at_work(make: Callable[[Bus], Stray], url: str) -> AsyncIterator[Stray]:
    """The stray works on a connection of its own as long as the block lasts."""
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
