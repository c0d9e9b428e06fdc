"""A real nats-server refuses exactly what the table of roles does not allow."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from admittance.access.jwt_claims import system_user_claims
from admittance.access.permissions import answer_for, covers
from admittance.access.role import Account
from admittance.access.roles import ROLES, permissions_of
from admittance.access.server_config import ASKED_OUTSIDE, INWARDS, OUTWARDS, server_config
from admittance.access.users import User
from admittance.events.subjects import OWNER_FACTS, OWNER_REQUESTS, USER_FACTS, USER_REQUESTS
from admittance.runtime.nats_server.jwt_issuer import (
    KEYS,
    JwtIssuer,
    new_issuer_key,
    new_key,
    sign_jwt,
)
from integration.access.raw_client import RawClient
from support.nats.logins import NKey
from support.nats.system_subjects import WILDCARDS, sample_user, samples
from support.servers import ConfiguredServer

pytestmark = pytest.mark.bus

OUTSIDE = [name for name, role in ROLES.items() if role.account is Account.OUT]


SAMPLE = ("workload-controller", "runner", "check", "owner", "user", "admin")
"""Roles that are tried with JWTs, too: they have all kinds of permissions."""
BY_JWT = [pytest.param("jwt", id="jwt")]


class Locked(NamedTuple):
    """A server with one user of each role. ``seeds``: the seed of each user, by role; the user
    ``observer`` of CORE may do everything. ``jwts``: the JWTs of users, if they have any."""

    server: ConfiguredServer
    users: dict[str, User]
    seeds: dict[str, str]
    subjects: list[str]
    jwts: dict[str, str]


@pytest.fixture(scope="module")
def locked(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Locked]:
    make = jwt_server if getattr(request, "param", "") == "jwt" else nkey_server
    deployment = make(tmp_path_factory.mktemp("locked"))
    asyncio.run(deployment.server.start())
    try:
        yield deployment
    finally:
        deployment.server.stop()


def jwt_server(folder: Path) -> Locked:
    issuing = {name: new_issuer_key(name) for name in KEYS}
    public = {name: key.public for name, key in issuing.items()}
    issuer = JwtIssuer(public, lambda name: issuing[name].seed)
    keys = {name: new_key() for name in (*SAMPLE, "observer")}
    users = {name: sample_user(name, keys[name].public) for name in SAMPLE}
    jwts = {name: issuer.user_jwt(user) for name, user in users.items()}
    everything = system_user_claims()
    of = keys["observer"].public
    jwts["observer"] = sign_jwt(issuing[Account.CORE], of, "observer", everything, issued=1)
    config = issuer.config((), str(folder / "jwt"))
    server = ConfiguredServer(folder, f'{config}\njetstream {{ store_dir: "STORE" }}\n')
    seeds = {name: key.seed for name, key in keys.items()}
    return Locked(server, users, seeds, samples(list(users.values())), jwts)


def nkey_server(folder: Path) -> Locked:
    keys = {name: NKey() for name in (*ROLES, "observer", "system")}
    users = {name: sample_user(name, keys[name].public) for name in ROLES}
    config = server_config(users.values(), keys["system"].public).replace(
        "    users: [\n", f"    users: [\n      {{ nkey: {keys['observer'].public} }}\n", 1
    )
    server = ConfiguredServer(folder, f'{config}\njetstream {{ store_dir: "STORE" }}\n')
    seeds = {name: key.seed for name, key in keys.items()}
    return Locked(server, users, seeds, samples(list(users.values())), {})


async def connect(locked: Locked, role: str) -> RawClient:
    return await RawClient.connect(
        locked.server.port, locked.seeds[role], locked.jwts.get(role, "")
    )


@pytest.mark.parametrize("role", ROLES)
async def test_server_refuses_exactly_what_the_table_does_not_allow(
    locked: Locked, role: str
) -> None:
    permissions = permissions_of(locked.users[role])
    client = await connect(locked, role)
    try:
        assert await client.publish(locked.subjects) == {
            subject for subject in locked.subjects if not answer_for(permissions, subject).allowed
        }
        subscribed = (*locked.subjects, *WILDCARDS)
        assert await client.subscribe(subscribed) == {
            subject
            for subject in subscribed
            if not answer_for(permissions, subject, subscribe=True).allowed
        }
    finally:
        client.close()


@pytest.mark.parametrize("role", SAMPLE)
@pytest.mark.parametrize("locked", BY_JWT, indirect=True)
async def test_server_refuses_the_same_with_jwts(locked: Locked, role: str) -> None:
    await test_server_refuses_exactly_what_the_table_does_not_allow(locked, role)
    if role in OUTSIDE:
        await test_only_listed_subjects_reach_clients_outside(locked, role)


@pytest.mark.parametrize("locked", BY_JWT, indirect=True)
async def test_only_listed_subjects_reach_the_services_with_jwts(locked: Locked) -> None:
    await test_only_listed_subjects_reach_the_services(locked)


async def test_only_listed_subjects_reach_the_services(locked: Locked) -> None:
    observer = await connect(locked, "observer")
    await observer.subscribe([">"])
    expected: set[tuple[str, str]] = set()
    try:
        for role in OUTSIDE:
            if role not in locked.users:
                continue
            permissions = permissions_of(locked.users[role])
            client = await connect(locked, role)
            await client.publish(locked.subjects, mark=role)
            client.close()
            for subject in locked.subjects:
                if answer_for(permissions, subject).allowed:
                    crossing = [inward for inward in INWARDS if covers(inward.subject, subject)]
                    assert len(crossing) <= 1, subject
                    arrived = subject
                    if crossing and crossing[0].to:
                        arrived = subject.replace(USER_FACTS, USER_REQUESTS)
                        arrived = arrived.replace(OWNER_FACTS, OWNER_REQUESTS)
                    expected |= {(arrived, role) for _ in crossing}
        await observer.listen()
        assert {message for message in observer.received if message[1] in OUTSIDE} == expected
    finally:
        observer.close()


@pytest.mark.parametrize("role", ("runner", "provider", "telemetry"))
async def test_programs_of_out_answer_into_inboxes_only(locked: Locked, role: str) -> None:
    """The user who sends a request chooses the subject of the answer, and the program publishes on
    it."""
    asker, program = await connect(locked, "admin"), await connect(locked, role)
    chosen = "admit.check.reported.budget.team-b.job", "admit.lease.epoch.cohort-lab"
    inbox = "_INBOX.admin.one.two"
    try:
        assert not await program.subscribe(["admit.api.health"])
        assert not await asker.refused(f"PUB admit.api.health {name} 0\r\n\r\n" for name in chosen)
        assert not await asker.refused([f"PUB admit.api.health {inbox} 0\r\n\r\n"])
        await program.listen()
        assert len(program.received) == len(chosen) + 1
        assert await program.publish([*chosen, inbox]) == set(chosen)
    finally:
        asker.close()
        program.close()


@pytest.mark.parametrize("locked", BY_JWT, indirect=True)
async def test_programs_answer_into_inboxes_only_with_jwts(locked: Locked) -> None:
    await test_programs_of_out_answer_into_inboxes_only(locked, "runner")


@pytest.mark.parametrize("role", OUTSIDE)
async def test_only_listed_subjects_reach_clients_outside(locked: Locked, role: str) -> None:
    permissions = permissions_of(locked.users[role])
    observer, listener = await connect(locked, "observer"), await connect(locked, role)
    try:
        # The server allows a wider pattern; it must not carry more.
        assert not await listener.subscribe(
            f"{rule.pattern[:-1]}>" if rule.pattern.endswith(".*") else rule.pattern
            for rule in permissions.subscribe
        )
        # JetStream would answer requests, and another test sees what crosses for them.
        subjects = [subject for subject in locked.subjects if not subject.startswith("$JS.")]
        await observer.publish(subjects, mark="told")
        await listener.listen()
        assert {subject for subject, mark in listener.received if mark == "told"} == {
            message
            for message in subjects
            if answer_for(permissions, message, subscribe=True).allowed
            and any(covers(crossing.subject, message) for crossing in (*OUTWARDS, *ASKED_OUTSIDE))
        }
    finally:
        listener.close()
        observer.close()
