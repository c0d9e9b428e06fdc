"""The workload-controller: its core, performed step by step as its shell does, and cut anywhere.

What is one ``await`` in the shell is one ``yield from`` here, in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial
from itertools import chain
from typing import Any, Final

import msgspec

from admittance.api.kinds import KINDS
from admittance.api.manifest import accept
from admittance.events import subjects
from admittance.events.system import ObjectApplied
from admittance.lease.domains import CONTROLLER
from admittance.simulation.actors.leading import BEAT, Leading
from admittance.simulation.actors.service import Service
from admittance.simulation.kernel import Future, Killed, Signal
from admittance.simulation.link import Feed, Unavailable
from admittance.simulation.server import Consumer
from admittance.simulation.stream import (
    EXPECTED,
    MESSAGE_ID,
    OPERATION,
    Outgoing,
    Refused,
    Stored,
)
from admittance.workload.phase import holds_quota
from admittance.workload_controller.commit import Commit, Heard, Message, Put
from admittance.workload_controller.decide import HEADER_FACT, Controller, echo_put
from admittance.workload_controller.joint import packed, parted
from admittance.workload_controller.known import NOTHING, Known, Workloads
from admittance.workload_controller.objects import Kept, Planned, plan, users_of
from admittance.workload_controller.statement import learn, statement, statements

GUARD: Final = "_admittance.manifests"
SECRET: Final = b"secret"
ATTEMPTS: Final = 20
BATCH: Final = 1000
SWEEP_EVERY: Final = 40
"""Facts between two sweeps of tombstones; the shell has more patience."""
_applied = msgspec.json.Decoder(ObjectApplied)
_OURS: Final = frozenset(k.token for k in KINDS.values() if k.token not in ("workload", "job"))


class Superseded(Exception):
    """A newer epoch reads in our place."""


def wants(subject: str) -> bool:
    """The filters of the shell."""
    _, thing, what, *_ = subject.split(".", 3)
    match thing:
        case "workload":
            return what in subjects.INPUTS
        case "check":
            return what == "reported"
        case "timer":
            return what == "due"
        case "lease":
            return what == "barrier"
    return thing == "object"


class _Forgetful(Workloads):
    """Workloads that do not know which facts they hold; see `Mechanisms.skip_applied`."""

    def get(self, key: str) -> Known:
        known = super().get(key)
        return known if known is NOTHING else known._replace(fact=0)


class WorkloadController(Service):
    """One instance: stands by, leads, falls."""

    kind = "workload-controller"

    def start(self) -> None:
        self.leading = Leading(self)
        self.active: Active | None = None
        self.process.start(self.leading.run())
        self.process.start(self._run())

    def _run(self) -> Any:
        leading = self.leading
        yield leading.watching
        while True:
            try:
                yield from leading.take([CONTROLLER], barrier=False)
            except Unavailable:
                raise Killed("cannot take the lease") from None
            epoch = leading.tenure.fence(CONTROLLER)
            if epoch is None:
                leading.changed.clear()
                # A heartbeat that is heard is such a change; here only where it makes a difference.
                vacant = leading.failed or leading.tenure.owner(CONTROLLER) == self.instance
                yield leading.changed, (BEAT if vacant else None)
                continue
            self.active = Active(self, epoch)
            try:
                yield from self.active.run()
            except Superseded:
                self.tell(f"is superseded (epoch {epoch})")
                self.active.close()
                self.active = None
                leading.tenure.lost(CONTROLLER)
            except Unavailable:
                raise Killed("no answer from the bus") from None


class Active:
    """The one that leads, or believes so."""

    def __init__(self, service: WorkloadController, epoch: int) -> None:
        self._service = service
        self._server = service.server
        self._epoch = epoch
        self._link = service.link
        self._round = 0
        self._newest = 0
        self._name = ""
        self._buffer: list[Heard] = []
        self._come = Signal()
        self._deleted = False
        self._feeds: list[Feed] = []
        self._busy = False
        self._free = Signal()
        self._guard: int | None = None
        self.floor = 0
        self.controller = Controller(SECRET)
        if not service.mechanisms.skip_applied:
            self.controller.workloads = _Forgetful()
        if not service.mechanisms.seen:
            self.controller.catalog.newest = lambda domain: 0  # type: ignore[method-assign]  # noqa: ARG005
        service.closing.append(self.close)

    def close(self) -> None:
        """Hears no more, and answers no more."""
        for feed in self._feeds:
            feed.close()
        self._server.endpoints.pop(id(self), None)

    def run(self) -> Any:
        """Leads until a newer epoch reads in our place: raises Superseded."""
        service = self._service
        controller = self.controller
        yield from self._make_behind()
        yield from self._regain()
        entries = yield from self._link.ask(self._snapshot)
        for entry in entries:
            self._load(entry)
        unsaid = controller.settle_load(self.floor)
        yield from self._restate()
        if service.mechanisms.say_again:
            now = service.process.now()
            yield from self.say([m for key in unsaid for m in controller.outbox(key, now)])
        for key in unsaid:
            controller.said(key)
        self._server.endpoints[id(self)] = self._request
        service.tell(f"serves from {self.floor + 1}, {len(unsaid)} with something unsaid")
        swept = 0
        while True:
            batch = yield from self._batch()
            yield from self._lock()
            yield from self._perform(batch)
            self._unlock()
            through = batch[-1].sequence
            self.floor = max(self.floor, through)
            try:
                yield from self._link.ask(partial(self._ack, through))
            except Unavailable:
                service.tell("its acknowledgement was not heard")
            controller.acknowledged(through)
            if controller.read - swept > SWEEP_EVERY:
                controller.workloads.drop_tombstones(self.floor)
                swept = controller.read

    # The log. -----------------------------------------------------------------------

    def _make_behind(self) -> Any:
        """A new consumer behind the acknowledged floor, in place of all older ones."""
        consumers = self._server.consumers
        found = yield from self._link.ask(lambda: sorted(consumers.values()))
        if any(one.generation > self._epoch for one in found):
            raise Superseded
        if found and not self._round:
            newest = found[-1]
            self.floor = max(self.floor, newest.floor)
            if newest.generation == self._epoch:
                self._round = newest.number
        self._round += 1
        self._name = f"{self._epoch}-{self._round}"
        self._deleted = False
        yield from self._link.ask(self._create)
        for one in found:
            yield from self._link.ask(partial(self._server.delete_consumer, one.name))

    def _create(self) -> None:
        feed = Feed(self._link, self._server.log, wants, self._heard)
        self._feeds.append(feed)
        name = self._name
        consumer = Consumer(self._epoch, self._round, name, self.floor)
        self._server.add_consumer(consumer, lambda: self._end_of(feed, name))
        for stored in self._server.log.messages[self.floor :]:
            if wants(stored.subject):
                feed.deliver(stored)

    def _end_of(self, feed: Feed, name: str) -> None:
        feed.close()

        def take() -> None:
            if self._name == name:
                self._deleted = True
                self._come.set()

        self._link.inwards(lambda: self._service.process.do(take))

    def _heard(self, stored: Stored) -> None:
        if stored.sequence <= self._newest:
            return
        self._newest = stored.sequence
        time = self._service.kernel.time(stored.time - self._service.kernel.now)
        self._buffer.append(
            Heard(stored.sequence, stored.subject, stored.data, stored.headers, time)
        )
        self._come.set()

    def _batch(self) -> Any:
        while not self._buffer:
            if self._deleted:
                yield from self._make_behind()
            self._come.clear()
            yield self._come
        batch, self._buffer = self._buffer[:BATCH], self._buffer[BATCH:]
        return batch

    def _ack(self, through: int) -> None:
        consumer = self._server.consumers.get(self._name)
        if consumer is not None:
            floor = max(consumer.floor, through)
            self._server.consumers[self._name] = consumer._replace(floor=floor)

    # The bucket. --------------------------------------------------------------------

    def _snapshot(self) -> list[Stored]:
        """What is in the bucket now; manifests are followed from here on."""
        bucket = self._server.bucket
        self._feeds.append(
            Feed(self._link, bucket, lambda key: key.partition(".")[0] in _OURS, self._learn)
        )
        return sorted(bucket.last.values())

    def _load(self, entry: Stored) -> None:
        value = None if entry.gone else entry.data
        self.controller.load(entry.subject, value, entry.sequence, entry.headers)

    def _learn(self, entry: Stored) -> None:
        value = None if entry.gone else entry.data
        said = learn(self.controller, entry.subject, value, entry.sequence, entry.headers)
        if said is not None:
            self._service.process.start(self._state([said]))

    def _state(self, missed: list[Message]) -> Any:
        while True:
            try:
                yield from self.say(missed)
                return
            except Unavailable:
                continue

    def _reload(self, key: str) -> Any:
        entry = yield from self._link.ask(lambda: self._server.bucket.last.get(key))
        if entry is None:
            self.controller.workloads.gone(key)
        else:
            self._load(entry)

    def _restate(self) -> Any:
        """States the manifests that were written but, the writer dying between, not stated."""
        wanted = list(statements(self.controller))
        last = self._server.log.last
        found = yield from self._link.ask(lambda: [last.get(said.subject) for _, said in wanted])
        missed = [
            said
            for (revision, said), before in zip(wanted, found, strict=True)
            if before is None or _applied.decode(before.data).revision < revision
        ]
        yield from self._state(missed)

    # One batch. ---------------------------------------------------------------------

    def _perform(self, batch: list[Heard]) -> Any:
        controller = self.controller
        process = self._service.process
        rest = batch
        attempts = 0
        while rest:
            now = process.now()
            for key in controller.missing(rest):
                yield from _persist(partial(self._reload, key))
            commit = controller.fold(rest, now)
            self._told(commit)
            dead = [Outgoing("admit.deadletter.workload-controller", b"{}") for _ in commit.dead]
            yield from self.say(commit.notes, dead)
            done, unsure = yield from self._put(commit, now)
            if unsure:
                attempts += 1
                if attempts > ATTEMPTS:
                    raise RuntimeError(f"{len(unsure)} workloads keep moving under the batch")
                yield from self.say(done)
                continue
            yield from self.say(done)
            for put in commit.puts:
                controller.said(put.key)
            yield from _persist(partial(self._echo, commit))
            rest = commit.rest

    def _put(self, commit: Commit, now: datetime) -> Any:
        """What the puts that went through have to say, and the keys that must be decided anew."""
        controller = self.controller
        messages: list[Message] = []
        unsure: list[str] = []
        if not commit.puts:
            return messages, unsure
        alone, groups = parted(commit.puts)
        outcomes: list[int | Refused | None] = []
        if alone:
            try:
                outcomes += yield from self._link.publish_all(
                    self._server.bucket.publish, [_put_of(put) for put in alone]
                )
            except Unavailable:
                outcomes += [None] * len(alone)
        for batch in packed(groups, BATCH):
            outcomes += yield from self._put_together(batch)
        puts = [*alone, *chain.from_iterable(groups)]
        for put, outcome in zip(puts, outcomes, strict=True):
            if isinstance(outcome, int):
                messages += controller.committed(put, outcome, now)
                continue
            self._service.tell(f"put of {put.key} went wrong: {outcome}")
            yield from _persist(partial(self._reload, put.key))
            messages += controller.outbox(put.key, now)
            unsure.append(put.key)
        return messages, unsure

    def _put_together(self, groups: list[list[Put]]) -> Any:
        """Each group as a whole or not at all: in one batch, and if that is refused, each alone."""
        puts = list(chain.from_iterable(groups))
        if not self._service.mechanisms.joint:
            # Torn: each put goes for itself, the one who gets before those who give.
            messages = [_put_of(put) for put in reversed(puts)]
            try:
                torn = yield from self._link.publish_all(self._server.bucket.publish, messages)
            except Unavailable:
                return [None] * len(puts)
            return torn[::-1]
        batch = [_put_of(put) for put in puts]
        try:
            (last,) = yield from self._link.publish_all(
                lambda _: self._server.bucket.atomic(batch), batch[-1:]
            )
        except Unavailable:
            return [None] * len(puts)
        if not isinstance(last, Refused):
            self._service.tell(f"wrote {len(puts)} workloads in one batch")
            return list(range(last - len(puts) + 1, last + 1))
        if len(groups) == 1:
            return [last] * len(puts)
        outcomes: list[int | Refused | None] = []
        for group in groups:
            outcomes += yield from self._put_together([group])
        return outcomes

    def say(self, messages: Iterable[Message], more: Iterable[Outgoing] = ()) -> Any:
        """States them; raises Unavailable, or Killed when the log refuses."""
        outgoing = [*(_outgoing(message) for message in messages), *more]
        if not outgoing:
            return
        outcomes = yield from self._link.publish_all(self._server.publish, outgoing)
        for outcome in outcomes:
            if isinstance(outcome, Refused):
                raise Killed(f"the log refused: {outcome}")

    def _echo(self, commit: Commit) -> Any:
        puts = [Outgoing(*echo_put(echo)) for echo in commit.echoes]
        if puts:
            yield from self._link.publish_all(self._server.bucket.publish, puts)

    def _told(self, commit: Commit) -> None:
        service = self._service
        if service.story.keep:
            for sequence, outcome in sorted(commit.outcomes.items()):
                service.tell(f"fact {sequence} is {outcome.outcome}: {outcome.reason}")

    # Manifests. ---------------------------------------------------------------------

    def _lock(self) -> Any:
        while self._busy:
            self._free.clear()
            yield self._free
        self._busy = True

    def _unlock(self) -> None:
        self._busy = False
        self._free.set()

    def _request(self, manifests: list[dict[str, Any]], answer: Future) -> None:
        """``admit.api.apply``: comes to us, is done between two batches, is answered."""

        def begin() -> None:
            self._service.process.start(self._apply(manifests, answer))

        self._link.inwards(lambda: self._service.process.do(begin))

    def _apply(self, manifests: list[dict[str, Any]], answer: Future) -> Any:
        yield from self._lock()
        try:
            if "metadata" in manifests[0]:
                outcome = yield from self._write(manifests)
            else:
                outcome = yield from self._remove(manifests[0]["delete"])
        except (Unavailable, Superseded):
            outcome = "unavailable"
        self._unlock()
        self._link.outwards(lambda: answer.settle(outcome))

    def _write(self, manifests: list[dict[str, Any]]) -> Any:
        service = self._service
        read = [accept(manifest).manifest for manifest in manifests]
        planned = list(plan(self.controller.objects, read, now=service.process.now()))
        todo: list[Planned] = [one for one in planned if one.value is not None]
        if not todo:
            return "unchanged"
        puts = [Outgoing(one.key, one.value or b"", {EXPECTED: str(one.expected)}) for one in todo]
        last = yield from self._guarded(puts)
        if isinstance(last, Refused):
            return "stale"
        statements = []
        for number, one in enumerate(todo, last - len(todo) + 1):
            value = one.value or b""
            self.controller.keep_object(one.key, one.object, value, number)
            statements.append(statement(self.controller, Kept(one.object, value, number)))
            service.tell(f"applied {one.key} at {number}")
        yield from self.say(statements)
        return "applied"

    def _guarded(self, puts: list[Outgoing]) -> Any:
        """As `admittance.workload_controller.guard`: all puts with the guard, or none."""
        batch = [self._guard_put(), *puts]
        try:
            (last,) = yield from self._link.publish_all(
                lambda _: self._server.bucket.atomic(batch), puts[-1:]
            )
        except Unavailable:
            yield from self._regain()
            for put in puts:
                yield from _persist(partial(self._reload, put.subject))
            raise
        if isinstance(last, Refused):
            yield from self._regain()
            return last
        self._guard = last - len(puts)
        return last

    def _guard_put(self) -> Outgoing:
        headers = {} if self._guard is None else {EXPECTED: str(self._guard)}
        return Outgoing(GUARD, str(self._epoch).encode(), headers)

    def _regain(self) -> Any:
        """Nothing that was on its way lands any more."""
        bucket = self._server.bucket
        while True:
            try:
                (outcome,) = yield from self._link.publish_all(bucket.publish, [self._guard_put()])
                if not isinstance(outcome, Refused):
                    self._guard = outcome
                    return
                found = yield from self._link.ask(lambda: bucket.last[GUARD])
            except Unavailable:
                continue
            if int(found.data) > self._epoch:
                raise Superseded
            self._guard = found.sequence

    def _remove(self, key: str) -> Any:
        controller = self.controller
        kept = controller.objects.get(key)
        if kept is None:
            return "absent"
        prefix, _, name = key.partition(".")
        held = any(
            known.workload is not None
            and known.workload.status.admission is not None
            and known.workload.status.admission.cluster_queue == name
            and holds_quota(known.workload)
            for _, known in controller.workloads.items()
        )
        if users_of(controller.objects, prefix, name) or (held and prefix == "clusterqueue"):
            return "deferred"
        marker = Outgoing(key, b"", {EXPECTED: str(kept.revision), OPERATION: "DEL"})
        outcome = yield from self._guarded([marker])
        if isinstance(outcome, Refused):
            return "stale"
        controller.keep_object(key, None, b"", outcome)
        self._service.tell(f"deleted {key} at {outcome}")
        yield from self.say([statement(controller, kept._replace(revision=outcome), deleted=True)])
        return "deleted"


def _persist(handle: Callable[[], Any]) -> Any:
    """As `admittance.runtime.consume.persist`: tries until the bus answers."""
    pause = 0.01
    for _ in range(ATTEMPTS):
        try:
            return (yield from handle())
        except Unavailable:
            yield pause
            pause = min(pause * 2, 1.0)
    raise Unavailable


def _put_of(put: Put) -> Outgoing:
    headers = {EXPECTED: str(put.expected)}
    if put.value is None:
        return Outgoing(put.key, b"", {**headers, HEADER_FACT: str(put.fact), OPERATION: "DEL"})
    return Outgoing(put.key, put.value, headers)


def _outgoing(message: Message) -> Outgoing:
    headers = {MESSAGE_ID: message.id, **(message.headers or {})}
    return Outgoing(message.subject, message.data, headers)
