"""The statuses that a provider gives to capacity requests: each status is stored in a bucket, then
published on the log.

The bucket has one key for each request of a provisioning class. A write expects a revision of the
key, so if two replicas work on one request, only one of them publishes a status, and no status is
stored after the request's cancellation.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec
import structlog

from admittance.api.workload import Kept
from admittance.backoff import Backoff
from admittance.events import provisioning as facts
from admittance.events.base import HEADER_MSG_ID, HEADER_SCHEMA, SCHEMA_VERSION, clipped_message
from admittance.events.codec import encode
from admittance.events.names import token
from admittance.events.reader import Reader, SetAside, Unreadable
from admittance.events.shapes import PodSetUpdate
from admittance.events.subjects import PROVIDERS, PROVISIONING_FACTS, subject_of
from admittance.providers.answers import Failed, Provisioned, Status
from admittance.runtime import clock
from admittance.runtime.bus import bucket
from admittance.runtime.bus.bucket import Entry
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.errors import BusRefused, StaleRevision, TooBig
from admittance.runtime.tasks import until_returned
from admittance.runtime.telemetry.logger import log_set_aside
from admittance.sdk.outbox import Outbox

CANCELLED: Final = "cancelled"
CANCELLED_SECONDS: Final = 7 * 86_400.0
"""For how many seconds the bucket keeps the status "cancelled" of a request: longer than a message
about the request can be under way.
"""
FINAL_STATUSES: Final = frozenset({"failed", "booking_expired", "capacity_revoked"})
"""Statuses that end a request: no other status follows them, except capacity_revoked, which may
follow booking_expired.
"""
REFUSED_PAUSE_MIN: Final = 0.5
REFUSED_PAUSE_MAX: Final = 10.0
"""The longest pause, in seconds, between two attempts to publish a status that the log refuses, for
example because the log is full.
"""

log = structlog.get_logger()


class StoredStatus(Kept, frozen=True, kw_only=True):
    """The last status of one capacity request, as stored. ``status``: a word of the subjects, such
    as accepted, or `CANCELLED`; "" if the request has no status yet. ``seq``: the number of the
    status; 0 if the request has no status yet. ``by_helper``: the SDK gave this status because the
    provider's function for requests raised, and the provider itself has given none.
    """

    id: str
    namespace: str
    name: str
    uid: str = ""
    status: str = ""
    seq: int = 0
    message: str = ""
    details: dict[str, str] = msgspec.field(default_factory=dict)
    pod_set_updates: tuple[PodSetUpdate, ...] = ()
    retryable: bool = True
    retry_after: int | None = None
    by_helper: bool = False


read_status = Reader(StoredStatus)


def status_of(entry: Entry) -> StoredStatus | None:
    """The status in an entry of the bucket; None, with a log message, if the entry cannot be
    decoded because something else than Admittance wrote it.
    """
    try:
        return read_status(entry.value)
    except Unreadable as error:
        log_set_aside(SetAside(f"KV_{PROVIDERS}", entry.key, entry.revision, str(error)))
        return None


class StoreEntry(NamedTuple):
    """What the bucket has for one request: the stored status, and the revision of its key.
    ``status`` None: the request has no stored status, or a status that cannot be decoded.
    """

    status: StoredStatus | None
    revision: int


class StatusStore:
    """The stored statuses of one provisioning class."""

    def __init__(self, bus: Bus, provisioning_class: str) -> None:
        self._bus = bus
        self._prefix = token(provisioning_class)

    def _key(self, request_id: str) -> str:
        return f"{self._prefix}.{hashlib.blake2b(request_id.encode(), digest_size=16).hexdigest()}"

    async def get(self, request_id: str, *, from_leader: bool = False) -> StoreEntry:
        """Returns the stored status of a request, from any replica of the bucket, which may be old:
        a write then fails, because it expects the revision. ``from_leader``: read from the bucket's
        leader, which always has the newest status, to decide something without a write; needs the
        account of the services. Raises BusUnavailable or BusRefused if the bucket cannot be read.
        """
        read = bucket.get if from_leader else bucket.get_directly
        entry = await read(self._bus, self._key(request_id), bucket=PROVIDERS)
        if entry is None:
            return StoreEntry(None, 0)
        if entry.value is None:
            return StoreEntry(None, entry.revision)
        stored = status_of(entry)
        # The key is a hash of the request id. A status stored for another request id with the same
        # hash counts as absent.
        is_ours = stored is not None and stored.id == request_id
        return StoreEntry(stored if is_ours else None, entry.revision)

    async def put(self, status: StoredStatus, expected: int) -> int:
        """Writes the status of a request and returns the key's new revision. Raises StaleRevision
        if the key's revision was not ``expected``, and BusUnavailable.
        """
        ttl = CANCELLED_SECONDS if status.status == CANCELLED else None
        message = bucket.put_message(
            self._key(status.id),
            encode(status),
            expected=expected,
            ttl_seconds=ttl,
            bucket=PROVIDERS,
        )
        return await self._bus.publish(message)

    async def cancel(self, identity: dict[str, Any]) -> StoredStatus | None:
        """Stores the status "cancelled" for a request. Returns the status that the request had
        before.
        """
        while True:
            stored = await self.get(identity["id"])
            if stored.status is not None and stored.status.status == CANCELLED:
                return stored.status
            before = stored.status
            seq = before.seq if before is not None else 0
            try:
                await self.put(StoredStatus(**identity, status=CANCELLED, seq=seq), stored.revision)
            except StaleRevision:
                continue
            return before


class StatusPublisher:
    """Publishes the statuses of one provisioning class: writes each to the bucket, then to the log.

    If a crash prevents the publication on the log, the stored status is published when the request
    is redelivered or the provider gives the status again. If a status were published before it is
    stored, a crash between the two could give its number to the next status, which readers would
    then ignore as a duplicate.
    """

    def __init__(
        self,
        provisioning_class: str,
        store: StatusStore,
        outbox: Outbox,
        *,
        published: Callable[[str, float | None], None] | None = None,
        secret: bytes = b"",
    ) -> None:
        """``published``: called for each new status that the log has stored, with the status's word
        and, if the status is final, the time at which the request arrived. ``secret``: the key of
        the hash that makes the message ids; without a secret a foreign message with a guessed id
        could suppress a status.
        """
        self._published = published
        self._secret = secret[:64]
        self._class = provisioning_class
        self._store = store
        self._outbox = outbox

    async def publish(
        self,
        identity: dict[str, Any],
        status: Status,
        *,
        by_helper: bool = False,
        since: float | None = None,
    ) -> bool:
        """Stores a status of a request and publishes it. Returns True once the log has this status
        or a later one of the request; False if the request was cancelled or has another final
        status. ``by_helper``: the SDK gives the status, not the provider's own function. ``since``:
        when the request arrived, by `clock.monotonic`; None if this process does not know.
        """
        while True:
            stored = await self._store.get(identity["id"])
            before = stored.status
            if before is not None:
                if before.status == CANCELLED:
                    return False
                if before.status == status.word and before.message == clipped_message(
                    status.message
                ):
                    await self.repeat(before)
                    return True
                if before.status in FINAL_STATUSES and status.word != "capacity_revoked":
                    return False
                if not status.ends and before.status not in ("", status.word):
                    # Another replica of the provider has stored a later status of the request.
                    log.info(
                        "status_too_late", id=before.id, status=status.word, after=before.status
                    )
                    return True
            new = _stored(identity, status, (before.seq if before is not None else 0) + 1)
            if by_helper and (before is None or before.by_helper or not before.status):
                new = msgspec.structs.replace(new, by_helper=True)
            try:
                await self._store.put(new, stored.revision)
            except StaleRevision:
                # After this replica read the status, the request was cancelled, or another replica
                # stored a status.
                continue
            await self._until_published(new)
            if self._published is not None:
                self._published(new.status, since if status.ends else None)
            log.info("status_published", id=new.id, status=new.status, message=new.message)
            return True

    async def _until_published(self, stored: StoredStatus) -> None:
        """Publishes a stored status, again and again while the log refuses the status, because
        nothing else publishes it.
        """

        def refused(error: BusRefused, _: float) -> None:
            if isinstance(error, TooBig):
                raise error
            log.warning(
                "status_not_published_yet",
                id=stored.id,
                status=stored.status,
                reason=str(error),
            )

        backoff = Backoff(REFUSED_PAUSE_MIN, REFUSED_PAUSE_MAX)
        await until_returned(lambda: self.repeat(stored), backoff, refused, on=BusRefused)

    async def repeat(self, stored: StoredStatus) -> None:
        """Publishes a stored status, perhaps for the second time: the NATS server drops the
        duplicate, because both messages have the same id.
        """
        await self._outbox.put(self._message(stored))

    def _message(self, stored: StoredStatus) -> Outgoing:
        kind = PROVISIONING_FACTS[stored.status]
        assert issubclass(kind, facts.ProvisioningStatus), "the store holds only statuses"
        fields: dict[str, Any] = {
            "namespace": stored.namespace,
            "name": stored.name,
            "uid": stored.uid,
            "time": clock.now(),
            "id": stored.id,
            "provisioning_class": self._class,
            "message": stored.message,
            "details": stored.details,
            "pod_set_updates": stored.pod_set_updates,
            "seq": stored.seq,
        }
        if kind is facts.ProvisioningFailed:
            fields |= {"retryable": stored.retryable, "retry_after": stored.retry_after}
        fact = kind(**fields)
        # The message id is a hash of the status, so that all replicas publish one status with the
        # same message id.
        digest = hashlib.blake2b(key=self._secret, digest_size=16)
        digest.update(f"{stored.seq}/{stored.status}/{self._class}/{stored.id}".encode())
        headers = {HEADER_MSG_ID: digest.hexdigest(), HEADER_SCHEMA: SCHEMA_VERSION}
        return Outgoing(subject_of(fact), encode(fact), headers)


def _stored(identity: dict[str, Any], status: Status, seq: int) -> StoredStatus:
    failed = status if isinstance(status, Failed) else None
    return StoredStatus(
        **identity,
        status=status.word,
        seq=seq,
        message=clipped_message(status.message),
        details=dict(status.details),
        pod_set_updates=status.updates() if isinstance(status, Provisioned) else (),
        retryable=failed.retryable if failed is not None else True,
        retry_after=failed.retry_after if failed is not None else None,
    )
