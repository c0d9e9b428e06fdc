"""Runs leader election over the bus: heartbeats, epochs and barriers around `LeaseState`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence, Set
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

import msgspec
import structlog

from admittance.backoff import pause_after
from admittance.events import subjects
from admittance.events.names import BadToken, plain, token
from admittance.events.shapes import Finding
from admittance.events.system import Barrier, Epoch
from admittance.lease import LeaseState, Takeover
from admittance.runtime import clock
from admittance.runtime.bus.bucket import Entry, apply_each, follow_bucket
from admittance.runtime.bus.bus import EXPECTED, Bus, Outgoing
from admittance.runtime.errors import BusRefused, BusUnavailable, StaleRevision
from admittance.runtime.leader import lease_store
from admittance.runtime.leader.single_process import SingleProcess
from admittance.runtime.tasks import set_within, task_group
from admittance.runtime.telemetry.findings import heartbeat_findings, report_findings
from admittance.runtime.telemetry.logger import LogThrottle

_encode = msgspec.json.Encoder().encode

LEADER: Final = "leader"
LEADER_SEEN: Final = "leader_seen"
NO_LEADER: Final = "none"
"""A detail of a standby's health, used by `LeaderElector.standby_details`."""

log = structlog.get_logger()

RENEWALS: Final = 4
"""How many heartbeats an instance sends within one TTL: three may be lost before another instance
takes over.
"""
RESIGN_SECONDS: Final = 1.0
"""Longest wait until `resign` has withdrawn the heartbeat. If the resignation fails, the next
leader waits until the lease expires.
"""
REFUSED_PAUSE_SECONDS: Final = 0.5
"""Pause after the log refused an epoch or did not answer; there is no pause if another instance was
faster.
"""
UNSTORED_PAUSES_SECONDS: Final = (0.5, 2.5)
"""An epoch that was announced and is not on the log yet is read again after these pauses."""
STALE: Final = 0.5
"""The part of the TTL after which an instance's own heartbeat counts as old. If its own heartbeat
is older than this, an instance cannot know whether another instance is dead: after a pause of the
server all heartbeat keys have expired.
"""
DUPLICATE_CHECK_SECONDS: Final = 1.0
"""Pause between two checks for another process with the name of this instance."""
CALM_SECONDS: Final = 30.0
PAUSE_MIN_SECONDS: Final = 0.2
PAUSE_MAX_SECONDS: Final = 5.0
"""The longest pause before a lost domain is taken again; after the first loss there is no pause. If
the domain is lost again within `CALM_SECONDS`, the pause before the next take doubles each time:
otherwise foreign epochs would keep the log and the service busy.
"""


