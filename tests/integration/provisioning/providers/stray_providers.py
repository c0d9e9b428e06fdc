"""Providers with one mistake each, as an author without the helper might write them."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any

from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus
from integration.checks.strays import Said, Stray

STRAY_CLASS = "stray.example.com"
TOKEN = "stray_example_com"


class StrayProvider(Stray):
    """Does everything right, unless a subclass does it wrong: capacity for ``size`` requests, and
    an answer after ``takes`` seconds."""

    durable = f"provider-{TOKEN}"
    asked = "admit.provisioning.requested."
    taken_back = "admit.provisioning.cancelled."
    all_of_it = f"admit.provisioning.*.{TOKEN}.>"
    size = 2
    takes = 0.0

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus)
        self.booked: dict[str, int] = {}
        self.gone: set[str] = set()
        self.numbers: dict[str, int] = {}

    def on_asked(self, data: bytes) -> None:
        with suppress(ValueError):
            asked = json.loads(data)
            if isinstance(asked, dict) and "podSets" in asked and "id" in asked:
                self.start(self.on_requested(asked))

    async def on_requested(self, asked: Said) -> None:
        await asyncio.sleep(self.takes)
        if asked["id"] in self.gone:
            return
        await self.provide(asked)

    async def provide(self, asked: Said) -> None:
        if await self.is_late(asked):
            return
        if asked["id"] not in self.booked and not self.has_room():
            await self.fail(asked)
            return
        self.book(asked)
        await self.say(asked, details={"machine": str(self.booked[asked["id"]])})

    async def is_late(self, asked: Said) -> bool:
        now = f"{clock.now():%Y-%m-%dT%H:%M:%S}"
        if asked.get("deadline", "9999") >= now:
            return False
        await self.fail(asked)
        return True

    def has_room(self) -> bool:
        return len(self.booked) < self.size

    def book(self, asked: Said) -> None:
        self.booked.setdefault(asked["id"], len(self.booked))

    async def fail(self, asked: Said, **more: Any) -> None:
        await self.say(asked, "failed", **{"message": "no room", "retryAfter": 5, **more})

    async def on_withdrawn(self, asked: Said) -> None:
        self.gone.add(asked["id"])
        self.booked.pop(asked["id"], None)

    async def say(self, asked: Said, word: str = "provisioned", **more: Any) -> None:
        said = {key: asked[key] for key in ("namespace", "name", "uid", "id")}
        await self.put_word(asked, word, json.dumps({**said, **more}).encode())

    async def put_word(self, asked: Said, word: str, data: bytes) -> None:
        name = asked["name"].replace(".", "_")
        subject = f"admit.provisioning.{word}.{TOKEN}.{asked['namespace']}.{name}"
        await self.bus.nc.publish(subject, data)


class PlainSubscription(StrayProvider):
    """Makes no mistake, but receives requests by a plain subscription instead of the durable."""

    listens = "subscription"


def saying(**fields: Any) -> type[StrayProvider]:
    """A provider that gives its statuses these fields."""

    class Saying(StrayProvider):
        async def say(self, asked: Said, word: str = "provisioned", **more: Any) -> None:
            await super().say(asked, word, **{**more, **fields})

    return Saying


class NeverAnswers(StrayProvider):
    async def provide(self, asked: Said) -> None:
        pass


class OnlyAccepts(StrayProvider):
    """Accepts each request, and never provides it."""

    async def provide(self, asked: Said) -> None:
        await self.say(asked, "accepted")


class SendsNoJson(StrayProvider):
    async def say(self, asked: Said, word: str = "provisioned", **more: Any) -> None:
        await self.put_word(asked, word, b"{'id': 7}")


class LeavesIdOut(StrayProvider):
    """Leaves the id out of its statuses."""

    async def say(self, asked: Said, word: str = "provisioned", **more: Any) -> None:
        said = {key: asked[key] for key in ("namespace", "name")}
        await self.put_word(asked, word, json.dumps(said).encode())


class SendsUnknownWord(StrayProvider):
    """Publishes a status with an unknown word instead of ``provisioned``."""

    async def say(self, asked: Said, word: str = "provisioned", **more: Any) -> None:
        await super().say(asked, "ready" if word == "provisioned" else word, **more)


class LeavesNamesUnescaped(StrayProvider):
    async def put_word(self, asked: Said, word: str, data: bytes) -> None:
        subject = f"admit.provisioning.{word}.{TOKEN}.{asked['namespace']}.{asked['name']}"
        await self.bus.nc.publish(subject, data)


class SendsLowerNumbers(StrayProvider):
    """Sends statuses with falling sequence numbers."""

    async def provide(self, asked: Said) -> None:
        await self.say(asked, "accepted", seq=2)
        await self.say(asked, seq=1)


class AcceptsAfterProviding(StrayProvider):
    """Publishes ``accepted`` after ``provisioned``."""

    async def provide(self, asked: Said) -> None:
        await self.say(asked)
        await self.say(asked, "accepted")


class RefusesItsOwnBooking(StrayProvider):
    """Fails a repeated request because its own booking takes the room."""

    async def provide(self, asked: Said) -> None:
        if asked["id"] in self.booked:
            await self.fail(asked)
        else:
            await super().provide(asked)


class BooksAgain(StrayProvider):
    """Books again when a request is delivered again."""

    def book(self, asked: Said) -> None:
        self.numbers[""] = self.numbers.get("", 0) + 1
        self.booked[asked["id"]] = self.numbers[""]


class BooksAgainSilently(StrayProvider):
    """Books again, and publishes no status of the second booking."""

    async def provide(self, asked: Said) -> None:
        if len(self.booked) >= self.size:
            await self.fail(asked)
            return
        self.booked[f"{asked['id']} {len(self.booked)}"] = 1
        await self.say(asked)

    async def on_withdrawn(self, asked: Said) -> None:
        self.gone.add(asked["id"])
        for booking in [booking for booking in self.booked if booking.startswith(asked["id"])]:
            del self.booked[booking]


class KnowsOnlyWorkloads(StrayProvider):
    """Identifies requests by their workload, and ignores their ids."""

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus)
        self.seen: set[str] = set()

    async def provide(self, asked: Said) -> None:
        if asked["name"] not in self.seen or asked["name"].startswith("answers"):
            self.seen.add(asked["name"])
            if asked["attempt"] == 1 or asked["name"].startswith("answers"):
                await super().provide(asked)


class FailsUnknownCancellations(StrayProvider):
    """Publishes ``failed`` when an unknown request is cancelled."""

    async def on_withdrawn(self, asked: Said) -> None:
        if asked["id"] not in self.booked:
            await self.fail(asked, message="unknown")
        await super().on_withdrawn(asked)


class WorksOnAfterCancellation(StrayProvider):
    """Acknowledges a cancellation, but still works on the request."""

    takes = 0.6

    async def on_withdrawn(self, asked: Said) -> None:
        self.booked.pop(asked["id"], None)


class ForgetsCancellations(StrayProvider):
    """Frees a cancelled request, and does not remember the cancellation."""

    async def on_withdrawn(self, asked: Said) -> None:
        self.booked.pop(asked["id"], None)


class FreesNothing(StrayProvider):
    """Does not free the bookings of cancelled requests."""

    async def on_withdrawn(self, asked: Said) -> None:
        if not asked["name"].startswith(("answers", "twice")):
            self.gone.add(asked["id"])
        elif asked["name"].startswith("answers"):
            await super().on_withdrawn(asked)


class RetriesWrongParameters(StrayProvider):
    """Reports unknown parameters as a temporary failure."""

    async def provide(self, asked: Said) -> None:
        if "providerTestUnknown" in asked.get("parameters", {}):
            await self.fail(asked)
        else:
            await super().provide(asked)


class EndsAtUnknownFields(StrayProvider):
    """Stops working at the first request with an unknown field."""

    dead = False

    async def provide(self, asked: Said) -> None:
        self.dead = self.dead or "providerTestUnknown" in asked
        if not self.dead:
            await super().provide(asked)


class IgnoresDeadlines(StrayProvider):
    async def is_late(self, asked: Said) -> bool:
        return False


class EndsAtGarbage(StrayProvider):
    """Stops working at the first message that it cannot read."""

    dead = False

    def on_asked(self, data: bytes) -> None:
        try:
            asked = json.loads(data)
            assert "podSets" in asked
        except (ValueError, AssertionError, TypeError):
            self.dead = True
        if not self.dead:
            super().on_asked(data)


class LosesMoreThanTen(StrayProvider):
    """Ignores requests that come while it works on ten."""

    under_way = 0

    async def provide(self, asked: Said) -> None:
        if self.under_way == 10:
            return
        self.under_way += 1
        await asyncio.sleep(0.05)
        self.under_way -= 1
        await super().provide(asked)


class RepeatsStatuses(StrayProvider):
    async def provide(self, asked: Said) -> None:
        for _ in range(30):
            await super().provide(asked)


class NeverAcknowledges(StrayProvider):
    acknowledges = False


class SendsWrongHeartbeats(StrayProvider):
    """Sends heartbeats that are not valid heartbeats."""

    async def provide(self, asked: Said) -> None:
        await self.bus.nc.publish(f"admit.alive.provisioning.{TOKEN}", b"I am well")
        await super().provide(asked)


class KnowsEveryRequest(StrayProvider):
    """Answers every query with ``provisioned``, also for unknown requests."""

    async def run(self) -> None:
        async def answer(message: Any) -> None:
            reply = {"id": json.loads(message.data)["id"], "status": "provisioned"}
            await message.respond(json.dumps(reply).encode())

        await self.bus.nc.subscribe(f"admit.api.provider.{TOKEN}", cb=answer)
        await super().run()


class OneMessageIdForAll(StrayProvider):
    """Publishes all its statuses with the same message id."""

    async def put_word(self, asked: Said, word: str, data: bytes) -> None:
        name = asked["name"].replace(".", "_")
        subject = f"admit.provisioning.{word}.{TOKEN}.{asked['namespace']}.{name}"
        await self.bus.nc.publish(subject, data, headers={"Nats-Msg-Id": "mine"})
