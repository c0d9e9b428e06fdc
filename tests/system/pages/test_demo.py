"""`make demo`, as its target runs it."""

from __future__ import annotations

import asyncio
import http.client
import os
import re
import signal
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

pytestmark = pytest.mark.bus

ROOT = Path(__file__).parents[3]


LIMIT = 280


async def played() -> tuple[int, str, int]:
    """The exit status of the demo and what it printed. It is left standing; the last link signs in,
    with this status; then Ctrl-C ends it."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tools.demo", "deploy/samples", "--keep"),
        cwd=ROOT,
        env={**os.environ, "ADMIT_NO_WEB": ""},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None
    printed, signed_in = "", 0
    try:
        async with asyncio.timeout(LIMIT):
            async for line in process.stdout:
                printed += line.decode()
                if line.startswith(b"The story stands"):
                    signed_in = await asyncio.to_thread(status_of, links_of(printed)[-1])
                    process.send_signal(signal.SIGINT)
            return await process.wait(), printed, signed_in
    finally:
        if process.returncode is None:
            process.terminate()


def links_of(printed: str) -> list[str]:
    return re.findall(r"http://\S+/#[0-9a-f]{32}", printed)


def status_of(link: str) -> int:
    """The status with which the page signs in by the link."""
    parts = urlsplit(link)
    connection = http.client.HTTPConnection(parts.netloc, timeout=30)
    connection.request("POST", "/signin", f"code={parts.fragment}")
    status = connection.getresponse().status
    connection.close()
    return status


def test_the_demo_ends_with_all_workloads_finished_and_stands_until_ctrl_c() -> None:
    status, printed, signed_in = asyncio.run(played())
    assert status == 0, printed
    assert re.search(r"^  web http://", printed, re.MULTILINE)
    assert (len(set(links_of(printed))), signed_in) == (2, 303), printed
    assert "18 of 18 workloads finished" in printed
    assert "made room and ran again: step-" in printed
    assert "had to wait for quota" in printed
    held = re.search(
        r"held +(sweep-\d) +by sweep-budget: the budget .*held until [0-9:]+Z", printed
    )
    assert held is not None, printed
    after = printed[held.end() :]
    assert f"admitted  {held.group(1)}" in after  # and let go
    assert re.search(rf"was held by a check, and let go [\d.]+ s later: {held.group(1)}", after)
    moved = re.search(
        r"1 started where there was room, spot, after \d+ ms, and moved up: "
        r"(?:on-demand [\d.]+ s later, )?reservation [\d.]+ s later: train-1",
        printed,
    )
    assert moved is not None, printed
    assert re.search(r"evicted +train-1 +from (spot|on-demand), to move up", printed)
    assert "step 13 on nvidia.com/gpu=reservation" in printed  # it went on where it was
    assert "step 1 on nvidia.com/gpu" not in printed
    assert "admitted  train-1-variant" not in printed
    story = [r"asked +burst +attempt 1 of check spot-machines"]
    if re.search(r"held +burst", printed):
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
    if 'workload "burst" is Finished: `admit activate` changes nothing' not in printed:
        # On a slow machine the job ends before its machines are taken away.
        story += [
            r"revoked +burst +machines of pool spot-rack were taken away",
            r"rejected +burst +Deactivated due to AdmissionCheck in Rejected state",
            # On a slow machine the reserved machines are free before the job waits again.
            r"there +burst +booked in pool spot-rack|admitted +burst +in bursting",
        ]
    story.append(r"finished +burst")
    rest = printed
    for step in story:
        match = re.search(step, rest)
        assert match is not None, f"{step}\n{printed}"
        rest = rest[match.end() :]
    assert "1 lost its machines, and ran again on others: burst" in printed
    assert "\033[" not in printed  # no terminal: plain text
