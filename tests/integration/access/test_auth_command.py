"""`admit auth` against a running nats-server: added, revoked and expired users."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import nats
import pytest
from nats.aio.client import Client

from admittance.access.jwt_claims import user_claims
from admittance.access.users import User
from admittance.cli.commands.program import invoke
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.errors import (
    AccessDenied,
    AdmittanceError,
    BusRefused,
    BusUnavailable,
    NoResponders,
    SetupError,
)
from admittance.runtime.nats.connection_options import NO_OPTIONS, ConnectionOptions
from admittance.runtime.nats_server import jwt_issuer, server_reload
from admittance.runtime.nats_server.auth_store import AuthStore
from admittance.runtime.nats_server.server_reload import apply_users, reload, remove_expired_users
from support.requests import eventually
from support.servers import ConfiguredServer, until, within
from support.three_servers import three_servers

pytestmark = pytest.mark.bus

ADMIT = Path(sys.executable).parent / "admit"
SHELL_CHECK = Path(__file__).parents[3] / "deploy" / "samples" / "checks" / "shell" / "freeze.sh"


class Locked(NamedTuple):
    """A server that includes the configuration of a folder of users."""

    folder: Path
    server: ConfiguredServer

    @property
    def store(self) -> AuthStore:
        return AuthStore(self.folder)

    def creds(self, name: str) -> Path:
        return self.folder.parent / f"{name}.creds"

    async def admit(self, *words: str) -> int:
        """Runs a command in a thread, as in a process of its own."""
        arguments = [*words, "--dir", str(self.folder), "--nats", self.server.url()]
        return await asyncio.to_thread(invoke, ["auth", *arguments])

    async def add(self, role: str, name: str, *words: str) -> Path:
        assert await self.admit("add", role, name, "-o", str(self.creds(name)), *words) == 0
        return self.creds(name)


@pytest.fixture(params=["nkeys", "jwt"])
def locked(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Locked]:
    folder = tmp_path / "auth"
    how = ["--jwt"] if request.param == "jwt" else []
    assert invoke(["auth", "init", str(folder), *how]) == 0
    server = ConfiguredServer(folder, 'include "./auth.conf"\njetstream { store_dir: "STORE" }\n')
    asyncio.run(server.start())
    try:
        yield Locked(folder, server)
    finally:
        server.stop()


@asynccontextmanager
async def connected(locked: Locked, creds: Path) -> AsyncIterator[Bus]:
    access = ConnectionOptions(creds=str(creds))
    bus = await Bus.connect(locked.server.url(), name="test", access=access)
    try:
        yield bus
    finally:
        await bus.close()


def seed_and_inbox(creds: Path) -> tuple[str, str]:
    """The parts of a credentials file that a program of another language reads."""
    lines = creds.read_text().splitlines()
    if any("BEGIN NATS USER JWT" in line for line in lines):
        return "JWT", next(line for line in lines if "inbox prefix" in line).split()[-1]
    return lines[-1], next(line for line in lines if "inbox prefix" in line).split()[-1]


async def plain_client(locked: Locked, creds: Path, closed: asyncio.Event) -> Client:
    """A connection of the NATS client alone, which does not connect again."""

    async def on_closed() -> None:
        closed.set()

    async def on_error(_: Exception) -> None:
        pass

    seed, inbox = seed_and_inbox(creds)
    login = {"user_credentials": str(creds)} if "JWT" in seed else {"nkeys_seed_str": seed}
    return await nats.connect(
        locked.server.url(),
        **login,
        inbox_prefix=inbox,
        closed_cb=on_closed,
        error_cb=on_error,
        allow_reconnect=False,
    )


async def test_added_user_connects_to_the_running_server(locked: Locked) -> None:
    creds = await locked.add("user", "ada", "--namespace", "team-a")
    async with connected(locked, creds) as bus:
        with pytest.raises(BusRefused, match=r"may not publish to admit\.user\.bob"):
            await bus.publish(Outgoing("admit.user.bob.submitted.team-a.x", b""))
        assert bus.nc.new_inbox().startswith("_INBOX.ada.")


async def test_revoked_user_is_disconnected_and_others_stay(locked: Locked) -> None:
    gone, stays = asyncio.Event(), asyncio.Event()
    ada = await plain_client(locked, await locked.add("user", "ada", "--namespace", "a"), gone)
    bob = await plain_client(locked, await locked.add("viewer", "bob"), stays)
    assert await locked.admit("revoke", "ada") == 0
    await within(gone.wait())
    await bob.flush()
    assert not stays.is_set()
    with pytest.raises(AccessDenied, match="the server does not know them, or they were revoked"):
        await Bus.connect(
            locked.server.url(),
            name="test",
            access=ConnectionOptions(creds=str(locked.creds("ada"))),
        )
    assert await locked.admit("check", "$JS.API.INFO", "--as", "bob") == 0
    await ada.close()
    await bob.close()


@pytest.mark.parametrize("locked", ["jwt"], indirect=True)
async def test_renewed_jwt_has_the_rights_of_its_role_and_ends_the_older_one(
    locked: Locked, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = user_claims

    def before(user: User) -> dict[str, Any]:
        claims = now(user)
        allowed = [claim for claim in claims["pub"]["allow"] if claim != "admit.api.events"]
        return {**claims, "pub": {**claims["pub"], "allow": allowed}}

    monkeypatch.setattr(jwt_issuer, "user_claims", before)
    creds = await locked.add("admin", "root")
    monkeypatch.setattr(jwt_issuer, "user_claims", now)
    older = creds.with_name("older.creds")
    shutil.copy2(creds, older)
    async with connected(locked, creds) as bus:
        with pytest.raises(AccessDenied):
            await bus.request("admit.api.events", b"", timeout=5)
        back = asyncio.Event()
        bus.reconnected.append(back.set)
        assert await locked.admit("renew", "root", "-o", str(creds), "--revoke-old") == 0
        await within(back.wait())
        with pytest.raises(NoResponders):
            await bus.request("admit.api.events", b"", timeout=5)
    with pytest.raises(AccessDenied, match="revoked"):
        async with connected(locked, older):
            pass


@pytest.mark.parametrize("jwt", [False, True], ids=["nkeys", "jwt"])
async def test_revoked_user_is_disconnected_from_each_server_of_a_cluster(
    tmp_path: Path, jwt: bool
) -> None:
    store = AuthStore(tmp_path / "auth")
    store.create("", jwt=jwt)
    config = (store.folder / "auth.conf").read_text()
    with ExitStack() as probes:
        ports = [probes.enter_context(free_port()) for _ in range(3)]
    routes = ", ".join(f"nats://127.0.0.1:{port}" for port in ports)
    servers = [
        ConfiguredServer(
            tmp_path / name,
            f"server_name: {name}\n{_accounts(config, jwt, tmp_path / f'jwt-{name}')}\n"
            'jetstream { store_dir: "STORE" }\n'
            f"cluster {{ name: c, listen: '127.0.0.1:{port}', routes: [{routes}] }}\n",
        )
        for name, port in zip(("a", "b", "c"), ports, strict=True)
    ]
    user = User(name="ada", role="viewer", key="")
    store.add(user, tmp_path / "ada.creds")
    try:
        for server in servers:
            await server.start()
        locked = [Locked(store.folder, server) for server in servers]
        gone = [asyncio.Event() for _ in servers]
        clients = [
            await plain_client(server, tmp_path / "ada.creds", event)
            for server, event in zip(locked, gone, strict=True)
        ]
        url = servers[0].url()
        store.remove("ada")

        async def all_applied() -> bool:
            # A server that has just started needs a moment until it knows the others.
            return await apply_users(url, store, NO_OPTIONS) == len(servers)

        await eventually(all_applied)
        await within(asyncio.gather(*(event.wait() for event in gone)))
        for client in clients:
            await client.close()
    finally:
        for server in servers:
            server.stop()


async def test_server_of_a_cluster_that_does_not_answer_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_reload, "ANSWER_SECONDS", 1.0)
    async with three_servers(tmp_path, locked=True, with_streams=False) as cluster:
        store = AuthStore(tmp_path / "auth")

        async def applied() -> str:
            try:
                return str(await apply_users(cluster.url_of(0), store, NO_OPTIONS))
            except BusUnavailable as error:
                return str(error)

        async def all_applied() -> bool:
            return await applied() == "3"

        await eventually(all_applied)
        cluster.pause(2)
        assert (await applied()).startswith("2 of the 3 servers of the cluster answer")
        cluster.resume(2)
        await eventually(all_applied)


def _accounts(config: str, jwt: bool, folder: Path) -> str:
    """The lines of one server; each server keeps the JWTs of accounts in a folder of its own."""
    if jwt:
        return re.sub(r'dir: ".*"', f'dir: "{folder}"', config)
    return 'include "../auth/auth.conf"'


@contextmanager
def free_port() -> Iterator[int]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        yield probe.getsockname()[1]


async def test_changed_name_needs_new_credentials(locked: Locked) -> None:
    first = await locked.add("viewer", "ada")
    first.rename(first.with_suffix(".old"))
    assert await locked.admit("revoke", "ada") == 0
    second = await locked.add("viewer", "ada")
    async with connected(locked, second):
        pass
    with pytest.raises(AccessDenied):
        async with connected(locked, first.with_suffix(".old")):
            pass


async def test_expired_user_is_disconnected(locked: Locked) -> None:
    store = locked.store
    user = User(name="ada", role="viewer", key="", expires=clock.now() + timedelta(seconds=2))
    store.add(user, locked.creds("ada"))

    async def reload_users(_: object) -> None:
        await reload(locked.server.url(), store.system_seed_file, NO_OPTIONS)

    await reload_users(())
    gone = asyncio.Event()
    client = await plain_client(locked, locked.creds("ada"), gone)
    keeping = asyncio.create_task(remove_expired_users(store, reload_users))
    await within(gone.wait())
    await until(lambda: store.users == ())
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
    await client.close()


@pytest.mark.parametrize("locked", ["nkeys"], indirect=True)
async def test_user_connects_while_the_server_reads_its_users_again(locked: Locked) -> None:
    """nats-server refuses every login for some milliseconds of a reload."""
    creds = await locked.add("viewer", "ada")
    reloads = 5

    async def connect_again_and_again() -> None:
        while reloads:
            async with connected(locked, creds):
                pass

    connecting = [asyncio.create_task(connect_again_and_again()) for _ in range(4)]
    while reloads:
        await reload(locked.server.url(), locked.store.system_seed_file, NO_OPTIONS)
        reloads -= 1
        await asyncio.sleep(0.3)
    await within(asyncio.gather(*connecting))


async def test_command_removes_expired_users_until_it_is_stopped(locked: Locked) -> None:
    await locked.add("viewer", "ada", "--expires", "1s")
    removing = await asyncio.create_subprocess_exec(
        *(str(ADMIT), "auth", "expire", "--dir", str(locked.folder), "--nats", locked.server.url()),
        stderr=asyncio.subprocess.PIPE,
    )
    assert removing.stderr is not None
    line = await within(removing.stderr.readline())
    assert b'"users_expired"' in line
    assert locked.store.users == ()

    async def is_refused() -> bool:
        # A JWT is valid until the end of the second in which it expires.
        try:
            async with connected(locked, locked.creds("ada")):
                return False
        except AdmittanceError as error:
            return isinstance(error, AccessDenied)

    await eventually(is_refused)
    removing.terminate()
    assert await within(removing.wait()) == 0


@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl")
async def test_check_in_shell_signs_with_its_credentials(locked: Locked) -> None:
    creds = await locked.add("check", "freeze", "--controller", "example.com/freeze")
    controller = await locked.add("workload-controller", "controller")
    check = await asyncio.create_subprocess_exec(
        *("bash", str(SHELL_CHECK)),
        env={
            **os.environ,
            "ADMIT_NATS_URL": locked.server.url(),
            "ADMIT_NATS_CREDS": str(creds),
        },
        stderr=asyncio.subprocess.PIPE,
    )
    assert check.stderr is not None
    assert b"check example.com/freeze listens at" in await within(check.stderr.readline())
    request = b'{"namespace":"ns","name":"w","uid":"u","check":"freeze","cycle":3}'
    async with connected(locked, controller) as bus:
        await bus.nc.publish("admit.check.requested.example_com=2Ffreeze.ns.w", request)
        said = await within(check.stderr.readline())
    check.terminate()
    await within(check.wait())
    assert said == b"ns/w cycle 3 retry 0: Ready (not frozen)\n"


async def test_server_that_refuses_the_configuration_keeps_its_users(locked: Locked) -> None:
    creds = await locked.add("viewer", "ada")
    (locked.folder / "auth.conf").write_text("accounts {\n")
    with pytest.raises(SetupError, match="refuses its configuration"):
        await reload(locked.server.url(), locked.store.system_seed_file, NO_OPTIONS)
    async with connected(locked, creds):
        pass
    # The next change writes the file again.
    await locked.add("viewer", "bob")
    async with connected(locked, locked.creds("bob")):
        pass


async def test_server_of_another_folder_does_not_take_the_change(
    locked: Locked, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    assert await asyncio.to_thread(invoke, ["auth", "init", str(other)]) == 0
    words = ["auth", "add", "viewer", "ada", "-o", str(tmp_path / "x"), "--dir", str(other)]
    status = await asyncio.to_thread(invoke, [*words, "--nats", locked.server.url()])
    assert status == 1
    error = capsys.readouterr().err
    assert "is changed, but the server does not know it yet" in error
    assert "refuses the credentials in" in error


async def test_change_without_a_server_takes_effect_at_its_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "auth"
    words = ["--dir", str(folder), "--nats", "nats://127.0.0.1:1"]
    assert await asyncio.to_thread(invoke, ["auth", "init", str(folder)]) == 0
    add = ["auth", "add", "viewer", "ada", "-o", str(tmp_path / "ada"), *words]
    assert await asyncio.to_thread(invoke, add) == 0
    assert await asyncio.to_thread(invoke, ["auth", "revoke", "ada", *words]) == 0
    assert "takes effect when the server starts" in capsys.readouterr().err


async def test_server_without_accounts_is_named(
    locked: Locked,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines: list[str] = []

    class Log:
        def warning(self, event: str, **fields: object) -> None:
            lines.append(f"{event} {fields}")

    monkeypatch.setattr("admittance.runtime.nats.opening.log", Log())
    server = ConfiguredServer(tmp_path / "open", 'jetstream { store_dir: "STORE" }\n')
    await server.start()
    try:
        words = ["auth", "add", "viewer", "ada", "-o", str(locked.creds("ada"))]
        words += ["--dir", str(locked.folder), "--nats", server.url()]
        assert await asyncio.to_thread(invoke, words) == 1
        assert "the server does not include this auth.conf" in capsys.readouterr().err
        access = ConnectionOptions(creds=str(locked.creds("ada")))
        await (await Bus.connect(server.url(), name="test", access=access)).close()
        assert "has no accounts and demands no credentials" in lines[-1]
        async with connected(locked, await locked.add("viewer", "eve")):
            assert len(lines) == 1
    finally:
        server.stop()


async def test_user_revoked_while_the_server_is_away_stays_away(locked: Locked) -> None:
    creds = await locked.add("viewer", "ada")
    locked.server.stop()
    assert await locked.admit("revoke", "ada") == 0
    await locked.server.start()
    with pytest.raises(AccessDenied):
        async with connected(locked, creds):
            pass
    async with connected(locked, await locked.add("viewer", "bob")):
        pass


async def test_clock_that_was_set_back_does_not_hinder_a_revocation(
    locked: Locked, monkeypatch: pytest.MonkeyPatch
) -> None:
    creds = await locked.add("viewer", "ada")
    now = clock.now
    monkeypatch.setattr(clock, "now", lambda: now() - timedelta(minutes=1))
    assert await locked.admit("revoke", "ada") == 0
    with pytest.raises(AccessDenied):
        async with connected(locked, creds):
            pass


async def test_earlier_change_is_not_sent_after_a_later_one(locked: Locked) -> None:
    store, url = locked.store, locked.server.url()
    both = [await locked.add("viewer", name) for name in ("ada", "bob")]
    store.remove("ada")
    async with store.sending():  # another process sends
        earlier = asyncio.create_task(apply_users(url, store, NO_OPTIONS))
        await asyncio.sleep(0)
        store.remove("bob")
    assert await within(earlier) == 1
    for creds in both:
        with pytest.raises(AccessDenied):
            async with connected(locked, creds):
                pass


async def test_server_reads_a_changed_file_again(locked: Locked) -> None:
    creds = await locked.add("viewer", "ada")
    before = (locked.folder / "auth.conf").read_text()

    async def is_changed() -> bool:
        locked.store.note_servers(str(clock.now()))
        return (locked.folder / "auth.conf").read_text() != before

    if "resolver" in before:
        await eventually(is_changed)  # JWTs of accounts have their second.
    seed_file = locked.store.system_seed_file
    assert await reload(locked.server.url(), seed_file, NO_OPTIONS) == 1
    async with connected(locked, creds):
        pass
