"""A check or provider without a login of its own ends, and says which command makes one."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from admittance.access.users import User
from admittance.checks import AdmissionCheckController, Ready
from admittance.providers import Failed, Provider
from admittance.runtime.errors import SetupError
from admittance.runtime.nats_server.credentials_files import credentials_text
from admittance.runtime.nats_server.jwt_issuer import new_key
from admittance.sdk.program import Program
from support.servers import ConfiguredServer, within

pytestmark = [pytest.mark.bus, pytest.mark.asyncio(loop_scope="module")]

PERSON = """
authorization {
  users: [
    {user: person, password: secret, permissions: {
      publish: {allow: ["$JS.API.INFO"]}, subscribe: {allow: ["_INBOX.>"]}
    }}
  ]
}
"""
CHECK = "admit auth add check NAME --controller example.com/x -o FILE"
PROVIDER = "admit auth add provider NAME --class cloud.example.com -o FILE"


def a_check() -> Program:
    check = AdmissionCheckController("example.com/x")
    check.check(lambda _: Ready("ready"))
    return check


def a_provider() -> Program:
    provider = Provider("cloud.example.com")
    provider.requested(lambda _: Failed("none"))
    return provider


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["person", "nobody"])
async def url(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[str]:
    """A server that takes a program without a login as a person, and one that refuses it."""
    folder: Path = tmp_path_factory.mktemp(request.param)
    guest = "no_auth_user: person\n" if request.param == "person" else ""
    server = ConfiguredServer(folder, PERSON + guest + 'jetstream { store_dir: "STORE" }\n')
    await server.start()
    yield server.url()
    server.stop()


@pytest.mark.parametrize(
    ("program", "command"),
    [
        pytest.param(a_check(), CHECK, id="check"),
        pytest.param(a_provider(), PROVIDER, id="provider"),
    ],
)
async def test_a_program_without_a_login_ends_with_the_command_that_makes_one(
    url: str, program: Program, command: str
) -> None:
    with (
        pytest.raises(SetupError, match="ADMIT_NATS_CREDS=FILE") as ended,
        capture_logs() as logged,
    ):
        await within(program.serve(url))
    assert logged == []
    why = r"the login that it uses may not read its requests|nats://\S+ demands credentials"
    said = (
        rf"the \w+ \S+ has no login of its own, and ({why}): make one with `{re.escape(command)}`, "
    )
    assert re.match(said, str(ended.value))


async def test_a_check_with_the_login_of_an_admin_ends_with_the_command_that_makes_one(
    tmp_path: Path,
) -> None:
    key = new_key()
    admin = User(name="ada", role="admin", key=key.public)
    creds = tmp_path / "admin.creds"
    creds.write_text(credentials_text(admin, key.seed))
    creds.chmod(0o600)
    users = PERSON.replace("user: person, password: secret", f"nkey: {key.public}")
    server = ConfiguredServer(tmp_path / "server", users + 'jetstream { store_dir: "STORE" }\n')
    await server.start()
    try:
        with (
            pytest.raises(SetupError, match="ADMIT_NATS_CREDS=FILE") as ended,
            capture_logs() as logged,
        ):
            await within(a_check().serve(server.url(), creds=str(creds)))
    finally:
        server.stop()
    assert CHECK in str(ended.value)
    assert logged == []
