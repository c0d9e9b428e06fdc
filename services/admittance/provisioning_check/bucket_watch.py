"""Reads the bucket into the observed state: objects at once, workloads once a check needs them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final

import structlog

from admittance.events.codec import Undecodable, decode
from admittance.events.names import plain, token
from admittance.events.provisioning import ProvisioningFact
from admittance.events.reader import SetAside, Unreadable, reason_of
from admittance.events.subjects import ASKED, BUCKET, CAPACITY
from admittance.provisioning.new_record import DeletedRequestRecovery
from admittance.provisioning.observed_state import Name, ObservedState
from admittance.provisioning.records import Record, read_record
from admittance.provisioning.steps import Step
from admittance.provisioning_check.messages import HEADER_TAKEN_BACK, key_of, taken_back
from admittance.runtime.bus import bucket
from admittance.runtime.bus.bucket import BucketReader, Entry
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.history import PAGE, past
from admittance.runtime.bus.messages import with_retries
from admittance.runtime.telemetry.logger import log_set_aside
from admittance.workload.bucket_reader import read, read_manifest

PATTERNS: Final = (
    "admissioncheck.>",
    "provisioningrequestconfig.>",
    "flavor.>",
    f"{CAPACITY}.>",
)

SPACES_MAX: Final = 20
"""With more namespaces than this the log is read for all namespaces at once."""

log = structlog.get_logger()


class BucketWatch:
    """``changed`` is called after each batch, ``objects_changed`` after each check, configuration
    or flavor. ``needed``: there are checks of this controller, or requests, so workloads are
    followed; ``loaded``: the observed state has everything that the bucket had at the start."""

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
        self._strange: dict[Name, int] = {}
        """Records deleted by hand before this leader began, with the revisions of the delete
        markers."""
        self.ready = False
        self.needed = asyncio.Event()
        self.loaded = asyncio.Event()

    async def objects(self) -> None:
        """Follows all objects but workloads, until cancelled."""
        reader = BucketReader(self._bus, PATTERNS)
        try:
            async for entries in reader.batches():
                for entry in entries:
                    self._read(entry)
                if reader.loaded.is_set():
                    # Without checks and requests, workloads are not read at all.
                    self.ready = True
                    if self._observed.checks or self._observed.records or self._strange:
                        self.needed.set()
                self._changed()
        finally:
            await reader.close()

    async def workloads(self) -> None:
        """Follows workloads, until cancelled."""
        await self.needed.wait()
        reader = BucketReader(self._bus, ("workload.>",))
        try:
            async for entries in reader.batches():
                for entry in entries:
                    self._read(entry)
                if reader.loaded.is_set() and not self.loaded.is_set():
                    strange, self._strange = self._strange, {}
                    if strange:
                        await with_retries(partial(self._recover, strange))
                    self.loaded.set()
                    log.info("serving", requests=len(self._observed.records))
                self._changed()
        finally:
            await reader.close()

    async def _recover(self, strange: Mapping[Name, int]) -> None:
        """Rebuilds requests from the log after their records were deleted by hand, and marks the
        other deletions as settled. Raises Unavailable."""
        recovering = DeletedRequestRecovery(strange)
        spaces = {token(namespace) for namespace, _ in strange}
        filters = [
            f"admit.provisioning.{word}.*.{one}.*"
            for word in sorted(ASKED)
            for one in (sorted(spaces) if len(spaces) <= SPACES_MAX else "*")
        ]
        after = 0
        while True:
            page = await past(self._bus, filters, after=after)
            for one in page:
                with suppress(Undecodable):
                    fact = decode(one.subject, one.data)
                    assert isinstance(fact, ProvisioningFact), "the filters say so"
                    recovering.hear(fact, one.time)
            if len(page) < PAGE:
                break
            after = page[-1].sequence
        found = recovering.found()
        for record in found:
            name = record.metadata.namespace, record.metadata.name
            self._observed.recovered(record, strange[name])
            log.info("recovered", id=record.spec.id, workload=record.spec.workload)
        left = strange.keys() - {(one.metadata.namespace, one.metadata.name) for one in found}
        settled = [taken_back(name, strange[name]) for name in sorted(left)]
        # A refusal means that there is a record again.
        await self._bus.publish_all(settled)

    async def again(self, step: Step) -> None:
        """Reads the key of a refused write again: another writer changed it, or it has an unknown
        delete marker. Raises Unavailable or Refused."""
        assert step.write is not None, "it was refused"
        name = step.slot.namespace, step.write.name
        found = await bucket.get(self._bus, key_of(step.slot, step.write))
        revision = found.revision if found is not None else 0
        record = _record_of(found) if found is not None else None
        if record is None and found is not None and HEADER_TAKEN_BACK not in found.headers:
            # This leader's record may have been written without an acknowledgement and deleted by
            # hand.
            await self._recover({name: revision})
        self._observed.record(name, record, revision)
        if record is None:
            self._observed.marked(step.slot, step.write.name, revision)

    def _read(self, entry: Entry) -> None:
        kind, _, tail = entry.key.partition(".")
        try:
            names = [plain(one) for one in tail.split(".")]
            if kind == "workload":
                workload = None if entry.value is None else read(entry.key, entry.value)
                self._observed.workload((names[0], names[1]), workload)
            elif kind == CAPACITY:
                self._read_record((names[0], names[1]), entry)
            else:
                self._read_object(kind, names[0], entry)
        except Exception as error:
            # A broken object must not stop the others.
            _tell(entry, reason_of(error))

    def _read_record(self, name: Name, entry: Entry) -> None:
        record = _record_of(entry)
        if self.loaded.is_set():
            pass  # From now on `ObservedState.lost` has deleted records.
        elif record is None and HEADER_TAKEN_BACK not in entry.headers:
            self._strange[name] = entry.revision
        else:
            self._strange.pop(name, None)
        self._observed.record(name, record, entry.revision)

    def _read_object(self, kind: str, name: str, entry: Entry) -> None:
        found: Any = None if entry.value is None else read_manifest(entry.key, entry.value)
        match kind:
            case "admissioncheck":
                self._observed.check(name, found)
            case "provisioningrequestconfig":
                self._observed.config(name, found)
            case "flavor":
                self._observed.flavor(name, found)
        self._objects_changed()


def _record_of(entry: Entry) -> Record | None:
    """The record of the entry; None: there is none. An entry that is no record counts as deleted by
    hand."""
    if entry.value is None:
        return None
    try:
        return read_record(entry.key, entry.value)
    except Unreadable as error:
        _tell(entry, str(error))
        return None


def _tell(entry: Entry, reason: str) -> None:
    log_set_aside(SetAside(f"KV_{BUCKET}", entry.key, entry.revision, reason))
