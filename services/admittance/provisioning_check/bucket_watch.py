"""Reads the bucket into the observed state of the provisioning check; reads workloads only once a
check or a request record needs them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

import structlog

from admittance.events.codec import Undecodable, decode
from admittance.events.names import token
from admittance.events.provisioning import ProvisioningFact
from admittance.events.reader import BROKEN, SetAside, Unreadable, reason_of
from admittance.events.subjects import ASKED, BUCKET, CAPACITY
from admittance.provisioning.new_request import DeletedRequestRecovery
from admittance.provisioning.observed_state import Name, ObservedState
from admittance.provisioning.records import Record, read_record
from admittance.provisioning.steps import Step
from admittance.provisioning_check.messages import HEADER_CANCELLED, deletion, key_of
from admittance.runtime.bus import bucket
from admittance.runtime.bus.bucket import Entry, follow_bucket
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.history import PAGE, newest_sequence, read_messages
from admittance.runtime.bus.messages import with_retries
from admittance.runtime.errors import BusUnavailable
from admittance.runtime.telemetry.logger import log_set_aside
from admittance.runtime.telemetry.object_faults import faults
from admittance.workload.bucket_reader import names_of, read, read_manifest

PATTERNS: Final = (
    "admissioncheck.>",
    "provisioningrequestconfig.>",
    "flavor.>",
    f"{CAPACITY}.>",
)

NAMESPACES_MAX: Final = 20
"""The most namespaces that get a filter of their own when requests of deleted records are read from
the log; for more namespaces, one wildcard covers all."""

log = structlog.get_logger()


class BucketWatch:
    """Keeps the observed state of the provisioning check up to date with the bucket.

    ``changed``: a function that is called after each batch of entries; ``objects_changed``: a
    function that is called after each change of an AdmissionCheck, configuration or flavor.
    ``needed``: an event that is set once this controller has checks or request records; from then
    on workloads are read. ``loaded``: an event that is set once the whole bucket has been read.
    """

    def __init__(
        self,
        bus: Bus,
        observed: ObservedState,
        changed: Callable[[], None],
        objects_changed: Callable[[], None],
    ) -> None:
        self._bus = bus
        self._observed = observed
        self._changed = changed
        self._objects_changed = objects_changed
        self._deleted_by_hand: dict[Name, int] = {}
        """The names of request records that were deleted by hand before this leader started, with
        the revisions of their delete markers."""
        self.ready = False
        self.needed = asyncio.Event()
        self.loaded = asyncio.Event()

    async def objects(self) -> None:
        """Watches all objects except workloads, until cancelled."""
        await follow_bucket(
            self._bus, PATTERNS, self._read_batch, self._on_objects_loaded, current=True
        )

    async def workloads(self) -> None:
        """Watches workloads, until cancelled."""
        await self.needed.wait()
        patterns = ("workload.>",)
        await follow_bucket(
            self._bus, patterns, self._read_batch, self._on_workloads_loaded, current=True
        )

    def _read_batch(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            self._read(entry)
        self._set_needed()
        self._changed()

    def _on_objects_loaded(self, _: int) -> None:
        self.ready = True
        self._set_needed()

    def _set_needed(self) -> None:
        observed = self._observed
        if self.ready and (observed.checks or observed.records or self._deleted_by_hand):
            self.needed.set()

    async def _on_workloads_loaded(self, _: int) -> None:
        deleted, self._deleted_by_hand = self._deleted_by_hand, {}
        if deleted:
            await with_retries(partial(self._recover, deleted))
        self.loaded.set()
        log.info("serving", requests=len(self._observed.records))
        self._changed()

    async def _recover(self, deleted: Mapping[Name, int]) -> None:
        """Rebuilds, from the log, the capacity requests of records that were deleted by hand. If a
        deleted record has no request left to cancel, its delete marker gets the header of this
        service, so that the next leader does not search for a request again. Raises BusUnavailable
        if the log cannot be read.
        """
        recovery = DeletedRequestRecovery(deleted)
        namespaces = {token(namespace) for namespace, _ in deleted}
        filters = [
            f"admit.provisioning.{word}.*.{namespace}.*"
            for word in sorted(ASKED)
            for namespace in (sorted(namespaces) if len(namespaces) <= NAMESPACES_MAX else "*")
        ]
        after = 0
        newest = await newest_sequence(self._bus, filters)
        while True:
            page = await read_messages(self._bus, filters, after=after)
            for message in page:
                with suppress(Undecodable):
                    fact = decode(message.subject, message.data)
                    assert isinstance(fact, ProvisioningFact), "the filters say so"
                    recovery.read(fact, message.time)
            after = page[-1].sequence if page else after
            if len(page) < PAGE and after < newest:
                # The page ends too early: the replica of the log that answered lags behind the
                # leader.
                raise BusUnavailable(f"a replica of the log lags: it ends before sequence {newest}")
            if len(page) < PAGE:
                break
        records = recovery.found()
        for record in records:
            name = record.metadata.namespace, record.metadata.name
            self._observed.recovered(record, deleted[name])
            log.info("recovered", id=record.spec.id, workload=record.spec.workload)
        settled = deleted.keys() - {
            (record.metadata.namespace, record.metadata.name) for record in records
        }
        # The outcome does not matter: if the server refuses a deletion, a new record has been
        # stored at the same key.
        await self._bus.publish_all([deletion(name, deleted[name]) for name in sorted(settled)])

    async def reread(self, step: Step) -> None:
        """Reads the key of the step's write again after the server refused the write: another
        writer changed the key, or the key has a delete marker that this service does not know.
        Raises BusUnavailable or BusRefused if the read fails.
        """
        assert step.write is not None, "a write was refused"
        name = step.slot.namespace, step.write.name
        entry = await bucket.get(self._bus, key_of(step.slot, step.write))
        revision = entry.revision if entry is not None else 0
        record = _record_of(entry) if entry is not None else None
        if record is None and entry is not None and HEADER_CANCELLED not in entry.headers:
            # This leader may have stored a record, without getting the acknowledgement, and the
            # record was then deleted by hand.
            await self._recover({name: revision})
        self._observed.record(name, record, revision)
        if record is None:
            self._observed.marked(step.slot, step.write.name, revision)

    def _read(self, entry: Entry) -> None:
        kind = entry.key.partition(".")[0]
        try:
            namespace, name = names_of(entry.key)
            if not namespace and kind == CAPACITY:
                raise Unreadable("the key of a request has no namespace")
            if kind == "workload":
                workload = None if entry.value is None else read(entry.key, entry.value)
                self._observed.workload((namespace, name), workload)
            elif kind == CAPACITY:
                self._read_record((namespace, name), entry)
            else:
                self._read_object(kind, name, entry)
        except Exception as error:
            # One object that cannot be read must not stop the others.
            if not isinstance(error, (*BROKEN, TypeError)):
                faults.record("provisioning-check", "read an entry", entry.key, error)
            _set_aside(entry, reason_of(error))

    def _read_record(self, name: Name, entry: Entry) -> None:
        record = _record_of(entry)
        if self.loaded.is_set():
            # `ObservedState.lost_records` keeps the records that are deleted after the bucket was
            # read.
            pass
        elif record is None and HEADER_CANCELLED not in entry.headers:
            self._deleted_by_hand[name] = entry.revision
        else:
            self._deleted_by_hand.pop(name, None)
        self._observed.record(name, record, entry.revision)

    def _read_object(self, kind: str, name: str, entry: Entry) -> None:
        manifest: Any = None if entry.value is None else read_manifest(entry.key, entry.value)
        match kind:
            case "admissioncheck":
                self._observed.check(name, manifest)
            case "provisioningrequestconfig":
                self._observed.config(name, manifest)
            case "flavor":
                self._observed.flavor(name, manifest)
        self._objects_changed()


def _record_of(entry: Entry) -> Record | None:
    """The request record in an entry of the bucket; None if the record was deleted. An entry that
    cannot be read counts as deleted by hand.
    """
    if entry.value is None:
        return None
    try:
        return read_record(entry.key, entry.value)
    except Unreadable as error:
        _set_aside(entry, str(error))
        return None


def _set_aside(entry: Entry, reason: str) -> None:
    log_set_aside(SetAside(f"KV_{BUCKET}", entry.key, entry.revision, reason))
