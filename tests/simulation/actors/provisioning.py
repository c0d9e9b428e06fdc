"""The provisioning check: follows the bucket and what providers say, writes, asks and tells."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import msgspec

from admittance.api.reading.manifest import decode_object
from admittance.events.codec import decode, encode
from admittance.events.facts import CheckReported
from admittance.events.names import plain
from admittance.events.provisioning import ProvisioningRequested, ProvisioningStatus
from admittance.events.subjects import ASKED, CAPACITY, PROVISIONING_FACTS, object_key, subject_of
from admittance.lease.lease_state import PROVISIONING_CHECK
from admittance.provisioning.core import ProvisioningCore
from admittance.provisioning.observed_state import CONTROLLER
from admittance.provisioning.records import Record
from admittance.provisioning.steps import Step, Write
from admittance.workload import stored as workloads
from simulation.actors.alone import Alone
from simulation.actors.bucket_reader import BucketReader
from simulation.actors.provider import PATIENCE
from simulation.link import Feed, Unavailable
from simulation.stream import EXPECTED, MESSAGE_ID, OPERATION, Outgoing, Refused, Stored

PLACE: Final = "provisioning-check"
SAID: Final = tuple(f"admit.provisioning.{word}." for word in PROVISIONING_FACTS.keys() - ASKED)
KINDS: Final = (
    "admissioncheck.",
    "provisioningrequestconfig.",
    "flavor.",
    "workload.",
    f"{CAPACITY}.",
)
AGAIN_SECONDS: Final = 0.2


class ProvisioningCheck(Alone["Active"]):
    """One instance: stands by, leads, falls."""

    kind = "provisioning-check"
    domain = PROVISIONING_CHECK

    def begin(self, _: int, /) -> Active:
        return Active(self)


class Active:
    """The one that leads, or believes so."""

    def __init__(self, service: ProvisioningCheck) -> None:
        self._service = service
        self._server = service.server
        self._core = ProvisioningCore(PATIENCE)
        self._bucket = BucketReader(service, lambda key: key.startswith(KINDS))
        self._said: list[Stored] = []
        self._feed: Feed | None = None

    def close(self) -> None:
        """Hears no more."""
        self._bucket.close()
        if self._feed is not None:
            self._feed.close()

    def run(self) -> Any:
        """Until another one leads."""
        service, core = self._service, self._core
        entries, self._said = yield from service.link.ask(self._snapshot)
        # Records last: what they are of is known then.
        self._take(sorted(entries, key=lambda one: one.subject.startswith(CAPACITY)))
        while service.leading.lease.fence(PROVISIONING_CHECK) is not None:
            self._take(self._bucket.changes())
            now = service.process.now()
            core.mark_overdue(now)
            steps = list(core.steps(now))
            if steps:
                yield from self._perform(steps)
                continue
            if self._said:
                yield from self._hear(self._said.pop(0))
                continue
            wake = core.next_deadline()
            seconds = None if wake is None else max(0.001, (wake - now).total_seconds())
            yield self._bucket.come, seconds

    # What comes in. ---------------------------------------------------------------------

    def _snapshot(self) -> tuple[list[Stored], list[Stored]]:
        server = self._server
        entries = self._bucket.begin()
        self._feed = Feed(self._service.link, server.log, _answers, self._spoken)
        since = server.places.get(PLACE, 0)
        return entries, [one for one in server.log.messages[since:] if _answers(one.subject)]

    def _spoken(self, stored: Stored) -> None:
        self._said.append(stored)
        self._bucket.come.set()

    def _take(self, entries: list[Stored]) -> None:
        observed = self._core.observed
        for entry in entries:
            kind, *names = map(plain, entry.subject.split("."))
            if kind == "workload":
                found = None if entry.gone else workloads.decode(entry.data)
                observed.workload((names[0], names[1]), found)
            elif kind == CAPACITY:
                record = None if entry.gone else msgspec.json.decode(entry.data, type=Record)
                observed.record((names[0], names[1]), record, entry.sequence)
            else:
                manifest: Any = None if entry.gone else decode_object(entry.data).manifest
                match kind:
                    case "admissioncheck":
                        observed.check(names[0], manifest)
                    case "flavor":
                        observed.flavor(names[0], manifest)
                    case _:
                        observed.config(names[0], manifest)

    def _hear(self, stored: Stored) -> Any:
        fact = decode(stored.subject, stored.data)
        assert isinstance(fact, ProvisioningStatus)
        step, _ = self._core.apply_status(fact, self._service.process.now())
        if step is not None and (yield from self._perform([step])):
            self._said.insert(0, stored)
            return
        # Acknowledged once what follows from it is on the log.
        while steps := list(self._core.steps(self._service.process.now())):
            if (yield from self._perform(steps)):
                self._said.insert(0, stored)
                return
        place = max(stored.sequence, self._server.places.get(PLACE, 0))
        yield from self._service.link.ask(partial(self._server.places.__setitem__, PLACE, place))

    # Steps. -----------------------------------------------------------------------------

    def _perform(self, steps: list[Step]) -> Any:
        """True: some failed."""
        failed = False
        for step in steps:
            revision = 0
            try:
                if step.write is not None:
                    revision = yield from self._write(step)
                for message in () if revision is None else _messages(step):
                    yield from self._service.link.publish_all(self._server.publish, [message])
            except Unavailable:
                self._core.failed(step)
                failed = True
                continue
            if revision is None:
                self._core.failed(step)
                failed = True
            else:
                self._core.done(step, revision)
        if failed:
            yield AGAIN_SECONDS
        return failed

    def _write(self, step: Step) -> Any:
        """The revision; None: somebody else wrote, which is read."""
        assert step.write is not None
        bucket, link = self._server.bucket, self._service.link
        message = _put(step.slot.namespace, step.write)
        (outcome,) = yield from link.publish_all(bucket.publish, [message])
        if not isinstance(outcome, Refused):
            return outcome
        found = yield from link.ask(partial(bucket.last.get, message.subject))
        if found is not None and not found.gone:
            self._take([found])
        else:
            revision = found.sequence if found is not None else 0
            self._core.observed.marked(step.slot, step.write.name, revision)
        return None


def _answers(subject: str) -> bool:
    return subject.startswith(SAID)


def _put(namespace: str, write: Write) -> Outgoing:
    key = object_key(CAPACITY, namespace, write.name)
    expected = {EXPECTED: str(write.expected)}
    if write.record is None:
        return Outgoing(key, b"", {**expected, OPERATION: "DEL"})
    return Outgoing(key, encode(write.record), expected)


def _messages(step: Step) -> list[Outgoing]:
    found = []
    if step.fact is not None:
        what = "requested" if isinstance(step.fact, ProvisioningRequested) else "cancelled"
        headers = {MESSAGE_ID: f"provisioning/{what}/{step.fact.id}"}
        found.append(Outgoing(subject_of(step.fact), encode(step.fact), headers))
    if step.report is not None:
        answer, about = step.report.verdict, step.report.reservation
        said = CheckReported(
            namespace=step.slot.namespace,
            name=step.slot.workload,
            uid=about.uid,
            controller=CONTROLLER,
            check=step.slot.check,
            cycle=about.cycle,
            state=answer.state,
            message=answer.message,
            requeue_after_seconds=answer.after,
            pod_set_updates=answer.updates,
        )
        found.append(Outgoing(subject_of(said), encode(said)))
    return found


__all__ = ["ProvisioningCheck"]
