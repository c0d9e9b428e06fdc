"""What a batch of facts leads to. Pure: no bus, no clock, no chance.

The shell reads a batch, has it folded into a `Commit`, performs that in its order, and tells what
came of it: `committed` for every put that went through, `reloaded` for every key that somebody
else had moved.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from admittance.api.kinds import KINDS
from admittance.control.commit import Commit, Echo, Heard, Message, Put
from admittance.control.fold import VALUE_MAX, Folding
from admittance.control.known import Known, Workloads
from admittance.control.messages import Speaker
from admittance.control.objects import Kept, Objects
from admittance.control.queue_view import Queues
from admittance.control.variants import Cradle
from admittance.events.base import HEADER_TRACE
from admittance.events.codec import encode
from admittance.events.names import token
from admittance.events.reading import SEQUENCE_MAX, Unreadable, number, reason_of
from admittance.events.subjects import CAPACITY, USAGE, workload_key
from admittance.events.system import BarrierEcho
from admittance.quota.catalog import Catalog
from admittance.workload.limits import Limits
from admittance.workload.reading import names_of, read_manifest, read_whole
from admittance.workload.stored import StoredWorkload

HEADER_FACT: Final = "Admit-Fact"
"""Header of a delete marker: the fact that deleted, so that reading it again revives nobody."""


class Controller:
    """All that the workload-controller knows, and what it makes of facts."""

    def __init__(self, secret: bytes, limits: Limits | None = None) -> None:
        self.objects = Objects()
        self.catalog = Catalog()
        self.workloads = Workloads()
        self.around = Queues(self.objects, self.catalog, limits or Limits())
        self.speaker = Speaker(self.objects, secret, self._workload)
        self.cradle = Cradle()
        self.unreadable: dict[str, str] = {}
        """Keys of values that cannot be read, and why; the caller that logs them takes them out."""
        self.read = 0
        self.newest_fact = 0
        """The newest fact that any workload held when the bucket was read."""
        self._loaded_manifests = 0
        self.manifests_floor = 0
        """Newest revision of any manifest when the bucket was read, deleted ones included. What a
        tree was before a queue left it is not in the bucket, so whatever was decided before this
        counts as decided from an older picture."""

    def _workload(self, namespace: str, name: str) -> StoredWorkload | None:
        return self.workloads.get(workload_key(namespace, name)).workload

    # The bucket. --------------------------------------------------------------------

    def load(
        self, key: str, value: bytes | None, revision: int, headers: Mapping[str, str]
    ) -> None:
        """An entry of the bucket, as read at the start or after a refused put. A value that cannot
        be read counts as none, and is noted in ``unreadable``."""
        prefix = key.partition(".")[0]
        if prefix in ("barrier", "_admittance", USAGE, CAPACITY):
            return
        try:
            names_of(key)
        except Unreadable as error:
            # Nothing can be said of it: there is no subject with such a name.
            self.unreadable[key] = str(error)
            return
        try:
            if prefix == "workload":
                self._load_workload(key, value, revision, headers)
            else:
                self._load_object(key, value, revision)
        except Unreadable as error:
            self.unreadable[key] = str(error)
            if prefix == "workload":
                self.workloads.keep(key, Known(None, revision, 0, unreadable=True))
            else:
                self.keep_object(key, None, b"", revision)

    def _load_workload(
        self, key: str, value: bytes | None, revision: int, headers: Mapping[str, str]
    ) -> None:
        if value is None:
            self.workloads.keep(key, Known(None, revision, number(headers.get(HEADER_FACT)) or 0))
            return
        workload = read_whole(key, value)
        trace = headers.get(HEADER_TRACE, "")
        self.workloads.load(key, Known(workload, revision, workload.status.log.fact, trace))

    def limit_fact(self, key: str, end: int) -> None:
        """A workload cannot hold a fact behind the ``end`` of the log: it would skip every fact
        until the log gets there. It counts as written when all that was read up to now was."""
        known = self.workloads.get(key)
        if known.fact > end:
            self.unreadable[key] = (
                f"status.log.fact: {known.fact} is behind the end of the log, {end}; where many "
                "are, restore log and bucket from one backup"
            )
            self.workloads.limit_fact(key, self.read)

    def _load_object(self, key: str, value: bytes | None, revision: int) -> None:
        self._loaded_manifests = max(self._loaded_manifests, revision)
        if revision <= self.objects.expected(key):
            return
        manifest = None if value is None else read_manifest(key, value)
        try:
            self.keep_object(key, manifest, value or b"", revision)
        except Exception as error:
            # Such as a quantity that no door let in: it has its shape, and no meaning.
            raise Unreadable(reason_of(error)) from error

    def keep_object(self, key: str, manifest: Any, value: bytes, revision: int) -> None:
        """A manifest as it is from now on; None: it is gone."""
        old = self.objects.get(key)
        about = manifest if manifest is not None else (old.object if old is not None else None)
        if manifest is None:
            self.objects.gone(key, revision)
        else:
            self.objects.keep(key, Kept(manifest, value, revision))
        if about is not None and about.kind in KINDS:
            meta = about.metadata
            self.catalog.apply(about.kind, meta.namespace, meta.name, manifest, revision)

    def settle_load(self, floor: int, end: int = SEQUENCE_MAX) -> list[str]:
        """The bucket is read. Keys of what may not have been said: what follows from facts that
        nobody acknowledged (those after floor). ``end``: of the log."""
        unsaid = []
        self.read = max(self.read, floor)
        for key, _ in list(self.workloads.items()):
            self.limit_fact(key, end)
            known = self.workloads.get(key)
            self.newest_fact = max(self.newest_fact, known.fact)
            workload = known.workload
            if workload is None:
                continue
            if workload.status.log.says and workload.status.log.fact > floor:
                unsaid.append(key)
            else:
                self.workloads.let_go(key)
        self.manifests_floor = self._loaded_manifests
        return unsaid

    def missing(self, batch: Iterable[Heard]) -> list[str]:
        """Keys that the batch speaks of and that must be loaded before it is folded."""
        keys = {f"workload.{'.'.join(heard.subject.split('.')[-2:])}" for heard in batch}
        return [key for key in keys if self.workloads.must_load(key)]

    # Facts. -------------------------------------------------------------------------

    def fold(self, batch: list[Heard], now: datetime) -> Commit:
        """What the batch leads to. Facts about one workload fold into one put, up to the first
        that would move a workload which still has something to say to machines: from there on the
        batch is handed back as ``rest``."""
        careful: frozenset[str] = frozenset()
        while True:
            commit = self._fold(Folding(self, now, careful), batch)
            long = {put.key for put in commit.puts if put.value and len(put.value) > VALUE_MAX}
            if long <= careful:
                return commit
            # Once more, to find out which fact is too much. It is measured here because the bytes
            # are here anyway.
            careful |= long

    def _fold(self, folding: Folding, batch: list[Heard]) -> Commit:
        for index, heard in enumerate(batch):
            if not folding.take(heard):
                return folding.commit(batch[index:], batch[index - 1].sequence)
        return folding.commit([], batch[-1].sequence if batch else self.read)

    def committed(self, put: Put, revision: int, now: datetime) -> list[Message]:
        """The put went through: what it has to say."""
        if put.value is None:
            self.workloads.keep(put.key, Known(None, revision, put.fact))
            return []
        self.workloads.keep(put.key, Known(put.workload, revision, put.fact, put.trace))
        return self.outbox(put.key, now)

    def outbox(self, key: str, now: datetime) -> list[Message]:
        """What the workload at key had to say with its last write."""
        known = self.workloads.get(key)
        if known.workload is None:
            return []
        try:
            return list(self.speaker.messages(known.workload, known.revision, now, known.trace))
        except AssertionError:
            raise
        except Exception as error:
            # Another hand wrote what it has to say; it must not keep a leader from its work.
            self.unreadable[key] = f"status.log.says: {reason_of(error)}"
            return []

    def said(self, key: str) -> None:
        """All of it is acknowledged by the bus."""
        self.workloads.let_go(key)

    def acknowledged(self, through: int) -> None:
        """Every fact up to through is dealt with, for good."""
        self.read = max(self.read, through)


def echo_put(echo: Echo) -> tuple[str, bytes]:
    """Key and value of a barrier's echo."""
    return (
        f"barrier.{token(echo.domain)}",
        encode(BarrierEcho(domain=echo.domain, epoch=echo.epoch)),
    )
