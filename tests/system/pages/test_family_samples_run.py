"""The samples of concurrent admission, applied with the command, run as their first lines say."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from support.processes.fork_server import run_admit
from support.processes.forked_system import embedded

pytestmark = pytest.mark.bus

FAMILIES = Path(__file__).parents[3] / "deploy" / "samples" / "families"
GPU = "nvidia.com/gpu="


class Command:
    """`admit`, against one system."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def __call__(self, *arguments: str) -> str:
        done = await asyncio.to_thread(run_admit, "--nats", self._url, *arguments, limit=120)
        assert done.status == 0, done.err
        # The samples name an image; here their commands run as processes.
        warned = [line for line in done.err.splitlines() if line.startswith("warning")]
        assert all("no runner has a container engine" in line for line in warned), warned
        return done.out

    async def finished(self, name: str) -> set[str]:
        """The flavors that its pods printed in their last run, once it has finished."""
        await self("wait", "workload", name, "--for", "Finished", "--timeout", "100")
        output = await self("logs", "workload", name)
        return {line.rpartition(GPU)[2] for line in output.splitlines() if GPU in line}

    async def moves(self, name: str) -> int:
        """How often the job was stopped for a better variant."""
        output = await self("events", "--workload", name)
        return sum(" evicted " in line and "Migrating to" in line for line in output.splitlines())


def _with_time_to_move(folder: Path, number: int) -> str:
    """The file of a story. On a busy machine a job may end before it has moved for the second time:
    here the one that moves twice has more to do. The story writes its notes into ``folder``, so
    that no other system reads them."""
    text = (FAMILIES / f"story-{number}.yaml").read_text()
    file = folder / f"story-{number}.yaml"
    text = text.replace("-lt 13 ]", "-lt 30 ]").replace("${TMPDIR:-/tmp}", str(folder))
    file.write_text(text)
    return str(file)


@pytest.mark.scenario("D8", "D10", "D14")
async def test_every_sample_is_accepted_and_the_short_ones_run_as_described(
    tmp_path: Path,
) -> None:
    async with embedded("--insecure") as system:
        admit = Command(system.url)
        for number in range(1, 8):
            output = await admit("apply", "-f", _with_time_to_move(tmp_path, number))
            assert f"train-{number} created" in output
        for zone in "abc":
            name = f"train-3-variant-zone-{zone}"
            await admit("wait", "workload", name, "--for", "QuotaReserved", "--timeout", "20")
        await admit("approve", "workload", "train-3-variant-zone-b", "--as", "ada")
        assert await admit.finished("train-4") == {"zone-b"}
        for name, moves in (("train-1", 2), ("train-2", 1), ("train-5", 0), ("train-7", 1)):
            assert await admit.finished(name) == {"reservation"}, name
            assert await admit.moves(name) == moves, name
        assert "zone-b" in await admit("get", "workload", "train-3")
