"""Commands, a runner, a check and a provider in an account of their own, which creates nothing."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import AdmittanceError

from processes import Fleet, apply, queues
from servers import ConfiguredServer, within

pytestmark = [pytest.mark.bus, pytest.mark.asyncio(loop_scope="module")]

ADMIT = Path(sys.executable).parent / "admit"
NS = "ns"
SERVICE_IMPORTS = {
    "$JS.API.INFO": False,
    "$JS.API.DIRECT.GET.KV_admittance.$KV.admittance.*.*": False,
    "$JS.API.DIRECT.GET.KV_admittance.$KV.admittance.*.*.*": False,
    "admit.api.>": True,
    "admit.workload.*.*.*": False,
    "admit.check.reported.*.*.*": False,
}
"""By subject, whether a request may have several answers."""
STREAM_IMPORTS = (
    "$KV.admittance.*.*.*",
    "$KV.admittance.*.*",
    "admit.workload.*.*.*",
    "admit.check.*.*.*.*",
    "admit.provisioning.*.*.*.*",
)
USER = {
    "publish": (
        "$JS.API.INFO",
        *(
            f"$JS.API.DIRECT.GET.KV_admittance.$KV.admittance.{key}"
            for key in (
                f"*.{NS}.*",
                "clusterqueue.*",
                "localqueue.*",
                "resourceflavor.*",
                "admissioncheck.*",
            )
        ),
        *(
            f"admit.api.{what}.{NS}"
            for what in (
                "events",
                "explain",
                "fit",
                "logs",
                "objects",
                "pending",
                "queues",
                "settled",
            )
        ),
        *(
            f"admit.workload.{verb}.{NS}.*"
            for verb in (
                "submitted",
                "activated",
                "deactivated",
                "held",
                "released",
                "reprioritized",
                "deleted",
            )
        ),
    ),
    "subscribe": (
        "_INBOX.>",
        f"$KV.admittance.*.{NS}.*",
        f"admit.workload.*.{NS}.*",
        f"admit.check.*.*.{NS}.*",
        f"admit.provisioning.*.*.{NS}.*",
    ),
}


def configuration() -> str:
    """A server with the accounts CORE and OUT; OUT has only what crosses the border."""
    exports = [
        f'{{service: "{subject}"{", response: stream" if many else ""}}}'
        for subject, many in SERVICE_IMPORTS.items()
    ]
    exports += [f'{{stream: "{subject}"}}' for subject in STREAM_IMPORTS]
    imports = [
        f'{{service: {{account: CORE, subject: "{subject}"}}}}' for subject in SERVICE_IMPORTS
    ]
    imports += [
        f'{{stream: {{account: CORE, subject: "{subject}"}}}}' for subject in STREAM_IMPORTS
    ]
    users = [_user("user", USER)]
    return f"""
jetstream {{ store_dir: "STORE" }}
accounts {{
  CORE: {{
    jetstream: enabled
    users: [{{user: core, password: core}}]
    exports: [{_lines(exports)}]
  }}
  OUT: {{
    users: [{_lines(users)}]
    imports: [{_lines(imports)}]
  }}
}}
"""


def _user(name: str, allowed: dict[str, tuple[str, ...]]) -> str:
    lists = ", ".join(
        f"{what}: [{', '.join(f'{chr(34)}{one}{chr(34)}' for one in subjects)}]"
        for what, subjects in allowed.items()
    )
    return f"{{user: {name}, password: {name}, permissions: {{{lists}}}}}"


def _lines(items: list[str]) -> str:
    return "\n      ".join(["", *items])


class Outside:
    """A server with services in CORE, and programs and commands in OUT."""

    def __init__(self, server: ConfiguredServer, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self.services = Fleet(server.url("core:core"), folder)
        self.core: Bus

    async def admit(self, *words: str, user: str = "user", status: int = 0) -> str:
        """What the command prints as this user, after it ended with this status."""
        at = words.index("--") if "--" in words else len(words)
        command = [ADMIT, *words[:at], "-n", NS, *words[at:]]
        done = await asyncio.create_subprocess_exec(
            *command,
            env={**os.environ, "ADMIT_NATS_URL": self.server.url(f"{user}:{user}")},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await within(done.communicate(), 60)
        assert done.returncode == status, err.decode()
        return out.decode() if status == 0 else err.decode()

    async def consumers(self) -> set[str]:
        found = set()
        for stream in ("ADMITTANCE", "KV_admittance", "KV_admittance_claims"):
            names = await self.core.api(f"CONSUMER.NAMES.{stream}")
            found |= {f"{stream}/{one}" for one in names["consumers"] or ()}
        return found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def outside(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Outside]:
    folder = tmp_path_factory.mktemp("outside")
    server = ConfiguredServer(folder / "server", configuration())
    await server.start()
    found = Outside(server, folder)
    try:
        for service in ("workload-controller", "scheduler"):
            await found.services.start(service)
        found.core = await Bus.connect(server.url("core:core"), name="test")
        await apply(found.core, *queues("q", namespace=NS))
        yield found
        await found.core.close()
    finally:
        await found.services.stop()
        server.stop()


async def test_a_login_of_the_border_may_create_no_consumer(outside: Outside) -> None:
    bus = await Bus.connect(outside.server.url("user:user"), name="test")
    for stream in ("ADMITTANCE", "KV_admittance"):
        with pytest.raises(AdmittanceError):
            await bus.api(f"CONSUMER.CREATE.{stream}", {"stream_name": stream, "config": {}})
        with pytest.raises(AdmittanceError):
            await bus.api(f"STREAM.MSG.GET.{stream}", {"seq": 1})
    await bus.close()


async def test_commands_of_users_work_outside(outside: Outside) -> None:
    before = await outside.consumers()
    admit = outside.admit
    said = await admit("submit", "-q", "lq-q", "--name", "one", "--cpu", "1", "--", "true")
    assert "one created" in said
    assert "one" in await admit("get", "workloads")
    assert "one" in await admit("get", "workload", "one", "-o", "json")
    await admit("wait", "workload", "one", "--for", "Admitted", "--timeout", "30")
    assert "Admitted" in await admit("explain", "workload", "one")
    assert "Last events" in await admit("describe", "workload", "one")
    assert "admitted" in await admit("events", "--workload", "one")
    assert "lq-q" in await admit("get", "localqueues")
    await admit("get", "pending")
    await admit("submit", "-q", "lq-q", "--name", "two", "--cpu", "9", "--anyway", "--", "true")
    for verb in ("stop", "activate", "hold", "release"):
        await admit(verb, "workload", "two")
    await admit("priority", "workload", "two", "7")
    assert "deleted" in await admit("delete", "workload", "two")
    error = await admit("get", "workload", "two", status=1)
    assert "not found" in error
    assert await outside.consumers() == before
