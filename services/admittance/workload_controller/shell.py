"""Receive, fold, commit: the workload-controller on the bus.

One instance is active; the others stand by and take over when its heartbeat runs out. A stale one
is harmless: its puts expect revisions that are gone.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from functools import partial
from itertools import chain
from typing import Final

import structlog

from admittance.events import subjects
from admittance.events.base import HEADER_MSG_ID, HEADER_SCHEMA, HEADER_TRACE, SCHEMA_VERSION
from admittance.events.requests import Health, HealthReply, SettledReply
from admittance.lease.domains import CONTROLLER
from admittance.runtime import bucket, clock, lease_io, micro
from admittance.runtime.bus import BATCH_MAX, Bus, Outgoing
from admittance.runtime.consume import Bad, bury, persist
from admittance.runtime.errors import (
    Refused,
    SetupError,
    StaleRevision,
    Superseded,
    TooBig,
    Unavailable,
)
from admittance.runtime.leading import Leading
from admittance.runtime.puller import Delivery, Puller
from admittance.runtime.settings import Settings
from admittance.runtime.tracing import extract, follow, trace_id
from admittance.workload.conditions import Type, is_true
from admittance.workload_controller.commit import Commit, Heard, Message, Put
from admittance.workload_controller.decide import HEADER_FACT, Controller, echo_put
from admittance.workload_controller.endpoints import Endpoints
from admittance.workload_controller.guard import Guard
from admittance.workload_controller.joint import packed, parted
from admittance.workload_controller.memory import Memory
from admittance.workload_controller.opening import open_controller, tell_unreadable

SERVICE: Final = "workload-controller"
ATTEMPTS: Final = 20
"""Times that a batch is decided anew because somebody else moved its workloads."""
OUTCOMES_MAX: Final = 20_000
SETTLE_SECONDS: Final = 30.0
SWEEP_EVERY: Final = 10_000
"""Facts between two looks for tombstones that nobody needs any more."""
EXPIRY_SECONDS: Final = 3600.0
"""After its time is over, until a finished workload is certainly gone from the bucket."""
MARKER_SECONDS: Final = 7 * 86_400.0
"""A delete marker outlives any pause of a stale writer, but not everything."""

FILTERS: Final = [
    *(f"admit.workload.{key}.*.*" for key in sorted(subjects.INPUTS)),
    "admit.check.reported.*.*.*",
    "admit.timer.due.>",
    "admit.object.>",
    "admit.lease.barrier.*",
]

log = structlog.get_logger()


async def run(bus: Bus, settings: Settings, *, stop: asyncio.Event) -> None:
    """Stands by until it is our turn, then leads; until stop is set."""
    leading = Leading(bus, SERVICE, settings.instance, ttl_seconds=settings.lease_seconds)
    active: list[Active] = []

    async def health(_: bytes, __: str) -> Health | HealthReply:
        leads = tuple(leading.tenure.leads())
        return HealthReply(
            service=SERVICE,
            instance=settings.instance,
            ready=bool(active and active[0].ready) or not leads,
            leads=leads,
            lag=active[0].lag if active else 0,
        )

    watch = asyncio.create_task(leading.run(), name="leading")
    stopping = asyncio.create_task(stop.wait(), name="stop")
    service = await micro.serve(
        bus, SERVICE, settings.instance, {}, everyone={"admit.api.health": health}
    )
    try:
        await leading.watching.wait()
        while not stop.is_set():
            if watch.done():
                watch.result()
            await leading.take([CONTROLLER], barrier=False)
            epoch = leading.tenure.fence(CONTROLLER)
            if epoch is None:
                leading.changed.clear()
                await _first(stopping, watch, asyncio.create_task(leading.changed.wait()))
                continue
            log.info("leading", domain=CONTROLLER, epoch=epoch)
            leader = Active(bus, settings, epoch)
            active[:] = [leader]
            work = asyncio.create_task(leader.run(), name="workload-controller")
            await _first(stopping, watch, work)
            await leader.close()
            active.clear()
            if work.done():
                with suppress(Superseded):
                    work.result()
                leading.tenure.lost(CONTROLLER)
                log.warning("superseded", epoch=epoch)
            else:
                work.cancel()
                with suppress(asyncio.CancelledError):
                    await work
    finally:
        await service.stop()
        watch.cancel()
        stopping.cancel()
        with suppress(asyncio.CancelledError):
            await watch
        await leading.goodbye()


async def _first(*tasks: asyncio.Task[object]) -> None:
    """Waits for the first of the tasks; those made for this wait only are ended."""
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    tasks[-1].cancel() if tasks[-1].get_name().startswith("Task-") else None


class Active:
    """The one that leads: reads the log from where its predecessor stopped."""

    def __init__(self, bus: Bus, settings: Settings, epoch: int) -> None:
        self._bus = bus
        self._settings = settings
        self._epoch = epoch
        self._puller = Puller(bus, SERVICE, FILTERS, generation=epoch, batch=1000)
        self.guard = Guard(bus, epoch)
        self._lock = asyncio.Lock()
        self._swept = 0
        self._marks: deque[tuple[float, int]] = deque()
        self._outcomes: OrderedDict[int, SettledReply] = OrderedDict()
        self._progress = asyncio.Event()
        self._endpoints: Endpoints | None = None
        self._config: asyncio.Task[None] | None = None
        self._memory: Memory | None = None
        self._deaf: BaseException | None = None
        self.controller: Controller | None = None
        self.ready = False
        self.caught_up = asyncio.Event()
        """Every fact that a predecessor may have in hand is dealt with. Manifests are not written
        before: he may have judged a decision by the old ones, and be late with its put."""

    @property
    def lag(self) -> int:
        """Facts not yet read."""
        return self._puller.pending

    async def run(self) -> None:
        """Leads until a newer epoch reads in our place: raises Superseded."""
        try:
            await self._lead()
        except asyncio.CancelledError:
            # Without hearing of manifests, decisions would be judged by old ones.
            if self._deaf is not None:
                raise self._deaf from None
            raise

    async def _lead(self) -> None:
        await self._puller.start()
        await self.guard.take()
        controller, unsaid, self._config, found = await open_controller(
            self._bus, self._puller.floor
        )
        leading = asyncio.current_task()
        assert leading is not None, "it runs as a task"
        self._config.add_done_callback(partial(self._on_deaf, leading))
        self.controller = controller
        now = clock.now()
        await self.say([m for key in unsaid for m in controller.outbox(key, now)])
        for key in unsaid:
            controller.said(key)
        end = await lease_io.end_of_log(self._bus)
        if controller.newest_fact > end:
            # New facts would be taken for old ones, and skipped.
            raise SetupError(
                f"the log ends at {end}, but the bucket holds facts up to "
                f"{controller.newest_fact}: restore both from one backup"
            )
        if self._puller.idle:
            self.caught_up.set()
        self._memory = Memory(
            self._bus,
            self._lock,
            controller,
            found,
            epoch=self._epoch,
            every_seconds=self._settings.checkpoint_seconds,
        )
        self._memory.start(now)
        self._endpoints = Endpoints(self._bus, self._settings.instance, self)
        await self._endpoints.start()
        self.ready = True
        log.info("serving", workloads=len(controller.workloads), floor=self._puller.floor)
        while True:
            batch = await self._puller.batch()
            async with self._lock:
                await self._perform(controller, [_heard(delivery) for delivery in batch])
            self._puller.note(batch[-1])
            controller.acknowledged(batch[-1].sequence)
            self._sweep(controller)
            if self._puller.idle or controller.read >= end:
                self.caught_up.set()
            self._progress.set()
            self._progress.clear()

    def _on_deaf(self, leading: asyncio.Task[None], hearing: asyncio.Task[None]) -> None:
        if not hearing.cancelled() and hearing.exception() is not None:
            self._deaf = hearing.exception()
            leading.cancel()

    async def close(self) -> None:
        """Ends what was begun; the log keeps our place."""
        self.ready = False
        if self._endpoints is not None:
            await self._endpoints.stop()
        if self._config is not None:
            self._config.cancel()
            await asyncio.gather(self._config, return_exceptions=True)
        await self._puller.close()
        if self._memory is not None:
            await self._memory.close()

    @property
    def lock(self) -> asyncio.Lock:
        """Held while a batch is committed: manifests are written between batches, so that a
        decision is judged by the queues that are in the bucket before it."""
        return self._lock

    async def settled(self, sequence: int) -> SettledReply:
        """Waits until the fact at sequence had its effect; what became of it. Raises Unavailable
        when that takes too long: we lag, or there is no such fact."""
        assert self.controller is not None, "endpoints are served by a leader"
        try:
            async with asyncio.timeout(SETTLE_SECONDS):
                while self.controller.read < sequence:
                    await self._progress.wait()
        except TimeoutError:
            raise Unavailable(
                f"fact {sequence} has not been read yet; read so far: {self.controller.read}"
            ) from None
        return self._outcomes.get(sequence, SettledReply(outcome="applied"))

    # One batch. ---------------------------------------------------------------------

    async def _perform(self, controller: Controller, batch: list[Heard]) -> None:
        """The order of a commit is told in `commit`."""
        rest = batch
        attempts = 0
        while rest:
            now = clock.now()
            loaded = controller.missing(rest)
            for key in loaded:
                await persist(partial(self._reload, controller, key))
            commit = controller.fold(rest, now)
            bad = [Bad(_delivery(one.heard), one.reason) for one in commit.dead]
            await bury(self._bus, SERVICE, bad)
            await self.say(commit.notes)
            done, unsure = await self._put(controller, commit, now)
            if unsure:
                attempts += 1
                if attempts > ATTEMPTS:
                    raise RuntimeError(f"{len(unsure)} workloads keep moving under the batch")
                await self.say(done)
                continue
            await self.say(done)
            for key in (*loaded, *(put.key for put in commit.puts)):
                controller.said(key)
            # An echo is the same whoever repeats it.
            await persist(partial(self._echo, commit))
            self._note(commit)
            rest = commit.rest

    async def _put(
        self, controller: Controller, commit: Commit, now: datetime
    ) -> tuple[list[Message], list[str]]:
        """What the puts that went through have to say, and the keys that must be decided anew."""
        messages: list[Message] = []
        unsure: list[str] = []
        written: list[tuple[str, int]] = []
        alone, groups = parted(commit.puts)
        outcomes = await self._put_alone(alone)
        for batch in packed(groups, BATCH_MAX):
            outcomes += await self._put_together(batch)
        puts = [*alone, *chain.from_iterable(groups)]
        for put, outcome in zip(puts, outcomes, strict=True):
            if isinstance(outcome, int):
                written.append((put.key, outcome))
                messages += controller.committed(put, outcome, now)
                _tell(put, outcome)
            elif outcome is None or isinstance(outcome, StaleRevision):
                await persist(partial(self._reload, controller, put.key))
                # Our own put, after all, or that of a predecessor who may not have said what
                # follows from it. And what came behind it in the batch was judged by what we knew:
                # a decision made from that very put would be dropped, and assumed for ever.
                messages += controller.outbox(put.key, now)
                unsure.append(put.key)
            else:
                raise outcome
        if self._memory is not None:
            self._memory.note(commit.through, now, written, unsure)
        return messages, unsure

    async def _put_alone(self, puts: list[Put]) -> list[int | Refused | None]:
        """The revision of each, why it was refused, or None: that is unknown."""
        try:
            return list(await self._bus.publish_all([self._put_of(put) for put in puts]))
        except Unavailable as error:
            log.warning("commit_unknown", error=str(error), puts=len(puts))
            return [None] * len(puts)

    async def _put_together(self, groups: list[list[Put]]) -> list[int | Refused | None]:
        """Likewise of groups, each of which is written as a whole or not at all. They share a
        batch; if that is refused each goes alone: the server does not say which key was stale."""
        puts = list(chain.from_iterable(groups))
        try:
            last = await self._bus.atomic([self._put_of(put) for put in puts])
        except Unavailable as error:
            log.warning("commit_unknown", error=str(error), puts=len(puts))
            return [None] * len(puts)
        except Refused as refused:
            if len(groups) == 1:
                return [refused] * len(puts)
            return [one for group in groups for one in await self._put_together([group])]
        return list(range(last - len(puts) + 1, last + 1))

    def _put_of(self, put: Put) -> Outgoing:
        headers = {HEADER_TRACE: put.trace} if put.trace else {}
        if put.workload is None or put.value is None:
            headers[HEADER_FACT] = str(put.fact)
            return bucket.delete_message(
                put.key, expected=put.expected, headers=headers, ttl_seconds=MARKER_SECONDS
            )
        keep = self._settings.finished_seconds if is_true(put.workload, Type.FINISHED) else None
        return bucket.put_message(
            put.key, put.value, expected=put.expected, headers=headers, ttl_seconds=keep
        )

    async def _reload(self, controller: Controller, key: str) -> None:
        entry = await bucket.get(self._bus, key)
        if entry is None:
            controller.workloads.gone(key)
        else:
            controller.load(entry.key, entry.value, entry.revision, entry.headers)
            tell_unreadable(controller)

    async def say(self, messages: Iterable[Message]) -> None:
        """States messages until the log has them, pipelined."""
        outgoing = [outgoing_of(message) for message in messages]
        outcomes = await self._bus.publish_all(outgoing)
        for one, outcome in zip(outgoing, outcomes, strict=True):
            if isinstance(outcome, TooBig):
                # It is so at every try; and everybody else's facts are behind it.
                log.error("too_long_to_say", subject=one.subject, bytes=len(one.data))
            elif isinstance(outcome, Refused):
                raise outcome

    async def _echo(self, commit: Commit) -> None:
        puts = []
        for echo in commit.echoes:
            key, value = echo_put(echo)
            puts.append(bucket.put_message(key, value, expected=None))
        for outcome in await self._bus.publish_all(puts):
            if isinstance(outcome, Refused):
                raise outcome

    def _sweep(self, controller: Controller) -> None:
        # Tombstones of what was deleted guard against facts that are read again; those before our
        # floor never are. Now and then is enough.
        if controller.read - self._swept > SWEEP_EVERY:
            controller.workloads.drop_tombstones(self._puller.floor)
            self._swept = controller.read
            now = clock.monotonic()
            self._marks.append((now, controller.read))
            while now - self._marks[0][0] > self._settings.finished_seconds + EXPIRY_SECONDS:
                controller.workloads.drop_finished(self._marks.popleft()[1])

    def _note(self, commit: Commit) -> None:
        self._outcomes.update(commit.outcomes)
        while len(self._outcomes) > OUTCOMES_MAX:
            self._outcomes.popitem(last=False)


def _heard(delivery: Delivery) -> Heard:
    headers = delivery.headers
    if HEADER_TRACE in headers and not extract(headers):
        # It would be written on: any length, and bytes that no header of ours may have.
        headers = {name: value for name, value in headers.items() if name != HEADER_TRACE}
    return Heard(delivery.sequence, delivery.subject, delivery.data, headers, delivery.time)


def _tell(put: Put, revision: int) -> None:
    """The one log line of a workload's write: what follows from it, or that it was noted."""
    _, namespace, name = put.key.split(".")
    says = put.workload.status.log.says if put.workload is not None else ()
    what = [say.what for say in says if not say.what.startswith("check_")]
    # What follows from nothing but a fact that everybody heard is told to who looks closely.
    tell = log.info if what else log.debug
    tell(
        f"workload_{what[-1]}" if what else "workload_written",
        namespace=namespace,
        workload=name,
        revision=revision,
        fact=put.fact,
        trace=trace_id(put.trace),
    )


def _delivery(heard: Heard) -> Delivery:
    return Delivery(heard.subject, heard.data, heard.headers, heard.sequence)


def outgoing_of(message: Message) -> Outgoing:
    """The message with the headers that every fact of ours carries."""
    headers = {HEADER_MSG_ID: message.id, HEADER_SCHEMA: SCHEMA_VERSION}
    if message.trace:
        headers[HEADER_TRACE] = follow(message.trace)
    if message.headers:
        headers.update(message.headers)
    return Outgoing(message.subject, message.data, headers)
