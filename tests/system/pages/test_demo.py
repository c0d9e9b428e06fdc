"""`make demo`, as its target runs it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.bus

ROOT = Path(__file__).parents[3]


def test_the_demo_ends_with_all_workloads_finished() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tools.demo", "deploy/samples"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "18 of 18 workloads finished" in done.stdout
    assert "made room and ran again: step-" in done.stdout
    assert "had to wait for quota" in done.stdout
    held = re.search(
        r"held +(sweep-\d) +by sweep-budget: the budget .*held until [0-9:]+Z", done.stdout
    )
    assert held is not None, done.stdout
    after = done.stdout[held.end() :]
    assert f"admitted  {held.group(1)}" in after  # and let go
    assert re.search(rf"was held by a check, and let go [\d.]+ s later: {held.group(1)}", after)
    moved = re.search(
        r"1 started where there was room, spot, after \d+ ms, and moved up: "
        r"(?:on-demand [\d.]+ s later, )?reservation [\d.]+ s later: train-1",
        done.stdout,
    )
    assert moved is not None, done.stdout
    assert re.search(r"evicted +train-1 +from (spot|on-demand), to move up", done.stdout)
    assert "step 13 on nvidia.com/gpu=reservation" in done.stdout  # it went on where it was
    assert "step 1 on nvidia.com/gpu" not in done.stdout
    assert "admitted  train-1-variant" not in done.stdout
    story = [r"asked +burst +attempt 1 of check spot-machines"]
    if re.search(r"held +burst", done.stdout):
        story += [
            r"held +burst +by spot-machines: .*: pool spot-rack has no room",
            r"asked +burst +attempt 2 of check spot-machines",
        ]
    else:
        # On a slow machine the other job has ended, and the pool has room, before burst asks.
        story.insert(0, r"finished +other-on-spot")
    story += [
        r"there +burst +booked in pool spot-rack",
        r"admitted +burst",
    ]
    if 'workload "burst" is Finished: `admit activate` changes nothing' not in done.stdout:
        # On a slow machine the job ends before its machines are taken away.
        story += [
            r"revoked +burst +machines of pool spot-rack were taken away",
            r"rejected +burst +Deactivated due to AdmissionCheck in Rejected state",
            # On a slow machine the reserved machines are free before the job waits again.
            r"there +burst +booked in pool spot-rack|admitted +burst +in bursting",
        ]
    story.append(r"finished +burst")
    rest = done.stdout
    for step in story:
        match = re.search(step, rest)
        assert match is not None, f"{step}\n{done.stdout}"
        rest = rest[match.end() :]
    assert "1 lost its machines, and ran again on others: burst" in done.stdout
    assert "\033[" not in done.stdout  # no terminal: plain text
