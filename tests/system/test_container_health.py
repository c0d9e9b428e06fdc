"""The health check of a container asks only its own instance."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import time
from pathlib import Path

import pytest

from admittance.cli.bench.system import embedded
from admittance.cli.up.health import why_not_ready
from admittance.events.names import token
from admittance.events.requests import HealthReply
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import NoServer
from admittance.runtime.process import health
from admittance.runtime.process.settings import Settings
from support.servers import until

pytestmark = pytest.mark.bus


async def test_a_ready_service_of_this_host_is_well_and_a_missing_one_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with embedded("--insecure", "--no-runner") as system:
        here = socket.gethostname()
        assert await why_not_ready("scheduler", system.url, host=here) == ""
        monkeypatch.setattr("admittance.cli.up.health.PATIENCE", 0.5)
        assert await why_not_ready("runner", system.url, host=here) == "runner does not answer"
        elsewhere = await why_not_ready("scheduler", system.url, host="elsewhere")
        assert elsewhere == "scheduler does not answer"


async def test_the_health_check_reports_why_a_service_is_not_ready() -> None:
    def told() -> HealthReply:
        return HealthReply(
            service="digger",
            instance=instance,
            ready=True,
            details=health.trouble_details("no spade"),
        )

    here = socket.gethostname()
    instance = f"{token(here)}-1"
    async with embedded("--insecure", "--no-runner") as system:
        bus = await Bus.connect(system.url, name="digger")
        async with health.answer_queries(bus, "digger", instance, told):
            assert (
                await why_not_ready("digger", system.url, host=here)
                == "digger is not ready: no spade"
            )
        await bus.close()


async def test_without_a_server_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(NoServer, match="nothing listens"):
        await why_not_ready("scheduler", "nats://127.0.0.1:1", host="here")


# The file that the containers' check reads. ------------------------------------------------

SCRIPT = Path(__file__).parents[2] / "deploy" / "health.sh"


def checked(file: Path) -> tuple[int, str]:
    """Exit status and standard error of the check."""
    told = subprocess.run(
        ["sh", str(SCRIPT)],
        env={**os.environ, "ADMIT_HEALTH_FILE": str(file)},
        capture_output=True,
        text=True,
        check=False,
    )
    return told.returncode, told.stderr.strip()


@pytest.mark.parametrize(
    ("seconds_left", "reason", "said"),
    [
        pytest.param(60, "", "", id="ready"),
        pytest.param(60, "no $spade; `date`", "no $spade; `date`", id="in trouble"),
        pytest.param(-1, "", "no sign of life from the service", id="silent"),
        pytest.param(None, "", "the service has not said yet how it is", id="not begun"),
    ],
)
def test_the_container_check_reports_the_state_of_the_service(
    tmp_path: Path, seconds_left: int | None, reason: str, said: str
) -> None:
    file = tmp_path / "health"
    if seconds_left is not None:
        file.write_text(f"{int(time.time()) + seconds_left} {reason}\n")
    assert checked(file) == (1 if said else 0, said)


async def test_a_service_keeps_the_file_of_its_health(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "EVERY_SECONDS", 0.05)
    file = tmp_path / "health"
    trouble = [""]

    def told() -> HealthReply:
        details = health.trouble_details(trouble[0])
        return HealthReply(service="digger", instance="one", ready=True, details=details)

    async with embedded("--insecure", "--no-runner") as system:
        bus = await Bus.connect(system.url, name="digger")
        settings = Settings(service="digger", instance="one")
        async with health.answer_queries(bus, "digger", "one", told):
            keeping = asyncio.create_task(health.write_health_file(bus, settings, file))
            await until(file.exists)
            assert checked(file) == (0, "")
            trouble[0] = "no spade"
            await until(lambda: checked(file) == (1, "digger is not ready: no spade"))
        await bus.close()
        await until(lambda: checked(file) == (1, "no connection to the bus"))
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
    assert not file.exists()
