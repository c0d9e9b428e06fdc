"""Each way to log in, by option, variable and settings, against a server that demands it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from admittance.checks import AdmissionCheckController
from admittance.cli.commands.program import invoke
from admittance.providers import Provider
from admittance.runtime.bus import streams
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import AccessDenied
from admittance.runtime.nats.connection_options import (
    OPTIONS,
    VARIABLES,
    ConnectionOptions,
    connection_options,
)
from admittance.runtime.process.service import Run, Service
from admittance.runtime.process.settings import Settings
from admittance.runtime.process.supervise import serve
from support.nats.logins import Authority, NKey, Operator, write_secret
from support.servers import ConfiguredServer, until, within

pytestmark = pytest.mark.bus

PASSWORD = "p@ss:w/rd,%"
TOKEN = "t0ken-of-the-test"
STORE = 'jetstream { store_dir: "STORE" }\n'
WAYS = (
    *("password", "password-file", "token", "token-file", "nkey", "jwt"),
    *("ca", "certificate", "first"),
)
BY_FILE = [way for way in WAYS if way not in ("password", "token")]


class Way(NamedTuple):
    """A server and the options that it demands, by field."""

    url: str
    options: dict[str, str]

    @property
    def access(self) -> ConnectionOptions:
        return connection_options({}, given=self.options)

    @property
    def variables(self) -> dict[str, str]:
        return {VARIABLES[name]: value for name, value in self.options.items()}

    @property
    def words(self) -> list[str]:
        words = []
        for name, value in self.options.items():
            words += [OPTIONS[name]] if name == "tls_first" else [OPTIONS[name], value]
        return words


class Servers:
    """Servers that start at their first use and are shared by the module."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.operator = Operator()
        self.authority = Authority(folder / "ca")
        self._running: dict[str, ConfiguredServer] = {}
        cert, key = self.authority.certificate("localhost")
        tls = f'cert_file: "{cert}", key_file: "{key}", handshake_first: '
        ca = f'ca_file: "{self.authority.file}"'
        nkey = NKey()
        self.seed = write_secret(folder / "seed", f"# the user of the test\n{nkey.seed}\n")
        users = f'[{{user: ada, password: "{PASSWORD}"}}, {{nkey: {nkey.public}}}]'
        self._configs = {
            "users": f"authorization {{ users: {users} }}\n",
            "token": f'authorization {{ token: "{TOKEN}" }}\n',
            "operator": self.operator.config(),
            "tls": f"tls {{ {tls}false }}\n",
            "mutual": f"tls {{ {tls}false, {ca}, verify_and_map: true }}\n"
            'authorization { users: [{user: "CN=ada"}] }\n',
            "first": f"tls {{ {tls}true }}\n",
        }

    def server(self, kind: str) -> ConfiguredServer:
        if kind not in self._running:
            server = ConfiguredServer(self.folder / kind, STORE + self._configs[kind])
            # Also from a test that has an event loop of its own.
            with ThreadPoolExecutor(1) as thread:
                thread.submit(asyncio.run, server.start()).result()
            self._running[kind] = server
        return self._running[kind]

    def url(self, kind: str) -> str:
        return f"nats://localhost:{self.server(kind).port}"

    def way(self, name: str) -> Way:
        ca = {"tls_ca": self.authority.file}
        match name:
            case "password":
                return Way(self.url("users"), {"user": "ada", "password": PASSWORD})
            case "password-file":
                file = write_secret(self.folder / "password", f"{PASSWORD}\n")
                return Way(self.url("users"), {"user": "ada", "password_file": file})
            case "token":
                return Way(self.url("token"), {"token": TOKEN})
            case "token-file":
                file = write_secret(self.folder / "token.txt", f"{TOKEN}\n")
                return Way(self.url("token"), {"token_file": file})
            case "nkey":
                return Way(self.url("users"), {"creds": self.seed})
            case "jwt":
                file = self.operator.credentials(self.folder / "ada.creds", "ada")
                return Way(self.url("operator"), {"creds": file})
            case "ca":
                return Way(self.url("tls"), ca)
            case "certificate":
                cert, key = self.authority.certificate("ada")
                return Way(self.url("mutual"), {**ca, "tls_cert": cert, "tls_key": key})
        return Way(self.url("first"), {**ca, "tls_first": "1"})

    def stop(self) -> None:
        for server in self._running.values():
            server.stop()


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    servers_made = Servers(tmp_path_factory.mktemp("logins"))
    yield servers_made
    servers_made.stop()


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, servers: Servers) -> Way:
    return servers.way(request.param)


