"""Leading on the bus: drives `admittance.lease.tenure` with heartbeats, epochs and barriers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

import msgspec
import structlog

from admittance.events import subjects
from admittance.events.names import BadToken, plain, token
from admittance.events.reading import SetAside, Unreadable
from admittance.events.system import Barrier, Epoch
from admittance.lease.tenure import Takeover, Tenure
from admittance.runtime import clock
from admittance.runtime.bus.bucket import BucketReader
from admittance.runtime.bus.bus import EXPECTED, Bus, Outgoing
from admittance.runtime.errors import Refused, StaleRevision, Unavailable
from admittance.runtime.leader import lease_store
from admittance.runtime.leader.single_process import SingleProcess
from admittance.runtime.tasks import parts, set_within
from admittance.runtime.telemetry.set_aside import tell

LEADER: Final = "leader"
LEADER_SEEN: Final = "leader_seen"
NO_LEADER: Final = "none"
"""Details of a standby's health: see `Leading.standby_details`."""

KV_CLAIMS: Final = f"KV_{subjects.CLAIMS}"
_encode = msgspec.json.Encoder().encode
log = structlog.get_logger()

RENEWALS: Final = 4
"""Heartbeats within one TTL: three may be late before others believe us dead."""
GOODBYE_SECONDS: Final = 1.0
"""A successor that hears none waits for the end of the lease: no reason to wait longer here."""
UNWILLING_SECONDS: Final = 0.5
"""Pause after the log took no epoch, for another reason than that somebody was faster."""
STALE: Final = 0.5
"""Of the TTL: an instance whose own heartbeat is older cannot tell that another one is dead. After
a pause of the server all keys have run out."""
DOUBT_SECONDS: Final = 1.0
"""Pause between two questions whether another process runs as this instance."""
CALM_SECONDS: Final = 30.0
PAUSE_MIN_SECONDS: Final = 0.1
PAUSE_MAX_SECONDS: Final = 5.0
"""A domain that was lost is taken anew at once; one that is lost again and again within
`CALM_SECONDS`, after a pause that doubles each time. Else whatever takes it away each time, such as
epochs by a foreign hand, would keep the log and the service busy."""


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
        self._process = SingleProcess(bus, service, instance)
        self._known: set[str] = set()
        self._takes: dict[str, tuple[float, int]] = {}
        """When each domain was taken last (monotonic), and how often in a row without a calm."""
        self._beats: dict[str, datetime] = {}
        self._leader_seen: datetime | None = None
        self._doubt = asyncio.Event()
        self._beat_now = asyncio.Event()
        self._beaten: float | None = None
        """When our last heartbeat that was acknowledged was sent (monotonic)."""
        self._judges_from = 0.0
        """Until then the live ones have time to say so, after nobody could."""

    async def run(self) -> None:
        """Says that we live, hears which others do, and which epochs are taken; until cancelled.

        Raises SetupError when another process runs as this instance."""
        await self._process.begin()
        subscription = None
        self._bus.reconnected.append(self._beat_now.set)
        try:
            await self._say_alive()
            subscription = await self._bus.nc.subscribe(f"{subjects.EPOCH}*")
            async with parts() as tasks:
                tasks.create_task(self._beat())
                tasks.create_task(self._watch())
                tasks.create_task(self._hear(subscription))
                tasks.create_task(self._settle_doubts())
        finally:
            self._bus.reconnected.remove(self._beat_now.set)
            await self._process.end()
            if subscription is not None:
                with suppress(Exception):
                    await subscription.unsubscribe()

    async def _say_alive(self) -> None:
        sent = clock.monotonic()
        await lease_store.say_alive(
            self._bus,
            self._service,
            self._instance,
            ttl_seconds=self._ttl,
            process=self._process.id,
        )
        if self._beaten is not None and sent - self._beaten > STALE * self._ttl:
            # The others beat within one period, a busy machine may be late.
            pause = 1.5 * self._ttl / RENEWALS
            self._judges_from = clock.monotonic() + pause
            asyncio.get_running_loop().call_later(pause, self.changed.set)
        self._beaten = sent

    async def goodbye(self) -> None:
        """Ends in order, so that others take over at once; while the bus is away, they take over
        when the lease has run out."""
        with suppress(Refused, Unavailable):
            await lease_store.say_goodbye(
                self._bus, self._service, self._instance, timeout=GOODBYE_SECONDS
            )

    async def take(self, domains: Iterable[str], *, barrier: bool) -> list[str]:
        """Takes those of the domains that nobody alive leads; the ones that we hold from now on.

        With a barrier they may be decided for once it echoes; without, at once.
        """
        fresh = [domain for domain in domains if domain not in self._known]
        if fresh:
            await self._read(fresh)
        wanted = self.tenure.wanted(self._due(domains))
        if not wanted:
            return []
        try:
            outcomes = await self._bus.publish_all([self._epoch(take) for take in wanted])
        except Unavailable:
            for take in wanted:
                self.tenure.not_taken(take.domain)
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
            self._note_take(take.domain)
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

    def standby_details(self, domains: Iterable[str]) -> dict[str, str]:
        """What an instance that leads none of these domains says of itself: which instance leads
        them ("none" where no live one does), and when such a leader was last seen alive."""
        wanted = list(domains)
        if not wanted or any(self.tenure.held(domain) is not None for domain in wanted):
            return {}
        owners = {self.tenure.owner(domain) for domain in wanted}
        led = all(self.tenure.led(domain) for domain in wanted)
        seen = max((at for one, at in self._beats.items() if one in owners), default=None)
        seen = seen or self._leader_seen
        return {
            LEADER: ", ".join(sorted(owners)) if led else NO_LEADER,
            LEADER_SEEN: f"{seen:%Y-%m-%dT%H:%M:%SZ}" if seen is not None else "never",
        }

    def _due(self, domains: Iterable[str]) -> list[str]:
        """Those that may be taken now; `changed` is set when it is the others' time."""
        now = clock.monotonic()
        stale = self._beaten is not None and now - self._beaten > STALE * self._ttl
        judges = not stale and now >= self._judges_from
        due = []
        for domain in domains:
            if not judges and self.tenure.owner(domain) not in ("", self._instance):
                continue
            taken, repeats = self._takes.get(domain, (0.0, 0))
            pause = min(PAUSE_MAX_SECONDS, PAUSE_MIN_SECONDS * 2**repeats) if repeats else 0.0
            left = taken + pause - now
            if left > 0 and self.tenure.held(domain) is None:
                asyncio.get_running_loop().call_later(left, self.changed.set)
            else:
                due.append(domain)
        return due

    def _note_take(self, domain: str) -> None:
        now = clock.monotonic()
        before = self._takes.get(domain)
        calm = before is None or now - before[0] > CALM_SECONDS
        self._takes[domain] = (now, 0 if calm or before is None else min(before[1] + 1, 10))

    def _epoch(self, take: Takeover) -> Outgoing:
        said = Epoch(
            domain=take.domain,
            owner=self._instance,
            time=clock.now(),
            config=self._config,
            process=self._process.id,
        )
        headers = {EXPECTED: str(take.expected)}
        return Outgoing(lease_store.epoch_subject(take.domain), _encode(said), headers)

    async def _barriers(self, taken: Sequence[tuple[str, int]]) -> None:
        messages = [
            Outgoing(
                f"{subjects.BARRIER}{token(domain)}",
                _encode(Barrier(domain=domain, owner=self._instance, epoch=epoch)),
                lease_store.fence(domain, epoch),
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
                *(lease_store.read_epoch(self._bus, domain) for domain in part)
            )
            for domain, known, (sequence, said) in zip(part, before, found, strict=True):
                self._known.add(domain)
                if sequence:
                    self._seen(domain, sequence, said)
                elif self.tenure.forgotten(domain, known):
                    log.warning("epoch_too_old", domain=domain, epoch=known)

    def _seen(self, domain: str, sequence: int, said: Epoch | None) -> None:
        owner = said.owner if said is not None else ""
        if owner == self._instance and said is not None and said.process != self._process.id:
            # Of an earlier life, or by a foreign hand: then what we hold is lost, and taken anew.
            # A live process under our name is found out by asking it.
            self._doubt.set()
        if self.tenure.epoch_seen(domain, sequence, owner):
            log.warning("leadership_lost", domain=domain, to=owner)
        self.changed.set()

    async def _beat(self) -> None:
        while True:
            await set_within(self._beat_now, self._ttl / RENEWALS)
            self._beat_now.clear()
            try:
                await self._say_alive()
            except (Refused, Unavailable) as error:
                log.warning("heartbeat_failed", error=str(error))

    async def _settle_doubts(self) -> None:
        while True:
            await self._doubt.wait()
            self._doubt.clear()
            await self._process.check()
            await asyncio.sleep(DOUBT_SECONDS)

    async def _watch(self) -> None:
        pattern = f"_alive.{token(self._service)}.*"
        reader = BucketReader(self._bus, (pattern,), bucket=subjects.CLAIMS)
        async for entries in reader.batches():
            for entry in entries:
                try:
                    self._heard(lease_store.instance_of(entry), entry.value)
                except Unreadable as error:
                    tell(SetAside(KV_CLAIMS, entry.key, entry.revision, str(error)))
            if reader.loaded.is_set():
                self.watching.set()
            self.changed.set()

    def _heard(self, instance: str, value: bytes | None) -> None:
        if value is not None:
            self.tenure.alive(instance)
            self._beats[instance] = clock.now()
            if instance == self._instance and lease_store.process_of(value) != self._process.id:
                self._doubt.set()
            return
        self.tenure.gone(instance)
        seen = self._beats.pop(instance, None)
        if seen is not None and any(self.tenure.owner(one) == instance for one in self._known):
            self._leader_seen = seen

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
