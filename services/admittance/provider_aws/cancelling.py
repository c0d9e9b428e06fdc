"""Reservations are cancelled: those that are taken back, and those that nobody knew of."""

from __future__ import annotations

from typing import Final

import structlog

from admittance.provider_aws.ec2 import Ec2
from admittance.provider_aws.faults import Trouble
from admittance.provider_aws.parameters import token_of
from admittance.provider_aws.rights import CANCEL, NOT_OURS, Rights
from admittance.providers import Cancellation
from admittance.runtime import clock
from admittance.sdk.threads import Threads

CANCELLING: Final = 4
"""Threads."""

log = structlog.get_logger()


class Canceller:
    """``made``: reservations by token, that lists of EC2 may not have yet. ``again_seconds``: lists
    may have one still that was cancelled; it is not cancelled again before that has passed."""

    def __init__(
        self, ec2: Ec2, rights: Rights, made: dict[str, str], *, again_seconds: float
    ) -> None:
        self._ec2 = ec2
        self._rights = rights
        self._made = made
        self._again_seconds = again_seconds
        self._threads = Threads(CANCELLING)
        self._cancelled: dict[str, float] = {}
        """When reservations were cancelled last."""

    async def free(self, cancellation: Cancellation) -> None:
        """Its reservation is cancelled, if there is one. Raises Trouble: to be called again."""
        mine = token_of(cancellation.id)
        known = {one.id for one in await self._threads.call(self._ec2.ours, mine) if one.costs}
        if mine in self._made:
            known.add(self._made[mine])
        for reservation in sorted(known):
            await self._cancel(reservation, cancellation.reason)
        self._made.pop(mine, None)

    def is_due(self, reservation: str) -> bool:
        """It was not cancelled just now."""
        now = clock.monotonic()
        since = now - 10 * self._again_seconds
        self._cancelled = {one: at for one, at in self._cancelled.items() if at > since}
        return now - self._cancelled.get(reservation, float("-inf")) >= self._again_seconds

    async def sweep(self, reservation: str) -> None:
        """Nobody needs it."""
        try:
            await self._cancel(reservation, "its request was taken back")
        except Trouble as trouble:
            log.warning("not_cancelled_yet", reservation=reservation, reason=str(trouble))

    async def _cancel(self, reservation: str, reason: str) -> None:
        try:
            await self._threads.call(self._ec2.cancel, reservation)
        except Trouble as trouble:
            if trouble.fault in NOT_OURS:
                # Who cannot cancel must make no more, either.
                self._rights.lack(CANCEL, trouble)
            raise
        self._rights.have(CANCEL)
        self._cancelled[reservation] = clock.monotonic()
        log.info("cancelled", reservation=reservation, reason=reason)
