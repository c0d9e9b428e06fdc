"""The scheduler: watch, lead, decide and state, as its shell does."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import msgspec

from admittance.api.kinds import KINDS
from admittance.api.reading.manifest import decode_object
from admittance.events.codec import encode
from admittance.events.facts import Decision
from admittance.events.names import plain
from admittance.events.subjects import subject_of
from admittance.events.system import BarrierEcho
from admittance.scheduling.scheduler import Scheduler
from admittance.scheduling.state.config import Config
from admittance.workload import stored as workloads
from simulation.actors.leading import BEAT, Leading, fence
from simulation.actors.service import Service
from simulation.kernel import Signal
from simulation.link import Feed, Unavailable
from simulation.stream import Outgoing, Refused, Stored

_KINDS: Final = {k.token: k.name for k in KINDS.values() if k.name not in ("Workload", "Job")}


class SchedulerService(Service):
    """One instance: its picture, and what it is about to state."""

    kind = "scheduler"
    config: Config

    def start(self) -> None:
        self.leading = Leading(self)
        self.core = Scheduler(self.config)
        self._loaded = Signal()
        self._changed = Signal()
        self._buffer: list[Stored] = []
        self._come = Signal()
        self.process.start(self.leading.run())
        self.process.start(self._watch())
        self.process.start(self._lead())
        self.process.start(self._decide())

    # The picture. -------------------------------------------------------------------

    def _watch(self) -> Any:
        while True:
            try:
                entries = yield from self.link.ask(self._snapshot)
                break
            except Unavailable:
                continue
        self._take_all(entries)
        self._loaded.set()
        self.leading.changed.set()
        while True:
            self._changed.set()
            self._come.clear()
            if not self._buffer:
                yield self._come
            entries, self._buffer = self._buffer, []
            self._take_all(entries)

    def _snapshot(self) -> list[Stored]:
        feed = Feed(self.link, self.server.bucket, lambda _: True, self._heard)
        self.closing.append(feed.close)
        return sorted(self.server.bucket.last.values())

    def _heard(self, stored: Stored) -> None:
        self._buffer.append(stored)
        self._come.set()

    def _take_all(self, entries: list[Stored]) -> None:
        for entry in entries:
            self._take(entry)
        if entries:
            self.core.seen(entries[-1].sequence)

    def _take(self, entry: Stored) -> None:
        prefix, _, rest = entry.subject.partition(".")
        first, _, second = rest.partition(".")
        if prefix == "workload":
            workload = None if entry.gone else workloads.decode(entry.data)
            now = self.process.now()
            self.core.apply_workload(plain(first), plain(second), workload, entry.sequence, now=now)
        elif prefix == "barrier":
            echo = msgspec.json.decode(entry.data, type=BarrierEcho)
            if self.leading.lease.echoed(echo.domain, echo.epoch):
                self.core.own(echo.domain)
                self.tell(f"decides for {echo.domain}")
        elif prefix in _KINDS:
            namespace, name = (plain(first), plain(second)) if second else ("", plain(first))
            manifest = None if entry.gone else decode_object(entry.data).manifest
            self.core.apply_object(_KINDS[prefix], namespace, name, manifest, entry.sequence)
            self.leading.changed.set()

    # Leading. -----------------------------------------------------------------------

    def _lead(self) -> Any:
        leading = self.leading
        yield self._loaded
        yield leading.watching
        while True:
            leading.changed.clear()
            domains = self.core.domains()
            held = set(leading.lease.leads())
            for domain in sorted(self.core.owned() - held):
                self.core.disown(domain)
            with suppress(Unavailable):
                yield from leading.take(sorted(domains), barrier=True)
            for domain in leading.lease.leads():
                if domain not in self.core.owned():
                    self.core.own(domain)
            self._changed.set()
            lease = leading.lease
            vacant = leading.failed or any(
                lease.held(domain) is None and lease.owner(domain) == self.instance
                for domain in self.core.domains()
            )
            # Each heartbeat that is heard is such a change; here only where it makes a difference,
            # so that nothing happens any more when nothing is to be done.
            yield leading.changed, (BEAT if vacant else None)

    # Deciding. ----------------------------------------------------------------------

    def _decide(self) -> Any:
        core = self.core
        yield self._loaded
        while True:
            self._changed.clear()
            now = self.process.now()
            core.wake(now=now)
            decisions: list[Decision] = list(core.cycle(now=now)) if core.has_work() else []
            decisions += core.refusals(now=now)
            if decisions:
                self._state(decisions)
            if core.has_work():
                yield 0.0002
                continue
            wake = core.next_wake()
            timeout = None
            if wake is not None:
                timeout = max(0.0, (wake - self.process.now()).total_seconds())
            yield self._changed, timeout

    def _state(self, decisions: list[Decision]) -> None:
        messages: list[tuple[Decision, Outgoing]] = []
        for decision in decisions:
            epoch = self.leading.lease.fence(decision.domain)
            if epoch is None:
                self.core.disown(decision.domain)
                continue
            message = Outgoing(
                subject_of(decision), encode(decision), fence(decision.domain, epoch)
            )
            messages.append((decision, message))
        self.process.start(self._publish(messages))

    def _publish(self, messages: list[tuple[Decision, Outgoing]]) -> Any:
        if not messages:
            return
        try:
            outcomes = yield from self.link.publish_all(
                self.server.publish, [message for _, message in messages]
            )
        except Unavailable:
            self.tell(f"does not know what became of {len(messages)} decisions")
            for domain in sorted({decision.domain for decision, _ in messages}):
                yield from self._lose(domain)
            return
        for (decision, _), outcome in zip(messages, outcomes, strict=True):
            if isinstance(outcome, Refused):
                self.tell(f"is fenced: {decision.domain}, for {decision.name}")
                yield from self._lose(decision.domain)
        self._changed.set()

    def _lose(self, domain: str) -> Any:
        if self.leading.lease.held(domain) is None:
            return
        self.core.disown(domain)
        try:
            yield from self.leading.lost(domain)
        except Unavailable:
            return
