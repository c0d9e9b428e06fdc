"""A real nats-server refuses exactly what the table of roles does not allow."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from admittance.access.border import ASKED_OUTSIDE, INWARDS, OUTWARDS
from admittance.access.permissions import answer_for, covers
from admittance.access.roles import ROLES, Account, permissions_of
from admittance.access.server_config import server_config
from admittance.access.users import User
from admittance.events.subjects import USER_FACTS, USER_REQUESTS
from nats_logins import NKey
from raw_client import RawClient
from system_subjects import WILDCARDS, sample_user, samples

from servers import ConfiguredServer, until, within

pytestmark = pytest.mark.bus

OUTSIDE = [name for name, role in ROLES.items() if role.account is Account.OUT]


class Locked(NamedTuple):
    """A server with one user of each role. ``seeds``: the seed of each user, by role; the user
    ``observer`` of CORE may do everything."""

    server: ConfiguredServer
    users: dict[str, User]
    seeds: dict[str, str]
    subjects: list[str]


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Locked]:
    keys = {name: NKey() for name in (*ROLES, "observer", "system")}
    users = {name: sample_user(name, keys[name].public) for name in ROLES}
    config = server_config(users.values(), keys["system"].public).replace(
        "    users: [\n", f"    users: [\n      {{ nkey: {keys['observer'].public} }}\n", 1
    )
    folder: Path = tmp_path_factory.mktemp("locked")
    server = ConfiguredServer(folder, f'{config}\njetstream {{ store_dir: "STORE" }}\n')
    asyncio.run(server.start())
    seeds = {name: key.seed for name, key in keys.items()}
    try:
        yield Locked(server, users, seeds, samples(list(users.values())))
    finally:
        server.stop()


async def observe(locked: Locked) -> Client:
    """A connection that may do everything in CORE."""
    return await nats.connect(locked.server.url(), nkeys_seed_str=locked.seeds["observer"])


@pytest.mark.parametrize("role", ROLES)
async def test_server_refuses_exactly_what_the_table_does_not_allow(
    locked: Locked, role: str
) -> None:
    permissions = permissions_of(locked.users[role])
    client = await RawClient.connect(locked.server.port, locked.seeds[role])
    try:
        assert await client.publish(locked.subjects) == {
            one for one in locked.subjects if not answer_for(permissions, one).allowed
        }
        subscribed = (*locked.subjects, *WILDCARDS)
        assert await client.subscribe(subscribed) == {
            one for one in subscribed if not answer_for(permissions, one, subscribe=True).allowed
        }
    finally:
        client.close()


async def test_only_listed_subjects_reach_the_services(locked: Locked) -> None:
    observer = await observe(locked)
    heard: set[tuple[str, str]] = set()
    done = asyncio.Event()

    async def on_message(message: Msg) -> None:
        if message.subject == "done":
            done.set()
        heard.add((message.data.decode(errors="replace"), message.subject))

    await observer.subscribe(">", cb=on_message)
    await observer.flush()
    expected: set[tuple[str, str]] = set()
    try:
        for role in OUTSIDE:
            permissions = permissions_of(locked.users[role])
            client = await RawClient.connect(locked.server.port, locked.seeds[role])
            await client.publish(locked.subjects, mark=role)
            client.close()
            for subject in locked.subjects:
                if answer_for(permissions, subject).allowed:
                    crossing = [one for one in INWARDS if covers(one.subject, subject)]
                    assert len(crossing) <= 1, subject
                    arrived = subject
                    if crossing and crossing[0].to:
                        arrived = subject.replace(USER_FACTS, USER_REQUESTS)
                    expected |= {(role, arrived) for _ in crossing}
        await observer.publish("done")
        await within(done.wait())
        assert {one for one in heard if one[0] in OUTSIDE} == expected
    finally:
        await observer.close()


@pytest.mark.parametrize("role", OUTSIDE)
async def test_only_listed_subjects_are_heard_outside(locked: Locked, role: str) -> None:
    permissions = permissions_of(locked.users[role])
    observer = await observe(locked)
    listener = await nats.connect(locked.server.url(), nkeys_seed_str=locked.seeds[role])
    heard: set[str] = set()

    async def on_message(message: Msg) -> None:
        heard.add(message.subject)

    try:
        for rule in permissions.subscribe:
            # The server allows this wider pattern; it must not carry more.
            wider = f"{rule.pattern[:-1]}>" if rule.pattern.endswith(".*") else rule.pattern
            await listener.subscribe(wider, cb=on_message)
        await listener.flush()
        # JetStream would answer requests, and another test sees what crosses for them.
        told = [one for one in locked.subjects if not one.startswith("$JS.")]
        for subject in told:
            await observer.publish(subject, b"")
        await observer.flush()
        expected = {
            one
            for one in told
            if answer_for(permissions, one, subscribe=True).allowed
            and any(covers(crossing.subject, one) for crossing in (*OUTWARDS, *ASKED_OUTSIDE))
        }
        await until(lambda: heard >= expected)
        await listener.flush()
        assert heard == expected
    finally:
        await listener.close()
        await observer.close()
