"""Leading on the bus: drives `admittance.lease.tenure` with heartbeats, epochs and barriers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec
import structlog

from admittance.events import subjects
from admittance.events.names import BadToken, plain, token
from admittance.events.system import Barrier, Epoch
from admittance.lease.tenure import Takeover, Tenure
from admittance.runtime import clock, lease_io
from admittance.runtime.bucket import BucketReader
from admittance.runtime.bus import EXPECTED, Bus, Outgoing
from admittance.runtime.errors import Refused, SetupError, StaleRevision, Unavailable
from admittance.runtime.parts import parts

_encode = msgspec.json.Encoder().encode
log = structlog.get_logger()

RENEWALS: Final = 4
"""Heartbeats within one TTL: three may be late before others believe us dead."""
UNWILLING_SECONDS: Final = 0.5
"""Pause after the log took no epoch, for another reason than that somebody was faster."""


class Leading:
    """What one instance of a service leads. ``changed`` is set whenever that may have changed."""

    def __init__(
        self,
        bus: Bus,
        service: str,
        instance: str,
        *,
        ttl_seconds: float,
        config: dict[str, Any] | None = None,
    ) -> None:
        """``config``: goes on the log with every epoch, for whoever repeats a decision."""
        self.tenure = Tenure(instance)
        self._config = config
        self.changed = asyncio.Event()
        self.watching = asyncio.Event()
        self._bus = bus
        self._service = service
        self._instance = instance
        self._ttl = ttl_seconds
        self._ours: set[int] = set()
        self._known: set[str] = set()
        self._unsure: set[str] = set()
        self._born = 0

    async def run(self) -> None:
        """Says that we live, hears who else does, and which epochs are taken; until cancelled."""
        self._born = await lease_io.end_of_log(self._bus)
        await lease_io.say_alive(self._bus, self._service, self._instance, ttl_seconds=self._ttl)
        subscription = await self._bus.nc.subscribe(f"{subjects.EPOCH}*")
        try:
            async with parts() as tasks:
                tasks.create_task(self._beat())
                tasks.create_task(self._watch())
                tasks.create_task(self._hear(subscription))
        finally:
            with suppress(Exception):
                await subscription.unsubscribe()

    async def goodbye(self) -> None:
        """Ends in order, so that others take over at once."""
        with suppress(Refused, Unavailable):
            await lease_io.say_goodbye(self._bus, self._service, self._instance)

    async def take(self, domains: Iterable[str], *, barrier: bool) -> list[str]:
        """Takes those of the domains that nobody alive leads; the ones that we hold from now on.

        With a barrier they may be decided for once it echoes; without, at once.
        """
        fresh = [domain for domain in domains if domain not in self._known]
        if fresh:
            await self._read(fresh)
        wanted = self.tenure.wanted(domains)
        if not wanted:
            return []
        try:
            outcomes = await self._bus.publish_all([self._epoch(take) for take in wanted])
        except Unavailable:
            for take in wanted:
                self.tenure.not_taken(take.domain)
                self._unsure.add(take.domain)
            await self._read([take.domain for take in wanted])
            return []
        taken: list[tuple[str, int]] = []
        refused: list[str] = []
        unwilling: Refused | None = None
        for take, outcome in zip(wanted, outcomes, strict=True):
            if isinstance(outcome, Refused):
                self.tenure.not_taken(take.domain)
                refused.append(take.domain)
                if not isinstance(outcome, StaleRevision):
                    unwilling = outcome
                continue
            self._ours.add(outcome)
            if self.tenure.took(take.domain, outcome):
                taken.append((take.domain, outcome))
        if barrier:
            await self._barriers(taken)
        else:
            for domain, epoch in taken:
                self.tenure.echoed(domain, epoch)
        # Only now, since it may fail: what is held without a barrier would be held so for ever.
        if refused:
            await self._read(refused)
        if unwilling is not None:
            # Such as a full log: nothing that asking again at once would mend.
            log.warning("epoch_refused", error=str(unwilling), domains=len(refused))
            await asyncio.sleep(UNWILLING_SECONDS)
        self.changed.set()
        return [domain for domain, _ in taken]

    async def lost(self, domain: str) -> None:
        """A decision was refused by the fence, or what became of it is unknown."""
        self.tenure.lost(domain)
        self.changed.set()
        await self._read([domain])

    def echoed(self, domain: str, epoch: int) -> bool:
        """The echo of a barrier came. True when the domain is ours to decide for from now on."""
        return self.tenure.echoed(domain, epoch)

    def _epoch(self, take: Takeover) -> Outgoing:
        said = Epoch(
            domain=take.domain, owner=self._instance, time=clock.now(), config=self._config
        )
        headers = {EXPECTED: str(take.expected)}
        return Outgoing(lease_io.epoch_subject(take.domain), _encode(said), headers)

    async def _barriers(self, taken: Sequence[tuple[str, int]]) -> None:
        messages = [
            Outgoing(
                f"{subjects.BARRIER}{token(domain)}",
                _encode(Barrier(domain=domain, owner=self._instance, epoch=epoch)),
                lease_io.fence(domain, epoch),
            )
            for domain, epoch in taken
        ]
        try:
            outcomes = await self._bus.publish_all(messages)
        except Unavailable:
            for domain, _ in taken:
                self.tenure.lost(domain)
            return
        lost = [
            domain
            for (domain, _), outcome in zip(taken, outcomes, strict=True)
            if isinstance(outcome, Refused)
        ]
        for domain in lost:
            self.tenure.lost(domain)
        await self._read(lost)

    async def _read(self, domains: Sequence[str]) -> None:
        for start in range(0, len(domains), 200):
            part = domains[start : start + 200]
            before = [self.tenure.known(domain) for domain in part]
            found = await asyncio.gather(
                *(lease_io.read_epoch(self._bus, domain) for domain in part)
            )
            for domain, known, (sequence, said) in zip(part, before, found, strict=True):
                self._known.add(domain)
                if sequence:
                    self._seen(domain, sequence, said.owner if said is not None else "")
                elif self.tenure.forgotten(domain, known):
                    log.warning("epoch_too_old", domain=domain, epoch=known)

    def _seen(self, domain: str, sequence: int, owner: str) -> None:
        unknown = owner == self._instance and sequence not in self._ours
        if unknown and domain in self._unsure:
            self._unsure.discard(domain)
            self._ours.add(sequence)
        elif unknown and self._ours and sequence > self._born:
            # Not one of an earlier life: it is younger than this one.
            raise SetupError(
                f"another process runs as {self._service} instance {self._instance}: "
                "give each its own ADMIT_INSTANCE"
            )
        if self.tenure.epoch_seen(domain, sequence, owner):
            log.warning("leadership_lost", domain=domain, to=owner)
        self.changed.set()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._ttl / RENEWALS)
            try:
                await lease_io.say_alive(
                    self._bus, self._service, self._instance, ttl_seconds=self._ttl
                )
            except (Refused, Unavailable) as error:
                log.warning("heartbeat_failed", error=str(error))

    async def _watch(self) -> None:
        pattern = f"_alive.{token(self._service)}.*"
        reader = BucketReader(self._bus, (pattern,), bucket=subjects.CLAIMS)
        async for entries in reader.batches():
            for entry in entries:
                instance = plain(entry.key.rpartition(".")[2])
                if entry.value is None:
                    self.tenure.gone(instance)
                else:
                    self.tenure.alive(instance)
            if reader.loaded.is_set():
                self.watching.set()
            self.changed.set()

    async def _hear(self, subscription: object) -> None:
        async for message in subscription.messages:  # type: ignore[attr-defined]
            try:
                domain = plain(message.subject.removeprefix(subjects.EPOCH))
            except BadToken:
                continue
            if domain not in self._known:
                continue
            with suppress(Refused, Unavailable):
                await self._read([domain])
