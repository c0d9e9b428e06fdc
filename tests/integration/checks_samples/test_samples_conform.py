"""Every sample follows the protocol: the conformance kit finds no fault."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from sample_programs import SAMPLES

from admittance.conformance.check_kit import CheckKitOptions, CheckKitReport, run_check_kit
from admittance.conformance.kit import HEARTBEAT_SECONDS
from admittance.runtime.bus.bus import Bus
from support.conformance_runs import assert_passed, run_kit, shorten_waits
from support.servers import TestServer

pytestmark = pytest.mark.bus

NOWHERE = "http://127.0.0.1:1"
TRIALS: dict[str, tuple[str, list[str], dict[str, Any]]] = {
    "allowance": (
        "example.com/allowance",
        [sys.executable, "allowance.py"],
        {"starts": 1000, "perSeconds": 5},
    ),
    "approval": ("admittance.dev/approval", [sys.executable, "approval.py"], {}),
    "backoff": ("example.com/backoff", [sys.executable, "backoff.py"], {"url": NOWHERE}),
    "budget": (
        "example.com/budget",
        [sys.executable, "budget.py"],
        {"prometheus": NOWHERE, "query": "spent", "limits": {}},
    ),
    "shell": ("example.com/freeze", ["bash", "freeze.sh"], {}),
}


async def test_every_sample_passes_the_conformance_kit(
    bus: Bus, nats_server: TestServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert set(TRIALS) == {folder.parent.name for folder in SAMPLES.glob("*/manifests.yaml")}
    monkeypatch.setenv("ADMIT_DATA_DIR", str(tmp_path))
    shorten_waits(monkeypatch, HEARTBEAT_SECONDS=HEARTBEAT_SECONDS)

    async def report(sample: str) -> CheckKitReport:
        controller, command, parameters = TRIALS[sample]
        options = CheckKitOptions(
            controller=controller,
            check=sample,
            parameters=parameters,
            timeout=20.0,
            first_timeout=20.0,
            command=(command[0], str(SAMPLES / sample / command[1])),
        )
        return await run_kit(run_check_kit, bus, nats_server.url, options)

    # All at once: mostly they wait, to see that nothing more is said.
    reports = await asyncio.gather(*map(report, TRIALS))
    for sample, kit_report in zip(TRIALS, reports, strict=True):
        # The check in shell has no durable, so there is nothing to acknowledge.
        durable = () if sample == "shell" else ("acknowledges",)
        assert_passed(kit_report, ("answers", *durable, "ends"))
