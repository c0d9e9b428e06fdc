"""Only the newest leader of placement gives verdicts: the log holds none of a deposed one."""

from __future__ import annotations

from admittance.events.codec import Undecodable, decode
from admittance.events.facts import CheckReported
from admittance.events.names import token
from admittance.events.subjects import EPOCH
from admittance.lease import service_domain
from admittance.runtime.leader.lease_store import fence_of
from simulation.invariants.machines.bookings import CONTROLLER
from simulation.nats.observed import Stored
from simulation.transcript import Broken

VERDICTS = "admit.check.reported."
SUBJECT = f"{EPOCH}{token(service_domain('placement'))}"


class Fences:
    """Looks at the verdicts of placement as they are stored on the log."""

    def __init__(self) -> None:
        self._epoch = 0

    def logged(self, stored: Stored) -> None:
        """Notes an epoch of placement, and checks its verdicts."""
        if stored.subject == SUBJECT:
            self._epoch = stored.sequence
        elif stored.subject.startswith(VERDICTS):
            try:
                verdict = decode(stored.subject, stored.data)
            except Undecodable:
                return
            if isinstance(verdict, CheckReported) and verdict.controller == CONTROLLER:
                self._check(stored)

    def _check(self, stored: Stored) -> None:
        fence = fence_of(stored.headers)
        epoch = fence.epoch if fence is not None else 0
        if epoch != self._epoch:
            raise Broken(f"placement of epoch {epoch} gives a verdict in epoch {self._epoch}")
