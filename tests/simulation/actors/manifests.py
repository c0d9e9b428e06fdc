"""Manifests are written between two batches, guarded: as the endpoints of the leader do."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from admittance.api.meta import Condition
from admittance.api.reading.manifest import accept, encode
from admittance.control.controller import Controller
from admittance.control.heartbeats import with_active, with_changed_parameters
from admittance.control.manifest_changes import (
    PlannedWrite,
    marked,
    plan,
    statement,
    unneeded,
    users,
)
from admittance.control.objects import StoredObject, key_of
from admittance.events.requests import Applied
from simulation.actors.alone import Superseded
from simulation.actors.performing import Performing, persist
from simulation.actors.service import Service
from simulation.kernel import Future, Signal
from simulation.link import Unavailable
from simulation.stream import EXPECTED, OPERATION, Outgoing, Refused

GUARD: Final = "_admittance.manifests"
SWEEP_PAUSE: Final = 0.25
"""Seconds between two looks at what is marked."""


class Manifests:
    """What one leader writes for others, and the lock that its batches take as well."""

    def __init__(
        self, service: Service, epoch: int, controller: Controller, performing: Performing
    ) -> None:
        self._service = service
        self._server = service.server
        self._epoch = epoch
        self._link = service.link
        self._controller = controller
        self._performing = performing
        self._busy = False
        self._free = Signal()
        self._guard: int | None = None
        self._sweeping = False

    def lock(self) -> Any:
        """Waits until nothing is being committed."""
        while self._busy:
            self._free.clear()
            yield self._free
        self._busy = True

    def unlock(self) -> None:
        """The next one may commit."""
        self._busy = False
        self._free.set()

    def request(self, manifests: list[dict[str, Any]], answer: Future) -> None:
        """``admit.api.apply``: comes to us, is done between two batches, is answered."""

        def begin() -> None:
            self._service.process.start(self._apply(manifests, answer))

        self._link.inwards(lambda: self._service.process.do(begin))

    def _apply(self, manifests: list[dict[str, Any]], answer: Future) -> Any:
        yield from self.lock()
        try:
            if "beat" in manifests[0]:
                outcome = yield from self._note_activity(**manifests[0]["beat"])
            elif "metadata" in manifests[0]:
                outcome = yield from self._write(manifests)
            else:
                outcome = yield from self._remove(manifests[0]["delete"])
            yield from self._update_checks()
        except (Unavailable, Superseded):
            outcome = "unavailable"
        self.unlock()
        self.look()
        self._link.outwards(lambda: answer.settle(outcome))

    def _write(self, manifests: list[dict[str, Any]]) -> Any:
        service = self._service
        read = [accept(manifest).manifest for manifest in manifests]
        planned = list(plan(self._controller.objects, read, now=service.process.now()))
        todo: list[PlannedWrite] = [one for one in planned if one.value is not None]
        return (yield from self._put_all(todo))

    def _note_activity(self, check: str, active: bool) -> Any:
        """What heartbeats of its controller, or their absence, say of an AdmissionCheck."""
        key = f"admissioncheck.{check}"
        kept = self._controller.objects.get(key)
        if kept is None:
            return "absent"
        condition = Condition(
            type="Active",
            status="True" if active else "False",
            reason="Active" if active else "ControllerLost",
            last_transition_time=self._service.process.now(),
        )
        about = with_active(kept.object, condition)
        told = Applied(kind=about.kind, namespace="", name=check, outcome="changed")
        expected = self._controller.objects.expected(key)
        planned = PlannedWrite(key, about, encode(about), expected, told)
        return (yield from self._put_all([planned]))

    def _update_checks(self) -> Any:
        """Checks whose parameters came or went are active or not. An apply that is cut short before
        this is made up for by the next one."""
        controller = self._controller
        todo = []
        for check in with_changed_parameters(controller.objects, self._service.process.now()):
            key = key_of(check)
            told = Applied(
                kind=check.kind, namespace="", name=check.metadata.name, outcome="changed"
            )
            expected = controller.objects.expected(key)
            todo.append(PlannedWrite(key, check, encode(check), expected, told))
        yield from self._put_all(todo)

    def _put_all(self, todo: list[PlannedWrite]) -> Any:
        service = self._service
        if not todo:
            return "unchanged"
        puts = [Outgoing(one.key, one.value or b"", {EXPECTED: str(one.expected)}) for one in todo]
        last = yield from self._guarded(puts)
        if isinstance(last, Refused):
            return "stale"
        statements = []
        for number, one in enumerate(todo, last - len(todo) + 1):
            value = one.value or b""
            before = self._controller.objects.get(one.key)
            self._controller.keep_object(one.key, one.object, value, number)
            kept = StoredObject(one.object, value, number)
            statements.append(statement(self._controller, kept, before=before))
            service.tell(f"applied {one.key} at {number}")
        yield from self._performing.say(statements)
        return "applied"

    def _guarded(self, puts: list[Outgoing]) -> Any:
        """As `admittance.workload_controller.manifest_writer`: all puts with the guard, or none."""
        batch = [self._guard_put(), *puts]
        try:
            (last,) = yield from self._link.publish_all(
                lambda _: self._server.bucket.atomic(batch), puts[-1:]
            )
        except Unavailable:
            yield from self.regain()
            for put in puts:
                yield from persist(partial(self._performing.reload, put.subject))
            raise
        if isinstance(last, Refused):
            yield from self.regain()
            return last
        self._guard = last - len(puts)
        return last

    def _guard_put(self) -> Outgoing:
        headers = {} if self._guard is None else {EXPECTED: str(self._guard)}
        return Outgoing(GUARD, str(self._epoch).encode(), headers)

    def regain(self) -> Any:
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
        controller = self._controller
        kept = controller.objects.get(key)
        if kept is None:
            return "absent"
        prefix, _, name = key.partition(".")
        if users(controller.objects, controller.workloads, prefix, name):
            if key not in controller.objects.terminating:
                yield from self._put_all([marked(key, kept, self._service.process.now())])
            return "deferred"
        return (yield from self._purge(key, kept))

    def look(self) -> None:
        """Something changed that a marked object may have waited for."""
        if self._controller.objects.terminating and not self._sweeping:
            self._sweeping = True
            self._service.process.start(self._sweep())

    def _sweep(self) -> Any:
        yield SWEEP_PAUSE
        yield from self.lock()
        self._sweeping = False
        try:
            while free := unneeded(self._controller):
                for key, kept in free:
                    if (yield from self._purge(key, kept)) == "stale":
                        raise Unavailable
        except (Unavailable, Superseded):
            self._service.tell("does not know what became of a deletion")
        self.unlock()

    def _purge(self, key: str, kept: StoredObject) -> Any:
        controller = self._controller
        marker = Outgoing(key, b"", {EXPECTED: str(kept.revision), OPERATION: "DEL"})
        outcome = yield from self._guarded([marker])
        if isinstance(outcome, Refused):
            return "stale"
        controller.keep_object(key, None, b"", outcome)
        self._service.tell(f"deleted {key} at {outcome}")
        yield from self._performing.say(
            [statement(controller, kept._replace(revision=outcome), deleted=True)]
        )
        return "deleted"
