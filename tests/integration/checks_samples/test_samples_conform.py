"""Every sample obeys the protocol: `admit check-test` finds no fault."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from sample_programs import ADMIT, SAMPLES

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


async def tried(folder: Path, sample: str) -> tuple[int | None, str]:
    """Exit status of `admit check-test`, and what it found."""
    controller, command, parameters = TRIALS[sample]
    given = folder / f"{sample}.json"
    given.write_text(json.dumps(parameters))
    process = await asyncio.create_subprocess_exec(
        *(str(ADMIT), "check-test", controller, "--embedded", "--parameters", str(given)),
        *("--", command[0], str(SAMPLES / sample / command[1])),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "ADMIT_DATA_DIR": str(folder)},
    )
    told, _ = await asyncio.wait_for(process.communicate(), 120)
    return process.returncode, told.decode()


async def test_every_sample_passes_the_conformance_kit(tmp_path: Path) -> None:
    assert set(TRIALS) == {folder.parent.name for folder in SAMPLES.glob("*/manifests.yaml")}
    # All at once: mostly they wait, to see that nothing more is said.
    found = await asyncio.gather(*(tried(tmp_path, sample) for sample in TRIALS))
    for status, told in found:
        assert status == 0, told
