"""Statuses on their way to the log, numbered, and noted for whoever asks again."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any, Final

import msgspec
import structlog

from admittance.events import provisioning as facts
from admittance.events.base import HEADER_MSG_ID, HEADER_SCHEMA, SCHEMA_VERSION
from admittance.events.codec import encode
from admittance.events.subjects import PROVISIONING_FACTS, subject_of
from admittance.providers.answers import Failed, Provisioned, Status
from admittance.providers.store import CANCELLED, Said, Store
from admittance.runtime import clock
from admittance.runtime.bus.bus import Outgoing
from admittance.runtime.errors import Refused, StaleRevision, TooBig
from admittance.sdk.bounds import sayable
from admittance.sdk.outbox import Outbox

OVER: Final = frozenset({"failed", "booking_expired", "capacity_revoked"})
"""Statuses after which nothing counts any more, but for a revocation of what has expired."""
REFUSED_PAUSE_MIN: Final = 0.5
REFUSED_PAUSE_MAX: Final = 10.0
"""Seconds between two tries while the log refuses a status, as a full one does."""

log = structlog.get_logger()


class Speaker:
    """Says statuses of one class. First in the store, then on the log: what crashes in between is
    found there, and said as soon as the request, or the status, comes again. The other way round a
    number that is on the log already would be given to something else, which counts for nothing.
    """

    def __init__(
        self, provisioning_class: str, store: Store, outbox: Outbox, *, secret: bytes = b""
    ) -> None:
        """``secret`` keys message ids, since who guesses an id could silence what bears it."""
        self._secret = secret[:64]
        self._class = provisioning_class
        self._store = store
        self._outbox = outbox

    async def say(self, about: dict[str, Any], status: Status, *, by_helper: bool = False) -> bool:
        """Says it; when the log has it. False: the request was taken back, or is over.
        ``by_helper``: it is no word of the provider's author."""
        while True:
            found = await self._store.get(about["id"])
            before = found.said
            if before is not None:
                if before.status == CANCELLED:
                    return False
                if before.status == status.word and before.message == sayable(status.message):
                    await self.repeat(before)
                    return True
                if before.status in OVER and status.word != "capacity_revoked":
                    return False
                if not status.ends and before.status not in ("", status.word):
                    # Another replica is further, or what the author said was on its way for long.
                    log.info("late", id=before.id, status=status.word, after=before.status)
                    return True
            said = _said(about, status, (before.seq if before is not None else 0) + 1)
            if by_helper and (before is None or before.by_helper or not before.status):
                said = msgspec.structs.replace(said, by_helper=True)
            try:
                await self._store.put(said, found.revision)
            except StaleRevision:
                # Taken back meanwhile, or said by another replica: look again.
                continue
            await self._until_said(said)
            log.info("said", id=said.id, status=said.status, message=said.message)
            return True

    async def _until_said(self, said: Said) -> None:
        """It is kept, and so nobody would say it again: for as long as the log refuses it."""
        pause = REFUSED_PAUSE_MIN
        while True:
            try:
                await self.repeat(said)
                return
            except TooBig:
                raise
            except Refused as error:
                log.warning("not_said_yet", id=said.id, status=said.status, reason=str(error))
            await asyncio.sleep(pause)
            pause = min(2 * pause, REFUSED_PAUSE_MAX)

    async def repeat(self, said: Said) -> None:
        """Says again what was said of a request that is heard again: perhaps nobody heard it."""
        await self._outbox.put(self._message(said))

    def _message(self, said: Said) -> Outgoing:
        kind = PROVISIONING_FACTS[said.status]
        assert issubclass(kind, facts.ProvisioningStatus), "only those are kept"
        fields: dict[str, Any] = {
            "namespace": said.namespace,
            "name": said.name,
            "uid": said.uid,
            "time": clock.now(),
            "id": said.id,
            "provisioning_class": self._class,
            "message": said.message,
            "details": said.details,
            "pod_set_updates": said.pod_set_updates,
            "seq": said.seq,
        }
        if kind is facts.ProvisioningFailed:
            fields |= {"retryable": said.retryable, "retry_after": said.retry_after}
        fact = kind(**fields)
        # The same whenever it is repeated, by whichever replica.
        digest = hashlib.blake2b(key=self._secret, digest_size=16)
        digest.update(f"{said.seq}/{said.status}/{self._class}/{said.id}".encode())
        headers = {HEADER_MSG_ID: digest.hexdigest(), HEADER_SCHEMA: SCHEMA_VERSION}
        return Outgoing(subject_of(fact), encode(fact), headers)


def _said(about: dict[str, Any], status: Status, seq: int) -> Said:
    failed = status if isinstance(status, Failed) else None
    return Said(
        **about,
        status=status.word,
        seq=seq,
        message=sayable(status.message),
        details=dict(status.details),
        pod_set_updates=status.updates() if isinstance(status, Provisioned) else (),
        retryable=failed.retryable if failed is not None else True,
        retry_after=failed.retry_after if failed is not None else None,
    )
