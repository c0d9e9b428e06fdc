"""Removes expired users from the folder of `admit auth`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from admittance.access.users import User, next_expiry
from admittance.runtime import clock
from admittance.runtime.auth.store import AuthStore
from admittance.runtime.errors import AdmittanceError
from admittance.runtime.telemetry.logger import LogThrottle, logger

LOOK_SECONDS: Final = 2.0
"""Most seconds between two readings of the store, because another process may add users."""

log = logger()


async def remove_expired_users(
    store: AuthStore, told: Callable[[Sequence[User]], Awaitable[None]]
) -> None:
    """Removes each user from the store when the user expires, until cancelled. ``told`` is called
    with the removed users and reloads the servers; after a failure ``told`` is called again. Errors
    of the store and of ``told`` are logged, and the next reading of the store tries again.
    """
    throttle = LogThrottle()
    untold: list[User] = []
    while True:
        pause = LOOK_SECONDS
        try:
            untold += store.remove_expired(clock.now())
            if untold:
                await told(untold)
                log.info("users_expired", users=[user.name for user in untold])
                untold = []
            soonest = next_expiry(store.users, clock.now())
            if soonest is not None:
                pause = min(pause, (soonest - clock.now()).total_seconds())
        except AdmittanceError as error:
            if throttle.due(clock.monotonic()):
                log.warning("users_not_expired", error=str(error))
        await asyncio.sleep(max(0.01, pause))
