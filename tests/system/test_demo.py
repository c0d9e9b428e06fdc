"""`make demo`, as its target runs it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.bus

ROOT = Path(__file__).parents[2]


def test_the_demo_ends_by_itself_with_everything_finished() -> None:
    told = subprocess.run(
        [sys.executable, "-m", "admittance.cli.demo", "deploy/samples"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert told.returncode == 0, told.stdout + told.stderr
    assert "15 of 15 workloads finished" in told.stdout
    assert "made room and ran again: step-" in told.stdout
    assert "had to wait for quota" in told.stdout
    held = re.search(
        r"held +(sweep-\d) +by sweep-budget: the budget .*held until [0-9:]+Z", told.stdout
    )
    assert held is not None, told.stdout
    after = told.stdout[held.end() :]
    assert f"admitted  {held.group(1)}" in after  # and let go
    assert re.search(rf"was held by a check, and let go [\d.]+ s later: {held.group(1)}", after)
    assert "\033[" not in told.stdout  # nobody looks: plain text
