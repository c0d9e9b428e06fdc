"""Capacity and its provider: a program of the helper that ships, as it may be, and what must hold
whatever provides.

The program answers at once, late or never; it reports failures, expired and revoked capacity, and
dies between a booking and its answer. Its bookings remain when the program is killed. Once the
program is settled, it provides every request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final

import msgspec

from admittance.events import provisioning as facts
from admittance.events.codec import decode
from admittance.events.subjects import PROVIDERS
from admittance.providers import (
    Accepted,
    BookingExpired,
    Cancellation,
    CapacityRevoked,
    Failed,
    Provider,
    Provisioned,
    Request,
    Status,
)
from admittance.providers.status_store import StoredStatus
from admittance.provisioning.machine_pool import BOOKED
from admittance.provisioning.observed_state import CONTROLLER
from admittance.provisioning.pool_bookings import read_booking
from admittance.provisioning.steps import NOT_NEEDED
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.streams import KV_PROVIDERS
from admittance.runtime.process.settings import Settings
from admittance.workload import stored as workloads
from admittance.workload.conditions import Type, is_true
from admittance.workload.stored import StoredWorkload
from simulation.environment.programs import Program, Replica
from simulation.nats.messages import Message
from simulation.nats.observed import Server, Stored
from simulation.transcript import Broken
from simulation.virtual_time.loop import VirtualLoop

CLASS: Final = "capacity"
WEIGHTS: Final = {
    "at once": 8.0,
    "late": 3.0,
    "never": 0.5,
    "fails": 3.0,
    "revokes": 1.0,
    "expires": 1.0,
    "dies": 2.0,
}
"""The weights of the ways in which the provider handles a request."""


class UnreliableProvider(Program):
    """``booked``: ids that it keeps capacity for. ``die`` kills the process that calls it."""

    SERVICE = "provider"

    def __init__(self, loop: VirtualLoop, rng: Random, die: Callable[[], None]) -> None:
        super().__init__(loop, rng)
        self.die = die
        self.booked: set[str] = set()

    async def run(self, bus: Bus, settings: Settings, *, stop: asyncio.Event) -> None:
        replica = ProviderReplica(self, bus)
        self.join(replica)
        await replica.provider._work(bus, settings, stop)


class ProviderReplica(Replica):
    """One life of the program."""

    def __init__(self, program: UnreliableProvider, bus: Bus) -> None:
        super().__init__(program, bus)
        self.provider = Provider(CLASS)
        self.provider.requested(self._obtain)
        self.provider.cancelled(self._free)
        self._program = program

    async def _obtain(self, request: Request) -> Status:
        rng, program = self.rng, self._program
        course = rng.choices(list(WEIGHTS), weights=list(WEIGHTS.values()))[0]
        late = rng.random() * rng.choice((0.05, 1.0, 8.0))
        if not self.settled.is_set():
            if course == "fails":
                await self.pause(late)
                return Failed("so", retryable=rng.random() < 0.95)
            if course == "never":
                await self.pause()
        program.booked.add(request.id)
        if not self.settled.is_set():
            match course:
                case "dies":
                    program.die()
                    await asyncio.sleep(1.0)
                case "late":
                    await request.say(Accepted("so"))
                    await self.pause(late + rng.random() * rng.choice((5.0, 30.0)))
                case "revokes" | "expires":
                    after = late + rng.random() * rng.choice((0.1, 3.0, 15.0))
                    self.later(after, partial(self._end, request.id, course))
            await self.pause(late / 8)
        return Provisioned("so")

    async def _end(self, request_id: str, course: str) -> None:
        self._program.booked.discard(request_id)
        status = CapacityRevoked("so") if course == "revokes" else BookingExpired("so")
        await self.provider.report(request_id, status)

    async def _free(self, cancellation: Cancellation) -> None:
        self._program.booked.discard(cancellation.id)


class Capacity:
    """What must hold of capacity, seen on the bus. ``given``: what was ever provisioned, as uid,
    check and cycle. ``open``: the request of each attempt that is not cancelled."""

    def __init__(self, server: Server, booked: set[str]) -> None:
        """``booked``: what a provider without a bucket has booked."""
        self._server = server
        self._booked = booked
        self._requests: dict[str, facts.ProvisioningRequested] = {}
        self._open: dict[str, str] = {}
        self.given: set[tuple[str, str, int]] = set()
        self._runs: set[str] = set()
        server.log.on_stored.append(self._on_fact)
        server.nats.streams[KV_PROVIDERS].on_stored.append(self._on_record)
        server.bucket.on_stored.append(self._seen)

    def _on_fact(self, stored: Stored) -> None:
        if not stored.subject.startswith("admit.provisioning."):
            return
        fact = decode(stored.subject, stored.data)
        match fact:
            case facts.ProvisioningRequested():
                self._requests[fact.id] = fact
                other = self._open.setdefault(_attempt(fact.id), fact.id)
                if other != fact.id:
                    raise Broken(f"booked twice for one attempt: {other} and {fact.id}")
            case facts.ProvisioningCancelled():
                self._open.pop(_attempt(fact.id), None)
            case facts.Provisioned():
                self._give(fact.id)

    def _on_record(self, stored: Message) -> None:
        """A provider stores a status before the log has it, and answers queries from its store."""
        if stored.subject.startswith(f"$KV.{PROVIDERS}.{CLASS}.") and stored.data:
            status = msgspec.json.decode(stored.data, type=StoredStatus)
            if status.status == Provisioned.word:
                self._give(status.id)

    def _give(self, request_id: str) -> None:
        if request_id in self._requests:
            request = self._requests[request_id]
            self.given.add((request.uid, request.check, request.cycle))

    def _seen(self, stored: Stored) -> None:
        if not stored.subject.startswith("workload.") or stored.gone:
            return
        workload = workloads.decode(stored.data)
        key = f"{workload.metadata.uid}/{workload.status.admission_cycle}"
        if not is_true(workload, Type.ADMITTED):
            return
        if key not in self._runs:
            self._runs.add(key)
            self._check(stored.subject, workload)

    def _check(self, key: str, workload: StoredWorkload) -> None:
        """No workload is admitted without the capacity that it needs."""
        status = workload.status
        for row in status.admission_checks:
            if row.name not in self._ours() or row.state != "Ready" or row.message == NOT_NEEDED:
                continue
            if (workload.metadata.uid, row.name, status.admission_cycle) not in self.given:
                raise Broken(f"{key} is admitted without its capacity")

    def _ours(self) -> set[str]:
        booked = set()
        for key, stored in self._server.bucket.last.items():
            if key.startswith("admissioncheck.") and CONTROLLER.encode() in stored.data:
                booked.add(key.partition(".")[2])
        return booked

    def check_end(self) -> None:
        """Every booking belongs to a live workload, and no request of a deleted workload is
        kept."""
        holders = set()
        for key, stored in self._server.bucket.last.items():
            if key.startswith("workload.") and not stored.gone:
                workload = workloads.decode(stored.data)
                if not is_true(workload, Type.FINISHED):
                    holders.add(workload.metadata.uid)
        for request_id in sorted(self._booked | self._booked_in_pools()):
            if request_id.partition("/")[0] not in holders:
                raise Broken(f"{request_id} is booked for no live workload")
        for key, stored in self._server.bucket.last.items():
            if key.startswith("provisioningrequest.") and not stored.gone:
                raise Broken(f"{key} is still kept")

    def _booked_in_pools(self) -> set[str]:
        prefix = f"$KV.{PROVIDERS}."
        return {
            read_booking(message.subject.removeprefix(prefix), message.data)[1].id
            for message in self._server.nats.streams[KV_PROVIDERS].last.values()
            if message.subject.startswith(f"{prefix}{BOOKED}.") and message.data
        }


def _attempt(request_id: str) -> str:
    return request_id.partition("~")[0]
