"""The objects and workloads that the workload-controller holds, as loaded from the bucket.

The module is pure: the caller reads the bucket and passes the entries in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from admittance.api.kinds import OBJECT_KINDS
from admittance.api.reading.workload_reader import WorkloadReader
from admittance.control.commit import LogMessage, Message, Put
from admittance.control.manifests.objects import ManifestQueueView, Objects, StoredObject
from admittance.control.messages import MessageBuilder
from admittance.control.user_requests.submissions import VariantIntake
from admittance.control.workloads import VersionedWorkload, Workloads
from admittance.events.base import HEADER_TRACE
from admittance.events.names import token
from admittance.events.reader import SEQUENCE_MAX, Unreadable, number, reason_of
from admittance.events.subjects import CAPACITY, FENCED, RESTORED, USAGE, workload_key
from admittance.object_errors import ObjectError
from admittance.quota.catalog import Catalog
from admittance.workload.arrays.dependencies import names_in
from admittance.workload.arrays.intake import ElementIntake
from admittance.workload.bucket_reader import names_of, read_manifest, read_whole
from admittance.workload.limits import Limits
from admittance.workload.stored import StoredWorkload

HEADER_FACT: Final = "Admit-Fact"
"""Header of a delete marker: the sequence of the fact that deleted the workload. A fact up to that
sequence does not create the workload again."""

DECISIONS: Final = tuple(f"admit.workload.{key}." for key in sorted(FENCED))
"""The beginnings of the subjects of decisions."""


def key_of_fact(logged: LogMessage) -> str:
    """The key of the workload that a fact is about; of another message a key that no workload
    has."""
    return f"workload.{'.'.join(logged.subject.split('.')[-2:])}"


class Controller:
    """Manifests, quota catalog and workloads, kept equal to the bucket."""

    def __init__(self, secret: bytes, limits: Limits | None = None) -> None:
        self.objects = Objects()
        limits = limits or Limits()
        self.catalog = Catalog(machines=limits.machines)
        self.workloads = Workloads()
        self.queues = ManifestQueueView(self.objects, self.catalog, limits)
        self.message_builder = MessageBuilder(self.objects, secret, self._workload)
        self.variant_intake = VariantIntake()
        self.element_intake = ElementIntake()
        self.workload_reader = WorkloadReader()
        self.unreadable: dict[str, str] = {}
        """For each key with a value that cannot be read, the reason. The caller logs the entries of
        ``unreadable`` and removes them."""
        self.errors: list[ObjectError] = []
        """Exceptions by bugs that concerned one object; the caller records and removes them."""
        self.read = 0
        """Sequence of the last fact that is applied and acknowledged."""
        self.newest_fact = 0
        """Sequence of the newest fact that was applied to any workload when the bucket was read."""
        self._loaded_manifests = 0
        self.manifests_floor = 0
        """Newest revision of any manifest when the bucket was read, deleted manifests included.
        The bucket does not hold earlier cohort trees, so a decision that has not seen this revision
        counts as out of date."""

    def use_limits(self, limits: Limits) -> None:
        """Sets the limits of the deployment."""
        self.queues.limits = limits
        self.catalog.use_machines(limits.machines)

    def _workload(self, namespace: str, name: str) -> StoredWorkload | None:
        return self.workloads.get(workload_key(namespace, name)).workload

    def load(
        self, key: str, value: bytes | None, revision: int, headers: Mapping[str, str]
    ) -> None:
        """Loads an entry of the bucket, at the start or after a refused put. A value that cannot be
        read counts as absent, and its key is recorded in ``unreadable``."""
        prefix = key.partition(".")[0]
        if key == RESTORED:
            # Decisions that are still on the log were made from revisions from before the bucket
            # was restored.
            self._loaded_manifests = max(self._loaded_manifests, revision)
        if prefix in ("barrier", "_admittance", USAGE, CAPACITY):
            return
        try:
            names_of(key)
        except Unreadable as error:
            # No subject can contain the name in this key, so no message about the object is
            # possible.
            if value is not None:
                self.unreadable[key] = str(error)
            return
        try:
            if prefix == "workload":
                self._load_workload(key, value, revision, headers)
            else:
                self._load_object(key, value, revision)
        except Exception as error:
            self.unreadable[key] = reason_of(error)
            if not isinstance(error, Unreadable):
                self.errors.append(ObjectError("load an entry", key, error))
            if prefix == "workload":
                self.workloads.keep(key, VersionedWorkload(None, revision, 0, unreadable=True))
            else:
                self._set_aside(key, revision)

    def _load_workload(
        self, key: str, value: bytes | None, revision: int, headers: Mapping[str, str]
    ) -> None:
        if value is None:
            self.workloads.keep(
                key, VersionedWorkload(None, revision, number(headers.get(HEADER_FACT)) or 0)
            )
            return
        workload = read_whole(key, value)
        trace = headers.get(HEADER_TRACE, "")
        self.workloads.load(
            key, VersionedWorkload(workload, revision, workload.status.log.fact, trace)
        )

    def limit_fact(self, key: str, end: int) -> None:
        """Lowers the last applied fact of a workload to ``read`` if that fact lies beyond ``end``,
        the end of the log: otherwise the workload would skip every fact until the log reached that
        sequence."""
        known = self.workloads.get(key)
        if known.fact > end:
            self.unreadable[key] = (
                f"status.log.fact: {known.fact} is beyond the end of the log, {end}; where many "
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
            # A manifest can be unreadable, for example because a quantity is a string that cannot
            # be parsed.
            raise Unreadable(reason_of(error)) from error

    def keep_object(self, key: str, manifest: Any, value: bytes, revision: int) -> None:
        """Sets the manifest at the key; None: the manifest was deleted."""
        self._catalogue(key, manifest, revision)
        if manifest is None:
            self.objects.gone(key, revision)
        else:
            self.objects.keep(key, StoredObject(manifest, value, revision))

    def _catalogue(self, key: str, manifest: Any, revision: int) -> None:
        # The key says what the object is: a foreign object may be of a kind with the same name.
        kind = OBJECT_KINDS.get(key.partition(".")[0])
        if kind is not None:
            self.catalog.apply(kind, *names_of(key), manifest, revision)
        if kind == "Runner":
            _, name = names_of(key)
            self.workloads.bookings.set_runner(name, manifest)

    def _set_aside(self, key: str, revision: int) -> None:
        """Records that the value at the key cannot be read, so the object counts as deleted. No
        code that reads a manifest runs here, because such code has just failed."""
        self.objects.gone(key, revision)
        self._catalogue(key, None, revision)

    def settle_load(self, floor: int, end: int = SEQUENCE_MAX) -> list[str]:
        """Called when the whole bucket has been read. Returns the keys of workloads with a possibly
        unpublished outbox: workloads that contain a fact after ``floor``, the last acknowledged
        fact. ``end``: the sequence of the last message on the log."""
        unsaid = []
        self.read = max(self.read, floor)
        for key, _ in list(self.workloads.items()):
            self.limit_fact(key, end)
            known = self.workloads.get(key)
            self.newest_fact = max(self.newest_fact, known.fact)
            workload = known.workload
            if workload is None:
                continue
            if workload.status.log.outbox and workload.status.log.fact > floor:
                unsaid.append(key)
            else:
                self.workloads.let_go(key)
        self.manifests_floor = self._loaded_manifests
        return unsaid

    def missing(self, batch: Iterable[LogMessage]) -> list[str]:
        """Keys of workloads in the batch that must be loaded before the batch is folded.

        A decision about a finished workload is void, whatever the workload looks like."""
        keys = {key_of_fact(logged) for logged in batch if not logged.subject.startswith(DECISIONS)}
        for logged in batch:
            # A submission may wait for a finished workload.
            if ".submitted." in logged.subject and (names := names_in(logged.data)):
                prefix = key_of_fact(logged).rpartition(".")[0]
                keys |= {f"{prefix}.{token(name)}" for name in names}
        return [key for key in keys if self.workloads.must_load(key)]

    def committed(self, put: Put, revision: int, now: datetime) -> list[Message]:
        """Records that a put is stored; returns the messages to publish after it."""
        if put.value is None:
            self.workloads.keep(put.key, VersionedWorkload(None, revision, put.fact))
            return []
        self.workloads.keep(put.key, VersionedWorkload(put.workload, revision, put.fact, put.trace))
        return self.outbox(put.key, now)

    def outbox(self, key: str, now: datetime) -> list[Message]:
        """The messages of the outbox of the workload at the key."""
        known = self.workloads.get(key)
        if known.workload is None:
            return []
        try:
            return list(
                self.message_builder.messages(known.workload, known.revision, now, known.trace)
            )
        except Exception as error:
            # Another program may have written the outbox; it must not stop the leader.
            self.unreadable[key] = f"status.log.says: {reason_of(error)}"
            if isinstance(error, AssertionError):
                self.errors.append(ObjectError("make messages", key, error))
            return []

    def outbox_published(self, key: str) -> None:
        """Records that the bus has acknowledged all messages of the outbox of the workload at the
        key."""
        self.workloads.let_go(key)

    def acknowledged(self, through: int) -> None:
        """Records that every fact up to ``through`` is applied and acknowledged."""
        self.read = max(self.read, through)
