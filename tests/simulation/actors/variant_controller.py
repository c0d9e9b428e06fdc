"""The variant-controller: follows the bucket, and states what its core wants of families."""

from __future__ import annotations

from typing import Any, Final

from admittance.api.kinds import KINDS
from admittance.api.reading.manifest import decode_object
from admittance.events.base import Fact
from admittance.events.codec import encode
from admittance.events.names import plain
from admittance.events.subjects import subject_of
from admittance.lease.lease_state import VARIANT_CONTROLLER
from admittance.variants.core import Families
from admittance.workload import stored as workloads
from simulation.actors.alone import Alone
from simulation.actors.bucket_reader import BucketReader
from simulation.link import Unavailable
from simulation.stream import MESSAGE_ID, Outgoing, Refused, Stored

_OBJECTS: Final = {
    kind.token: kind.name for kind in KINDS.values() if kind.name in ("ClusterQueue", "LocalQueue")
}


class VariantController(Alone["Active"]):
    """One instance: stands by, leads, falls."""

    kind = "variant-controller"
    domain = VARIANT_CONTROLLER

    def begin(self, epoch: int, /) -> Active:
        return Active(self, epoch)


class Active:
    """The one that leads, or believes so."""

    def __init__(self, service: VariantController, epoch: int) -> None:
        self._service = service
        self._epoch = epoch
        self._serial = 0
        self._core = Families()
        self._bucket = BucketReader(service, _wants)

    def close(self) -> None:
        """Hears no more."""
        self._bucket.close()

    def run(self) -> Any:
        """Until another one leads."""
        service, core = self._service, self._core
        entries = yield from service.link.ask(self._bucket.begin)
        self._take(entries)
        while service.leading.lease.fence(VARIANT_CONTROLLER) == self._epoch:
            self._take(self._bucket.changes())
            facts = core.orders(service.process.now())
            if facts:
                yield from self._state(facts)
                continue
            yield self._bucket.come, self._patience()

    def _patience(self) -> float | None:
        """Until there may be something to say without news; None: never."""
        wake = self._core.wake()
        if wake is None:
            return None
        return max(0.001, (wake - self._service.process.now()).total_seconds())

    def _take(self, entries: list[Stored]) -> None:
        now = self._service.process.now()
        for entry in entries:
            prefix, _, rest = entry.subject.partition(".")
            if prefix == "workload":
                workload = None if entry.gone else workloads.decode(entry.data)
                self._core.apply(entry.subject, workload, entry.sequence, now)
                continue
            first, _, second = rest.partition(".")
            namespace, name = (plain(first), plain(second)) if second else ("", plain(first))
            manifest: Any = None if entry.gone else decode_object(entry.data).manifest
            self._core.apply_object(_OBJECTS[prefix], namespace, name, manifest, now)

    def _state(self, facts: list[Fact]) -> Any:
        service = self._service
        messages = [self._message(fact) for fact in facts]
        for message in messages:
            service.tell(f"wants {message.subject.removeprefix('admit.workload.')}")
        try:
            outcomes = yield from service.link.publish_all(service.server.publish, messages)
        except Unavailable:
            outcomes = [None] * len(messages)
        now = service.process.now()
        for fact, outcome in zip(facts, outcomes, strict=True):
            if outcome is None or isinstance(outcome, Refused):
                self._core.failed(fact, now)

    def _message(self, fact: Fact) -> Outgoing:
        self._serial += 1
        headers = {MESSAGE_ID: f"families/{self._epoch}/{self._serial}"}
        return Outgoing(subject_of(fact), encode(fact), headers)


def _wants(key: str) -> bool:
    return key.partition(".")[0] in ("workload", *_OBJECTS)


__all__ = ["VariantController"]