class LeaderElector:
    """Keeps the domains that one instance of a service leads. ``changed`` is set whenever the led
    domains may have changed. ``takes``: how many times this instance has taken over a domain.
    ``round_trip``: how many seconds the bus took to acknowledge the last heartbeat; None: no
    heartbeat yet.
    """

    def __init__(
        self,
        bus: Bus,
        service: str,
        instance: str,
        *,
        ttl_seconds: float,
        config: dict[str, Any] | None = None,
    ) -> None:
        """``config``: the configuration published with every epoch, for the replay of decisions."""
        self.lease = LeaseState(instance)
        self.takes = 0
        self.round_trip: float | None = None
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
        """For each domain when this instance took it last (monotonic seconds), and how often in a
        row.
        """
        self._beats: dict[str, datetime] = {}
        self._leader_seen: datetime | None = None
        self._duplicate_suspected = asyncio.Event()
        self._epochs_missed = asyncio.Event()
        self._newest: dict[str, Epoch | None] = {}
        """The content of the newest epoch message of each domain."""
        self._missed: set[str] = set()
        """The domains with epochs that must be read again."""
        self._beat_now = asyncio.Event()
        self._last_beat: float | None = None
        """When the last acknowledged heartbeat of this instance was sent (monotonic seconds)."""
        self._last_ack: float | None = None
        """When the last heartbeat of this instance was acknowledged (monotonic seconds)."""
        self._beat_throttle = LogThrottle()
        self._takes_from = 0.0
        """After a pause of the server, live instances have until this time to send a heartbeat;
        then domains may be taken.
        """

    async def run(self) -> None:
        """Sends the heartbeats of this instance and follows the heartbeats and epochs of the other
        instances, until cancelled.

        Raises SetupError when another process runs as this instance."""
        with report_findings(self._findings):
            await self._run()

    def _findings(self) -> list[Finding]:
        silent = 0.0 if self._last_beat is None else clock.monotonic() - self._last_beat
        return heartbeat_findings(self._service, silent, self._ttl)

    async def _run(self) -> None:
        await self._process.begin()
        subscription = None
        self._bus.reconnected.append(self._on_reconnected)
        try:
            await self._write_heartbeat()
            subscription = await self._bus.nc.subscribe(f"{subjects.EPOCH}*")
            async with task_group() as tasks:
                tasks.create_task(self._beat())
                tasks.create_task(self._watch())
                tasks.create_task(self._follow_epochs(subscription))
                tasks.create_task(self._read_missed_epochs())
                tasks.create_task(self._check_duplicates())
        finally:
            self._bus.reconnected.remove(self._on_reconnected)
            await self._process.end()
            if subscription is not None:
                with suppress(Exception):
                    await subscription.unsubscribe()

    def _on_reconnected(self) -> None:
        self._beat_now.set()
        self._miss(self._known)

    async def _write_heartbeat(self) -> None:
        sent = clock.monotonic()
        await lease_store.write_heartbeat(
            self._bus,
            self._service,
            self._instance,
            ttl_seconds=self._ttl,
            process=self._process.id,
        )
        acknowledged = clock.monotonic()
        self.round_trip = acknowledged - sent
        if self._last_ack is not None and acknowledged - self._last_ack > STALE * self._ttl:
            # The heartbeats of the other instances come within one period; a busy machine may be
            # late.
            pause = 1.5 * self._ttl / RENEWALS
            self._takes_from = acknowledged + pause
            asyncio.get_running_loop().call_later(pause, self.changed.set)
        self._last_ack = acknowledged
        self._last_beat = max(sent, self._last_beat or sent)

    async def resign(self) -> None:
        """Withdraws the heartbeat of this instance, so that another instance takes over at once. If
        the bus is not available, another instance takes over when the lease expires.
        """
        with suppress(BusRefused, BusUnavailable):
            await lease_store.delete_heartbeat(
                self._bus, self._service, self._instance, timeout=RESIGN_SECONDS
            )

    async def take(self, domains: Iterable[str], *, barrier: bool) -> list[str]:
        """Takes those of the given domains that have no live leader. Returns the domains that this
        instance took.

        With a barrier, this instance leads the taken domains once the barrier is echoed; without a
        barrier, at once.
        """
        fresh = [domain for domain in domains if domain not in self._known]
        if fresh:
            await self._read(fresh)
        wanted = self.lease.domains_to_take(self._due(domains))
        if not wanted:
            return []
        try:
            # A new leader of the log does not know an epoch that was on its way to the former one,
            # so epochs without an answer are sent again.
            epochs = [self._epoch(take) for take in wanted]
            outcomes = await self._bus.publish_all(epochs, repeat_puts=True)
        except BusUnavailable:
            for take in wanted:
                self.lease.not_taken(take.domain)
            asyncio.get_running_loop().call_later(REFUSED_PAUSE_SECONDS, self.changed.set)
            await self._read([take.domain for take in wanted])
            return []
        taken: list[tuple[str, int]] = []
        refused: list[str] = []
        refusal: BusRefused | None = None
        for take, outcome in zip(wanted, outcomes, strict=True):
            if isinstance(outcome, BusRefused):
                self.lease.not_taken(take.domain)
                refused.append(take.domain)
                if not isinstance(outcome, StaleRevision):
                    refusal = outcome
                continue
            taken += self._took(take.domain, outcome)
        await self._begin(taken, barrier)
        # The epochs of refused domains are read last, because the read may fail: before the
        # barriers of the taken domains, a failure would leave these domains taken but not led.
        if refused:
            await self._read(refused)
            stored = self._stored(wanted, refused)
            await self._begin(stored, barrier)
            taken += stored
        if refusal is not None:
            # The cause may be a full log, so that an immediate retry would not help.
            log.warning("epoch_refused", error=str(refusal), domains=len(refused))
            await asyncio.sleep(REFUSED_PAUSE_SECONDS)
        self.changed.set()
        return [domain for domain, _ in taken]

    def _took(self, domain: str, epoch: int) -> list[tuple[str, int]]:
        self._record_take(domain)
        return [(domain, epoch)] if self.lease.took(domain, epoch) else []

    def _stored(self, wanted: Sequence[Takeover], refused: Sequence[str]) -> list[tuple[str, int]]:
        """The refused domains whose newest epoch is from this take all the same: the log had stored
        an earlier copy of the message, and refused the later copy."""
        taken: list[tuple[str, int]] = []
        for take in wanted:
            newest = self._newest.get(take.domain)
            epoch = self.lease.known(take.domain)
            ours = newest is not None and newest.process == self._process.id
            if take.domain in refused and ours and epoch > take.expected:
                taken += self._took(take.domain, epoch)
        return taken

    async def _begin(self, taken: Sequence[tuple[str, int]], barrier: bool) -> None:
        """Publishes the barriers of taken domains; without a barrier the domains are led now."""
        if barrier:
            await self._barriers(taken)
        else:
            for domain, epoch in taken:
                self.lease.echoed(domain, epoch)

    async def lost(self, domain: str) -> None:
        """Ends this instance's leadership of the domain: the fence refused a decision, or its
        outcome is unknown.
        """
        self.lease.lost(domain)
        self.changed.set()
        await self._read([domain])

    def drop_others(self, domains: Set[str]) -> None:
        """Gives up and forgets every domain that is not among the given ones, because the domain no
        longer exists. Call `drop_others` only while no `take` runs."""
        for domain in self._known - domains:
            self._known.discard(domain)
            self._newest.pop(domain, None)
            self._takes.pop(domain, None)
            self._missed.discard(domain)
            self.lease.drop(domain)

    def echoed(self, domain: str, epoch: int) -> bool:
        """Records that the barrier of the domain's epoch was echoed. Returns True if this instance
        leads the domain from now on.
        """
        return self.lease.echoed(domain, epoch)

    def standby_details(self, domains: Iterable[str]) -> dict[str, str]:
        """The health details of a standby: which instance leads these domains ("none" without a
        live leader), and the last heartbeat of that leader. Empty if this instance leads one of the
        domains.
        """
        wanted = list(domains)
        if not wanted or any(self.lease.held(domain) is not None for domain in wanted):
            return {}
        owners = {self.lease.owner(domain) for domain in wanted}
        led = all(self.lease.led(domain) for domain in wanted)
        seen = max((at for instance, at in self._beats.items() if instance in owners), default=None)
        seen = seen or self._leader_seen
        return {
            LEADER: ", ".join(sorted(owners)) if led else NO_LEADER,
            LEADER_SEEN: f"{seen:%Y-%m-%dT%H:%M:%SZ}" if seen is not None else "never",
        }

    def _due(self, domains: Iterable[str]) -> list[str]:
        """Those of the domains that this instance may take now. Sets `changed` when the remaining
        domains may be taken.
        """
        now = clock.monotonic()
        stale = self._last_beat is not None and now - self._last_beat > STALE * self._ttl
        judges = not stale and now >= self._takes_from
        if not judges:
            asyncio.get_running_loop().call_later(self._ttl / RENEWALS, self.changed.set)
        due = []
        for domain in domains:
            if not judges and self.lease.owner(domain) not in ("", self._instance):
                continue
            taken, repeats = self._takes.get(domain, (0.0, 0))
            pause = pause_after(repeats, PAUSE_MIN_SECONDS, PAUSE_MAX_SECONDS)
            left = taken + pause - now
            if left > 0 and self.lease.held(domain) is None:
                asyncio.get_running_loop().call_later(left, self.changed.set)
            else:
                due.append(domain)
        return due

    def _record_take(self, domain: str) -> None:
        self.takes += 1
        now = clock.monotonic()
        before = self._takes.get(domain)
        calm = before is None or now - before[0] > CALM_SECONDS
        self._takes[domain] = (now, 0 if calm or before is None else min(before[1] + 1, 10))

    def _epoch(self, take: Takeover) -> Outgoing:
        epoch = Epoch(
            domain=take.domain,
            owner=self._instance,
            time=clock.now(),
            config=self._config,
            process=self._process.id,
        )
        headers = {EXPECTED: str(take.expected)}
        return Outgoing(lease_store.epoch_subject(take.domain), _encode(epoch), headers)

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
            # A barrier that comes twice has no further effect.
            outcomes = await self._bus.publish_all(messages, repeat_puts=True)
        except BusUnavailable:
            for domain, _ in taken:
                self.lease.lost(domain)
            return
        lost = [
            domain
            for (domain, _), outcome in zip(taken, outcomes, strict=True)
            if isinstance(outcome, BusRefused)
        ]
        for domain in lost:
            self.lease.lost(domain)
        await self._read(lost)

    async def _read(self, domains: Sequence[str]) -> None:
        for start in range(0, len(domains), 200):
            part = domains[start : start + 200]
            before = [self.lease.known(domain) for domain in part]
            try:
                epochs = await asyncio.gather(
                    *(lease_store.read_epoch(self._bus, domain) for domain in part)
                )
            except (BusRefused, BusUnavailable):
                self._miss(domains[start:])
                raise
            for domain, known, (sequence, epoch) in zip(part, before, epochs, strict=True):
                self._known.add(domain)
                self._newest[domain] = epoch
                if sequence:
                    self._on_epoch(domain, sequence, epoch)
                elif self.lease.forgotten(domain, known):
                    log.warning("epoch_too_old", domain=domain, epoch=known)

    def _on_epoch(self, domain: str, sequence: int, epoch: Epoch | None) -> None:
        owner = epoch.owner if epoch is not None else ""
        if owner == self._instance and epoch is not None and epoch.process != self._process.id:
            # The epoch was published by an earlier process of this instance, or by a foreign
            # program. This instance then loses the domain and takes it again. If a live process has
            # the name of this instance, it answers a request.
            self._duplicate_suspected.set()
        if self.lease.epoch_seen(domain, sequence, owner):
            log.warning("leadership_lost", domain=domain, to=owner)
        self.changed.set()

    async def _beat(self) -> None:
        # A heartbeat does not wait for the acknowledgement of the one before: in a cluster that
        # elects the leader of the bucket, heartbeats are lost, and only a later one is stored.
        async with task_group() as tasks:
            while True:
                await set_within(self._beat_now, self._ttl / RENEWALS)
                self._beat_now.clear()
                tasks.create_task(self._beat_once())

    async def _beat_once(self) -> None:
        try:
            await self._write_heartbeat()
        except (BusRefused, BusUnavailable) as error:
            if self._beat_throttle.due(clock.monotonic()):
                log.warning("heartbeat_failed", error=str(error))
        else:
            self._beat_throttle = LogThrottle()

    async def _check_duplicates(self) -> None:
        while True:
            await self._duplicate_suspected.wait()
            self._duplicate_suspected.clear()
            await self._process.check()
            await asyncio.sleep(DUPLICATE_CHECK_SECONDS)

    async def _watch(self) -> None:
        def apply(entries: Sequence[Entry]) -> None:
            apply_each(
                entries, self._apply_heartbeat, service=self._service, bucket=subjects.CLAIMS
            )

        def on_loaded(_: int) -> None:
            self.watching.set()
            self.changed.set()

        pattern = f"_alive.{token(self._service)}.*"
        await follow_bucket(self._bus, (pattern,), apply, on_loaded, bucket=subjects.CLAIMS)

    def _apply_heartbeat(self, entry: Entry) -> None:
        # Every instance writes several heartbeats per TTL, and most heartbeats do not change the
        # set of live instances.
        if self._on_heartbeat(lease_store.instance_of(entry), entry.value):
            self.changed.set()

    def _on_heartbeat(self, instance: str, value: bytes | None) -> bool:
        """Records a heartbeat of an instance, or its end. Returns True if the set of live instances
        changed.
        """
        if value is not None:
            news = self.lease.alive(instance)
            self._beats[instance] = clock.now()
            if instance == self._instance and lease_store.process_of(value) != self._process.id:
                self._duplicate_suspected.set()
            return news
        news = self.lease.gone(instance)
        seen = self._beats.pop(instance, None)
        if seen is not None and any(self.lease.owner(domain) == instance for domain in self._known):
            self._leader_seen = seen
        return news

    async def _follow_epochs(self, subscription: object) -> None:
        loop = asyncio.get_running_loop()
        async for message in subscription.messages:  # type: ignore[attr-defined]
            try:
                domain = plain(message.subject.removeprefix(subjects.EPOCH))
            except BadToken:
                continue
            if domain not in self._known:
                continue
            before = self.lease.known(domain)
            with suppress(BusRefused, BusUnavailable):
                await self._read([domain])
            has_read = _encode(self._newest.get(domain)) == message.data
            if self.lease.known(domain) == before and not has_read:
                # In a cluster subscribers get an epoch message before the log has stored it.
                for pause in UNSTORED_PAUSES_SECONDS:
                    loop.call_later(pause, self._miss, (domain,))

    def _miss(self, domains: Iterable[str]) -> None:
        self._missed.update(domains)
        self._epochs_missed.set()

    async def _read_missed_epochs(self) -> None:
        """Reads epochs again after a lost connection, a failed read, or a read that came too early.
        Otherwise an instance would wait for a leader that has been replaced, even for itself."""
        while True:
            await self._epochs_missed.wait()
            self._epochs_missed.clear()
            missed, self._missed = sorted(self._missed), set()
            try:
                await self._read(missed)
            except (BusRefused, BusUnavailable):
                await asyncio.sleep(REFUSED_PAUSE_SECONDS)
