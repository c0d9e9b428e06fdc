"""Expired users are removed until the task is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from admittance.access.users import User
from admittance.runtime import clock
from admittance.runtime.errors import BusUnavailable
from admittance.runtime.nats_server import server_reload
from admittance.runtime.nats_server.auth_store import AuthStore
from admittance.runtime.nats_server.server_reload import remove_expired_users
from admittance.runtime.tasks import cancel_and_wait
from support.servers import until, within


async def test_a_cancellation_that_a_reload_loses_ends_the_removal(tmp_path: Path) -> None:
    store = AuthStore(tmp_path / "auth")
    store.create("")
    expired = User(name="ada", role="viewer", key="", expires=clock.now() - timedelta(seconds=1))
    store.add(expired, tmp_path / "ada.creds")
    reloading = asyncio.Event()

    async def reload(_: Sequence[User]) -> None:
        reloading.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            # As asyncio.wait_for of Python 3.11 when the answer arrives at the same moment.
            return

    removing = asyncio.create_task(remove_expired_users(store, reload))
    await within(reloading.wait())
    removing.cancel()
    done, _ = await asyncio.wait([removing], timeout=20)
    assert done, "the removal goes on after its cancellation"
    assert removing.cancelled()


async def test_servers_that_know_the_users_receive_changes_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_reload, "LOOK_SECONDS", 0.01)
    store = AuthStore(tmp_path / "auth")
    store.create("")
    users: list[list[str]] = []

    async def reload(_: Sequence[User]) -> None:
        users.append([user.name for user in store.users])

    removing = asyncio.create_task(
        remove_expired_users(store, reload, known=store.known_by_servers)
    )
    await asyncio.sleep(0)
    store.add(User(name="bob", role="viewer", key=""), tmp_path / "bob.creds")
    await until(lambda: bool(users))
    await cancel_and_wait(removing)
    assert users == [["bob"]]


@pytest.mark.parametrize("jwt", [False, True], ids=["nkeys", "jwts"])
async def test_servers_receive_what_an_ended_process_did_not_send(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jwt: bool
) -> None:
    monkeypatch.setattr(server_reload, "LOOK_SECONDS", 0.01)
    store = AuthStore(tmp_path / "auth")
    store.create("", jwt=jwt)
    soon = clock.now() + timedelta(seconds=0.01)
    store.add(User(name="ada", role="viewer", key="", expires=soon), tmp_path / "ada.creds")
    store.add(User(name="bob", role="viewer", key=""), tmp_path / "bob.creds")

    async def server_is_away(_: Sequence[User]) -> None:
        raise BusUnavailable("the server does not answer")

    ending = asyncio.create_task(remove_expired_users(store, server_is_away))
    await until(lambda: [user.name for user in store.users] == ["bob"])
    await cancel_and_wait(ending)
    counts: list[int] = []

    async def reload(_: Sequence[User]) -> None:
        counts.append(len(store.users))

    going = asyncio.create_task(remove_expired_users(store, reload))
    await until(lambda: counts == [1])
    store.remove("bob")  # in another process, which could not reload the servers
    await until(lambda: counts == [1, 0])
    await cancel_and_wait(going)
