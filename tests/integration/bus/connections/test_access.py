"""Servers that demand credentials, permissions or TLS: each error is one line without secrets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from admittance.cli.commands.program import invoke
from admittance.runtime import clock
from admittance.runtime.bus import streams
from admittance.runtime.bus.bucket import read_all
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.errors import AccessDenied, AdmittanceError, BusRefused, BusUnavailable
from admittance.runtime.nats.connection_options import ConnectionOptions
from admittance.runtime.process import supervise
from admittance.runtime.process.settings import Settings
from admittance.services import SERVICES
from support.nats.logins import Operator
from support.processes.service_process import ServiceProcess
from support.servers import ConfiguredServer, until, within

pytestmark = pytest.mark.bus

SECRET = "p@ss:w/rd,%"
ENCODED = "p%40ss%3Aw%2Frd%2C%25"

ACCOUNTS = f"""
jetstream {{ store_dir: "STORE" }}
accounts {{
  FULL: {{
    jetstream: enabled
    users: [
      {{user: admit, password: "{SECRET}"}}
      {{user: publisher, password: secret, permissions: {{publish: ["admit.>"]}}}}
      {{user: subscriber, password: secret, permissions: {{subscribe: ["admit.>"]}}}}
      {{user: blind, password: secret, permissions: {{publish: ["$JS.API.INFO"]}}}}
      {{user: reader, password: secret, permissions: {{publish: ["$JS.API.>"]}}}}
      {{user: reading, password: secret, permissions: {{
        publish: ["$JS.API.INFO", "$JS.API.STREAM.INFO.*"]}}}}
    ]
  }}
  BARE: {{ users: [{{user: bare, password: secret}}] }}
}}
"""


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[ConfiguredServer]:
    """A server with accounts and users."""
    server = ConfiguredServer(tmp_path / "guarded", ACCOUNTS)
    await server.start()
    yield server
    server.stop()


async def refusal(url: str, creds: str | None = None) -> AdmittanceError:
    """The error of connecting. The limit is far above the promised 5 s."""
    with pytest.raises(AdmittanceError) as caught:
        await within(Bus.connect(url, name="test", access=ConnectionOptions(creds=creds)))
    line = str(caught.value)
    assert "\n" not in line
    assert "bug" not in line
    assert "secret" not in line
    return caught.value


async def test_each_refusal_of_credentials_says_what_to_do(
    guarded: ConfiguredServer, tmp_path: Path
) -> None:
    at = guarded.url().removeprefix("nats://")
    error = await refusal(guarded.url())
    assert isinstance(error, AccessDenied)
    assert f"nats://{at} demands credentials: name a credentials file with --creds" in str(error)
    error = await refusal(guarded.url("admit:secret"))
    assert str(error) == (
        f"nats://admit:***@{at} refuses these credentials: check the user and password in the URL"
    )
    error = await refusal(guarded.url("secret"))
    assert f"nats://***@{at} refuses these credentials: check the token in the URL" == str(error)
    error = await refusal(guarded.url("publisher:secret"))
    assert "may not publish to $JS.API.INFO: give this user the permissions" in str(error)
    error = await refusal(guarded.url("subscriber:secret"))
    assert "may not subscribe to _inbox." in str(error)
    error = await refusal(guarded.url("bare:secret"))
    assert "has no JetStream for this account" in str(error)
    error = await refusal(guarded.url(), creds=str(tmp_path / "none.creds"))
    assert isinstance(error, AccessDenied)
    assert str(error) == f"credentials file {tmp_path / 'none.creds'} not found"


async def test_a_percent_encoded_password_is_decoded(guarded: ConfiguredServer) -> None:
    bus = await Bus.connect(guarded.url(f"admit:{ENCODED}"), name="test")
    await streams.ensure(bus)
    assert await bus.publish(Outgoing("admit.workload.submitted.a.b", b"{}")) == 1
    await bus.close()


async def test_services_wait_for_streams_of_the_workload_controller(
    guarded: ConfiguredServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervise, "PAUSE_MIN", 0.01)
    monkeypatch.setattr(supervise, "PAUSE_MAX", 0.05)
    waited = asyncio.Event()
    ensure = streams.ensure

    async def observed(bus: Bus, **settings: Any) -> None:
        try:
            await ensure(bus, **settings)
        except BusUnavailable as error:
            assert "the workload-controller creates it" in str(error)
            assert bus.nc.denials == {}
            waited.set()
            raise

    monkeypatch.setattr(streams, "ensure", observed)
    stops = {name: asyncio.Event() for name in ("scheduler", "workload-controller")}
    began = {name: asyncio.Event() for name in stops}

    async def run(bus: Bus, settings: Settings, *, stop: asyncio.Event) -> None:
        await bus.api("STREAM.INFO.ADMITTANCE")  # is made by then
        began[settings.service].set()
        await stop.wait()

    def serve(name: str, user: str) -> asyncio.Task[None]:
        settings = Settings(service=name, instance="i", url=guarded.url(user))
        return asyncio.create_task(supervise.serve(SERVICES[name], settings, run, stops[name]))

    running = [serve("scheduler", "reading:secret")]
    await within(waited.wait())
    running.append(serve("workload-controller", f"admit:{ENCODED}"))
    for name in stops:
        await within(began[name].wait())
        stops[name].set()
    await within(asyncio.gather(*running))


async def test_a_denied_request_fails_at_once(guarded: ConfiguredServer) -> None:
    full = await Bus.connect(guarded.url(f"admit:{ENCODED}"), name="full")
    await streams.ensure(full)
    await full.close()
    bus = await Bus.connect(guarded.url("reader:secret"), name="test")
    assert await read_all(bus) == []
    with pytest.raises(BusRefused, match=r"may not publish to admit\.workload\.submitted\.a\.b"):
        await within(bus.publish(Outgoing("admit.workload.submitted.a.b", b"{}"), timeout=600))
    with pytest.raises(AccessDenied, match=r"may not publish to admit\.api\.apply"):
        await within(bus.request("admit.api.apply", b"{}", timeout=600))
    await bus.close()


@pytest.mark.parametrize("what", ["STREAM.INFO.ADMITTANCE", "STREAM.PURGE.ADMITTANCE"])
async def test_a_denied_request_to_jetstream_fails_at_once(
    guarded: ConfiguredServer, what: str
) -> None:
    bus = await Bus.connect(guarded.url("blind:secret"), name="test")
    with pytest.raises(AccessDenied, match=rf"may not publish to \$JS\.API\.{what}"):
        await within(bus.api(what, timeout=600))
    await bus.close()


async def test_a_command_reports_a_refusal_in_one_line_without_password(
    guarded: ConfiguredServer, capsys: pytest.CaptureFixture[str]
) -> None:
    full = await Bus.connect(guarded.url(f"admit:{ENCODED}"), name="full")
    await streams.ensure(full)
    await full.close()
    for url, what in (
        (guarded.url("admit:secret"), "refuses these credentials"),
        (guarded.url("reader:secret"), "may not publish to admit.api"),
    ):
        for command in ("get pending", "doctor"):
            status = await asyncio.to_thread(invoke, ["--nats", url, *command.split()])
            captured = capsys.readouterr()
            assert "secret" not in captured.out + captured.err
            assert status == 1
            if command != "doctor" or "admit:" in url:
                lines = captured.err.splitlines()
                assert len(lines) == 1
                assert what in lines[0]


async def test_a_connection_refused_later_recovers_when_permitted_again(
    guarded: ConfiguredServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus = await Bus.connect(guarded.url(f"admit:{ENCODED}"), name="test")
    lines: list[str] = []

    class Log:
        def warning(self, event: str, **fields: object) -> None:
            lines.append(f"{event} {fields}")

        info = warning

    # The module's own logger is configured by whichever test comes first.
    monkeypatch.setattr("admittance.runtime.bus.bus.log", Log())
    guarded.reload(f'"{SECRET}"', '"changed"')
    await until(lambda: any(line.startswith("bus_error") for line in lines))
    guarded.reload('"changed"', f'"{SECRET}"')
    await until(lambda: any(line.startswith("bus_reconnected") for line in lines))
    assert await within(bus.api("INFO"))
    assert len(lines) == len(set(lines))
    await bus.close()


async def test_an_unreachable_server_does_not_hide_one_that_answers(
    guarded: ConfiguredServer,
) -> None:
    for _ in range(4):
        url = f"nats://127.0.0.1:1,{guarded.url(f'admit:{ENCODED}')}"
        bus = await Bus.connect(url, name="test")
        assert await within(bus.api("INFO"))
        await bus.close()
    assert "refuses these" in str(await refusal(f"127.0.0.1:1,{guarded.url('admit:secret')}"))


# An operator. -----------------------------------------------------------------------------


async def test_a_server_of_an_operator_demands_a_credentials_file(tmp_path: Path) -> None:
    server = ConfiguredServer(tmp_path / "operator", Operator().config())
    await server.start()
    try:
        for userinfo in ("", "admit:secret"):
            error = await refusal(server.url(userinfo))
            assert isinstance(error, AccessDenied)
            assert "demands signed credentials: name a credentials file" in str(error)
    finally:
        server.stop()


# TLS. -------------------------------------------------------------------------------------


def certificate(folder: Path) -> tuple[Path, Path]:
    """A self-signed certificate for 127.0.0.1, and its key."""
    folder.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = clock.now()
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return folder / "cert.pem", folder / "key.pem"


@pytest.fixture
async def encrypted(tmp_path: Path) -> AsyncIterator[ConfiguredServer]:
    """A server that demands TLS."""
    cert, key = certificate(tmp_path / "tls")
    server = ConfiguredServer(
        tmp_path / "encrypted",
        f'jetstream {{ store_dir: "STORE" }}\ntls {{ cert_file: "{cert}", key_file: "{key}" }}\n',
    )
    await server.start()
    yield server
    server.stop()


async def test_a_certificate_is_trusted_or_its_fault_is_reported(
    encrypted: ConfiguredServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for scheme in ("nats", "tls"):
        error = await refusal(encrypted.url("admit:secret", scheme))
        assert isinstance(error, AccessDenied)
        assert "is not trusted (self-signed certificate)" in str(error)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "tls" / "cert.pem"))
    error = await refusal(encrypted.url())
    assert "is not trusted (IP address mismatch" in str(error)
    bus = await Bus.connect(f"tls://localhost:{encrypted.port}", name="test")
    assert await within(bus.api("INFO"))
    await bus.nc.force_reconnect()
    await until(lambda: bus.nc.is_connected)
    assert await within(bus.api("INFO"))
    await within(bus.close())


async def test_a_tls_address_of_a_server_without_tls_gets_no_password(
    guarded: ConfiguredServer,
) -> None:
    error = await refusal(guarded.url(f"admit:{ENCODED}", "tls"))
    assert isinstance(error, AccessDenied)
    assert "has no TLS: use nats:// instead of tls://" in str(error)


async def test_a_service_that_is_refused_says_so_once_and_tries_again(
    guarded: ConfiguredServer, tmp_path: Path
) -> None:
    service = ServiceProcess("workload-controller", guarded.url("admit:new"), tmp_path, "me")
    await service.start()
    try:
        await until(lambda: "refuses these credentials" in service.log)
        guarded.reload(f'"{SECRET}"', '"new"')
        await until(lambda: '"leading"' in service.log)
        assert service.status is None
        assert service.log.count("refuses these credentials") == 1
        assert "admit:new" not in service.log
    finally:
        await service.stop()
