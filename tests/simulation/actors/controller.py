"""The workload-controller: its core, performed step by step as its shell does, and cut anywhere.

What is one ``await`` in the shell is one ``yield from`` here, in the same order.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import msgspec

from admittance.api.kinds import KINDS
from admittance.control.commit import Message
from admittance.control.controller import Controller
from admittance.control.manifest_changes import learn, statements
from admittance.control.workloads import NOTHING, VersionedWorkload, Workloads
from admittance.events.system import ObjectApplied
from admittance.lease.lease_state import CONTROLLER
from admittance.workload.limits import Limits
from simulation.actors.alone import Alone
from simulation.actors.log_reader import LogReader
from simulation.actors.manifests import Manifests
from simulation.actors.performing import Performing
from simulation.link import Feed, Unavailable
from simulation.stream import Stored

SECRET: Final = b"secret"
SWEEP_EVERY: Final = 40
"""Facts between two sweeps of tombstones; the shell has more patience."""
_applied = msgspec.json.Decoder(ObjectApplied)
_OURS: Final = frozenset(k.token for k in KINDS.values() if k.token not in ("workload", "job"))


class _Forgetful(Workloads):
    """Workloads that do not know which facts they hold; see `Mechanisms.skip_applied`."""

    def get(self, key: str) -> VersionedWorkload:
        known = super().get(key)
        return known if known is NOTHING else known._replace(fact=0)


class WorkloadController(Alone["Active"]):
    """One instance: stands by, leads, falls."""

    kind = "workload-controller"
    domain = CONTROLLER
    limits: Limits = Limits()

    def begin(self, epoch: int, /) -> Active:
        return Active(self, epoch)


class Active:
    """The one that leads, or believes so."""

    def __init__(self, service: WorkloadController, epoch: int) -> None:
        self._service = service
        self._server = service.server
        self._link = service.link
        self._feed: Feed | None = None
        self._log = LogReader(service, epoch)
        self.controller = Controller(SECRET, service.limits)
        if not service.mechanisms.skip_applied:
            self.controller.workloads = _Forgetful()
        if not service.mechanisms.seen:
            self.controller.catalog.newest = lambda domain: 0  # type: ignore[method-assign]  # noqa: ARG005
        self._performing = Performing(service, self.controller)
        self._manifests = Manifests(service, epoch, self.controller, self._performing)

    def close(self) -> None:
        """Hears no more, and answers no more."""
        self._log.close()
        if self._feed is not None:
            self._feed.close()
        self._server.endpoints.pop(id(self), None)

    def run(self) -> Any:
        """Leads until a newer epoch reads in our place: raises Superseded."""
        service = self._service
        controller = self.controller
        yield from self._log.make_behind()
        yield from self._manifests.regain()
        entries = yield from self._link.ask(self._snapshot)
        for entry in entries:
            self._performing.load(entry)
        unsaid = controller.settle_load(self._log.floor)
        yield from self._restate()
        if service.mechanisms.say_again:
            now = service.process.now()
            yield from self._performing.say(
                [m for key in unsaid for m in controller.outbox(key, now)]
            )
        for key in unsaid:
            controller.outbox_published(key)
        self._server.endpoints[id(self)] = self._manifests.request
        self._manifests.look()
        service.tell(f"serves from {self._log.floor + 1}, {len(unsaid)} with something unsaid")
        swept = 0
        while True:
            batch = yield from self._log.batch()
            yield from self._manifests.lock()
            yield from self._performing.perform(batch)
            self._manifests.unlock()
            through = batch[-1].sequence
            self._log.floor = max(self._log.floor, through)
            try:
                yield from self._link.ask(partial(self._log.ack, through))
            except Unavailable:
                service.tell("its acknowledgement was not heard")
            controller.acknowledged(through)
            self._manifests.look()
            if controller.read - swept > SWEEP_EVERY:
                controller.workloads.drop_tombstones(self._log.floor)
                swept = controller.read

    def _snapshot(self) -> list[Stored]:
        """What is in the bucket now; manifests are followed from here on."""
        bucket = self._server.bucket
        self._feed = Feed(
            self._link, bucket, lambda key: key.partition(".")[0] in _OURS, self._learn
        )
        return sorted(bucket.last.values())

    def _learn(self, entry: Stored) -> None:
        value = None if entry.gone else entry.data
        said = learn(self.controller, entry.subject, value, entry.sequence, entry.headers)
        if said is not None:
            self._service.process.start(self._state([said]))

    def _state(self, missed: list[Message]) -> Any:
        while True:
            try:
                yield from self._performing.say(missed)
                return
            except Unavailable:
                continue

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
