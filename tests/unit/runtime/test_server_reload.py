"""Expired users are removed until the task is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from admittance.access.users import User
from admittance.runtime import clock
from admittance.runtime.auth_store import AuthStore
from admittance.runtime.server_reload import remove_expired_users
from support.servers import within


async def test_a_cancellation_that_a_reload_loses_ends_the_removal(tmp_path: Path) -> None:
    store = AuthStore(tmp_path / "auth")
    store.create("")
    expired = User(name="ada", role="viewer", key="", expires=clock.now() - timedelta(seconds=1))
    store.add(expired, tmp_path / "ada.creds")
    reloading = asyncio.Event()

    async def told(_: Sequence[User]) -> None:
        reloading.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            # As asyncio.wait_for of Python 3.11 when the answer arrives at the same moment.
            return

    removing = asyncio.create_task(remove_expired_users(store, told))
    await within(reloading.wait())
    removing.cancel()
    done, _ = await asyncio.wait([removing], timeout=20)
    assert done, "the removal goes on after its cancellation"
    assert removing.cancelled()
