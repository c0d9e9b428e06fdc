"""Publishes the verdicts of the leader of a check, each with the fence of this leader, so that the
server refuses it once another instance leads."""

from __future__ import annotations

from collections.abc import Sequence

from admittance.events.base import HEADER_MSG_ID, HEADER_SCHEMA, SCHEMA_VERSION
from admittance.events.codec import encode
from admittance.events.facts import CheckReported
from admittance.events.names import token
from admittance.events.subjects import BARRIER, subject_of
from admittance.events.system import Barrier
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.bus.messages import with_retries
from admittance.runtime.errors import BusRefused, Fenced, Superseded
from admittance.runtime.leader.lease_store import fence


class VerdictPublisher:
    """``ids``: the beginning of the message ids, such as ``placement``. The methods raise
    Superseded when another instance leads, and BusUnavailable."""

    def __init__(self, bus: Bus, domain: str, epoch: int, *, owner: str, ids: str) -> None:
        self._bus = bus
        self._domain = domain
        self._epoch = epoch
        self._owner = owner
        self._ids = ids
        self._serial = 0

    async def barrier(self) -> None:
        """Publishes the barrier of this leader: everything that its predecessor has published
        stands before it, and the workload-controller echoes it when all of that is committed."""
        barrier = Barrier(domain=self._domain, owner=self._owner, epoch=self._epoch)
        subject = f"{BARRIER}{token(self._domain)}"
        message = Outgoing(subject, encode(barrier), fence(self._domain, self._epoch))
        try:
            await with_retries(lambda: self._bus.publish(message))
        except Fenced as error:
            raise self._superseded() from error

    async def publish(self, facts: Sequence[CheckReported]) -> list[BusRefused | None]:
        """Publishes the verdicts; returns for each the server's refusal, or None."""
        messages = [self._message(fact) for fact in facts]
        outcomes = await with_retries(lambda: self._bus.publish_all(messages))
        if any(isinstance(outcome, Fenced) for outcome in outcomes):
            raise self._superseded()
        return [outcome if isinstance(outcome, BusRefused) else None for outcome in outcomes]

    def _message(self, fact: CheckReported) -> Outgoing:
        self._serial += 1
        headers = {
            HEADER_MSG_ID: f"{self._ids}/{self._epoch}/{self._serial}",
            HEADER_SCHEMA: SCHEMA_VERSION,
            **fence(self._domain, self._epoch),
        }
        return Outgoing(subject_of(fact), encode(fact), headers)

    def _superseded(self) -> Superseded:
        return Superseded(f"another instance leads {self._domain}")