@pytest.fixture(params=BY_FILE)
def way_by_file(request: pytest.FixtureRequest, servers: Servers) -> Way:
    return servers.way(request.param)


async def refusal(url: str, **options: str) -> str:
    """The error of connecting. A server that answers and refuses is never a time-out."""
    access = connection_options({}, given=options)
    with pytest.raises(AccessDenied) as caught:
        await within(Bus.connect(url, name="test", access=access))
    line = str(caught.value)
    assert "\n" not in line
    for secret in (PASSWORD, TOKEN):
        assert secret not in line
    return line


# What is accepted. ------------------------------------------------------------------------


async def test_a_connection_logs_in_again_after_a_loss(way: Way) -> None:
    bus = await Bus.connect(way.url, name="test", access=way.access)
    assert await within(bus.api("INFO"))
    await bus.nc.force_reconnect()
    await until(lambda: bus.nc.is_connected)
    assert await within(bus.api("INFO"))
    await within(bus.close())


def test_a_server_refuses_a_command_without_its_login(
    way_by_file: Way, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["--nats", way_by_file.url, "get", "workloads"]) == 1
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    assert "--" in error, "it names an option"


def test_a_command_logs_in_by_options(way_by_file: Way, capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(_prepared(way_by_file))
    words = ["--nats", way_by_file.url, *way_by_file.words]
    for command in ([*words, "get", "workloads"], ["get", "workloads", *words]):
        assert invoke(command) == 0, capsys.readouterr().err


def test_a_command_logs_in_by_variables(
    way: Way, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(_prepared(way))
    for name, value in {"ADMIT_NATS_URL": way.url, **way.variables}.items():
        monkeypatch.setenv(name, value)
    assert invoke(["get", "workloads"]) == 0, capsys.readouterr().err


async def _prepared(way: Way) -> None:
    bus = await Bus.connect(way.url, name="test", access=way.access)
    await streams.ensure(bus)
    await bus.close()


def service_of(run: Run) -> Service:
    return Service("s", lambda: run, role="s")


async def test_a_service_logs_in_by_variables(way: Way) -> None:
    await _prepared(way)
    stop = asyncio.Event()

    async def run(bus: Bus, _: Settings, *, stop: asyncio.Event) -> None:
        assert await bus.api("INFO")
        stop_all.set()
        await stop.wait()

    stop_all = stop
    settings = Settings.from_env("s", env={"ADMIT_NATS_URL": way.url, **way.variables})
    assert PASSWORD not in repr(settings)
    assert TOKEN not in repr(settings)
    await within(serve(service_of(run), settings, run, stop))


async def test_checks_and_providers_log_in(way: Way) -> None:
    check, provider = AdmissionCheckController("example.com/a"), Provider("example.com")

    @check.check
    async def ready(_: object) -> None: ...

    @provider.requested
    async def asked(_: object) -> None: ...

    await _prepared(way)
    stop = asyncio.Event()
    programs = (check, provider)
    running = [
        asyncio.create_task(program.serve(way.url, connection=way.access, stop=stop))
        for program in programs
    ]
    await until(lambda: all(program.is_running for program in programs))
    stop.set()
    await within(asyncio.gather(*running))


# What is refused. -------------------------------------------------------------------------


async def test_wrong_passwords_tokens_and_keys_are_named(servers: Servers) -> None:
    users, token = servers.url("users"), servers.url("token")
    line = await refusal(users, user="ada", password="secret")
    assert line == (
        f"{users} refuses user ada with the password in ADMIT_NATS_PASSWORD: check both"
    )
    wrong = write_secret(servers.folder / "wrong", "secret")
    assert f"the password in {wrong}" in await refusal(users, user="ada", password_file=wrong)
    assert "refuses the token in ADMIT_NATS_TOKEN" in await refusal(token, token="secret")
    seed = write_secret(servers.folder / "other", NKey().seed)
    line = await refusal(users, creds=seed)
    assert f"refuses the credentials in {seed}: the server does not know them" in line
    assert "it takes no NKeys" in await refusal(token, creds=seed)


async def test_refused_jwts_say_what_is_wrong_with_them(servers: Servers) -> None:
    url, now = servers.url("operator"), int(time.time())
    made, folder = servers.operator.credentials, servers.folder
    line = await refusal(url, creds=made(folder / "old", "bob", exp=now - 60))
    assert "(user bob): they expired at 20" in line
    line = await refusal(url, creds=made(folder / "new", "bob", nbf=now + 3600))
    assert "they are valid from 20" in line
    assert "check the clocks" in line
    line = await refusal(url, creds=Operator().credentials(folder / "else", "eve"))
    assert "(user eve): the server does not know them, or they were revoked" in line


async def test_a_damaged_credentials_file_is_one_line(tmp_path: Path, servers: Servers) -> None:
    url = servers.url("operator")
    path = Path(servers.way("jwt").options["creds"])
    good = path.read_text()  # noqa: ASYNC240
    seed = NKey().seed
    lines = good.splitlines()
    jwt = lines[1]
    mine = next(line for line in lines if line.startswith("SU"))
    texts = {
        "neither a user's JWT": "hello",
        "a JWT but no seed": jwt,
        "its seed is damaged": seed[:-2] + ("AA" if seed[-2:] != "AA" else "BB"),
        "its seed is of an account": NKey(0).seed,
        "its seed does not belong to its JWT": good.replace(mine, seed),
        "its JWT is damaged": good.replace(jwt, f"a.{jwt.split('.')[1][:-9]}.b"),
    }
    for number, (reason, text) in enumerate(texts.items()):
        file = write_secret(tmp_path / f"{number}", text)
        line = await refusal(url, creds=file)
        assert line.startswith(f"the credentials file {file} is not valid: ")
        assert reason in line
        assert seed[:50] not in line
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe")
    binary.chmod(0o600)
    assert "it is not text" in await refusal(url, creds=str(binary))
    assert "is a folder, as docker makes" in await refusal(url, creds=str(tmp_path))
    readme = tmp_path / "README.md"
    readme.write_text("# A page that everybody may read")
    readme.chmod(0o644)
    # No advice to change the mode: the file is not secret.
    line = await refusal(url, creds=str(readme))
    assert "neither a user's JWT with its seed nor a seed" in line
    assert "chmod" not in line
    assert f"{tmp_path / 'none'} not found" in await refusal(url, creds=str(tmp_path / "none"))


async def test_secrets_that_other_users_may_read_are_refused(servers: Servers) -> None:
    for name, field in (("nkey", "creds"), ("password-file", "password_file")):
        way = servers.way(name)
        file = way.options[field]
        Path(file).chmod(0o644)  # noqa: ASYNC240
        line = await refusal(way.url, **way.options)
        Path(file).chmod(0o600)  # noqa: ASYNC240
        assert line.startswith("other users may read the ")
        assert line.endswith(f"{file}: run `chmod 600 {file}`")


async def test_wrong_tls_files_are_one_line(servers: Servers, tmp_path: Path) -> None:
    way = servers.way("certificate")
    ca = way.options["tls_ca"]
    cert, key = way.options["tls_cert"], way.options["tls_key"]
    other = Authority(tmp_path / "other")
    strange, strange_key = other.certificate("ada")
    junk = write_secret(tmp_path / "junk", "hello")
    old, old_key = servers.authority.certificate("old", days=-1)
    unknown, unknown_key = servers.authority.certificate("eve")
    at = way.url
    assert "demands a client certificate: name it" in await refusal(at, tls_ca=ca)
    line = await refusal(at, tls_ca=other.file, tls_cert=cert, tls_key=key)
    assert "is not trusted" in line
    assert f"check the CA file {other.file}" in line
    line = await refusal(at, tls_ca=ca, tls_cert=strange, tls_key=strange_key)
    assert f"refuses the client certificate {strange}" in line
    line = await refusal(at, tls_ca=ca, tls_cert=old, tls_key=old_key)
    assert f"refuses the client certificate {old}: it is expired" in line
    line = await refusal(at, tls_ca=ca, tls_cert=unknown, tls_key=unknown_key)
    assert f"knows no user of the client certificate {unknown}" in line
    line = await refusal(at, tls_ca=ca, tls_cert=cert, tls_key=strange_key)
    assert f"the key {strange_key} does not belong to the certificate {cert}" == line
    assert "has no certificate in PEM" in await refusal(at, tls_ca=junk)
    assert "is not valid: both" in await refusal(at, tls_ca=ca, tls_cert=cert, tls_key=junk)
    assert await refusal(at, tls_ca="none") == "CA file none not found"
    line = await refusal(servers.url("users"), tls_ca=ca, user="ada", password=PASSWORD)
    assert "has no TLS: drop the TLS options" in line
    line = await refusal(servers.url("tls"), tls_ca=ca, tls_first="1")
    assert "does not begin with the TLS handshake" in line


# Later. -----------------------------------------------------------------------------------


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The log lines of the bus."""
    lines: list[str] = []

    class Log:
        def warning(self, event: str, **fields: object) -> None:
            lines.append(f"{event} {fields}")

        info = warning

    # The module's own logger is configured by whichever test comes first.
    monkeypatch.setattr("admittance.runtime.bus.bus.log", Log())
    return lines


async def test_expired_credentials_are_named_and_a_new_file_is_used(
    servers: Servers, told: list[str]
) -> None:
    file = servers.folder / "short.creds"
    servers.operator.credentials(file, "bob", exp=int(time.time()) + 2)
    url = servers.url("operator")
    bus = await Bus.connect(url, name="test", access=ConnectionOptions(creds=str(file)))
    await until(lambda: any("(user bob): they expired at 20" in line for line in told))
    servers.operator.credentials(file, "bob")
    await until(lambda: any(line.startswith("bus_reconnected") for line in told))
    assert await within(bus.api("INFO"))
    await bus.close()


async def test_revoked_credentials_are_named_and_a_new_file_is_used(
    servers: Servers, told: list[str]
) -> None:
    key, operator = NKey(), servers.operator
    before = operator.config()
    server = ConfiguredServer(servers.folder / "revoking", STORE + before)
    await server.start()
    file = servers.folder / "revoked.creds"
    operator.credentials(file, "carl", key)
    url = f"nats://localhost:{server.port}"
    bus = await Bus.connect(url, name="test", access=ConnectionOptions(creds=str(file)))
    server.reload(before, operator.config((key,)))
    # The server says why it closes the connection, or, where that is lost with the connection, why
    # it refuses the next one.
    await until(lambda: any("(user carl): " in line and "revoked" in line for line in told))
    file.unlink()
    await until(lambda: any(f"credentials file {file} not found" in line for line in told))
    operator.credentials(file, "carl")
    await until(lambda: any(line.startswith("bus_reconnected") for line in told))
    await bus.close()
    server.stop()


async def test_a_service_waits_for_a_missing_credentials_file(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    way = servers.way("jwt")
    file = servers.folder / "late.creds"
    stop_all = asyncio.Event()

    async def run(_: Bus, __: Settings, *, stop: asyncio.Event) -> None:
        stop_all.set()
        await stop.wait()

    connect = Bus.connect
    refused: list[str] = []

    async def counted(url: str, *, name: str, access: ConnectionOptions) -> Bus:
        try:
            return await connect(url, name=name, access=access)
        except AccessDenied as error:
            refused.append(str(error))
            servers.operator.credentials(file, "late")
            raise

    monkeypatch.setattr(Bus, "connect", counted)
    env = {"ADMIT_NATS_URL": way.url, "ADMIT_NATS_CREDS": str(file)}
    await within(serve(service_of(run), Settings.from_env("s", env=env), run, stop_all))
    assert refused == [f"credentials file {file} not found"]
