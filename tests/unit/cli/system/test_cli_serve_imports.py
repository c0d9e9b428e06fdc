"""`admit serve` imports its service before it waits for a server."""

from __future__ import annotations

import subprocess
import sys

SERVES = """
import asyncio, sys
from pathlib import Path
from admittance.cli.support.options import Call
from admittance.cli.up import up
from admittance.cli.up.options import Options
from admittance.services import SERVICES

async def connects(*_: object, **__: object) -> None:
    print("admittance.scheduler.service" in sys.modules)

print("admittance.scheduler.service" in sys.modules)
up.serve_one = connects
asyncio.run(up.serve(Call(), SERVICES["scheduler"], Options(Path("unused"))))
"""


def test_a_service_is_imported_before_it_connects() -> None:
    command = [sys.executable, "-c", SERVES]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert (ended.stdout.split(), ended.stderr) == (["False", "True"], "")
