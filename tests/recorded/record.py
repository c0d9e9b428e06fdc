"""Records a data folder in the middle of a story: workloads in every phase, and ``kill -9``.

In ``tests/``: ``python -m recorded.record NAME`` writes, beside this file, ``NAME.tar.xz`` (the
data folder of `admit up`) and ``NAME.json`` (each workload as it stood, and which decisions could
be replayed).
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import nats
import yaml
from nats.aio.client import Client

from recorded.player import ADMIT, Player, Verdict, condition
from recorded.story import CONFIGURATION, NAMESPACE, OBJECTS, STEPS

HERE = Path(__file__).parent
IGNORED = frozenset({("admitted", "admitted"), ("evicted", "victim")})
"""One job never starts, the other does not stop when it is evicted."""
VERDICTS: dict[str, Verdict] = {
    "judged": {"state": "Ready", "message": "fine"},
    "retried": {"state": "Retry", "message": "not this week", "requeueAfterSeconds": 500_000},
    "rejected": {"state": "Rejected", "message": "never"},
    "low": {"state": "Ready", "message": "fine"},
}


async def _play(player: Player) -> None:
    async def apply(manifests: list[dict[str, Any]]) -> None:
        await player.admit("apply", "-f", "-", stdin=yaml.safe_dump_all(manifests))

    await apply(OBJECTS)
    first, second, third = STEPS
    await apply(first)
    for name in ("finished", "failed", "running", "admitted", "victim", "judged", "low", "booked"):
        await player.until(name, condition("Admitted"))
    for name in ("finished", "failed"):
        await player.finish(name, succeeded=name == "finished")
        await player.until(name, condition("Finished"))
    await player.until("uses-much", condition("Admitted"))
    await player.admit("finish", "workload", "uses-much", "-n", NAMESPACE)
    await apply(second)
    await player.admit("hold", "workload", "held", "-n", NAMESPACE)
    await player.admit("stop", "workload", "stopped", "-n", NAMESPACE)
    await player.until("victim", condition("Evicted"))
    await player.until("planner", lambda w: bool(w.get("status", {}).get("pendingPreemption")))
    await player.until("burst", condition("Evicted"))
    await apply(third)
    await asyncio.sleep(5)  # a refusal waits a second before it is stated


async def _record(name: str, folder: Path) -> None:
    (folder / "configuration.yaml").write_text(yaml.safe_dump(CONFIGURATION))
    data = folder / "data"
    log = (folder / "services.log").open("wb")
    up = await asyncio.create_subprocess_exec(
        ADMIT, "up", "--insecure", "--no-runner", "--port", "0", "--data-dir", str(data),
        "--config", str(folder / "configuration.yaml"),
        env={**os.environ, "ADMIT_CHECKPOINT_SECONDS": "5"},
        stdout=asyncio.subprocess.PIPE, stderr=log, start_new_session=True,
    )  # fmt: skip
    assert up.stdout is not None
    try:
        url = (await up.stdout.readline()).decode().split()[1]
        async with await nats.connect(url) as nc:
            player = Player(nc, url, verdicts=VERDICTS, ignored=IGNORED)
            await player.start()
            await _keep_the_log(nc)
            await _play(player)
            expected = await _as_it_stands(player)
    finally:
        os.killpg(up.pid, signal.SIGKILL)
        await up.wait()
        # The server outlives a killed `admit up`, in a session of its own.
        os.kill(json.loads((data / "nats.json").read_text())["pid"], signal.SIGKILL)
    (HERE / f"{name}.json").write_text(json.dumps(expected, indent=1, sort_keys=True) + "\n")
    with tarfile.open(HERE / f"{name}.tar.xz", "w:xz") as packed:
        for part in ("nats", "instance"):
            packed.add(data / part, arcname=f"data/{part}")


async def _keep_the_log(nc: Client) -> None:
    """Lifts the age limits: facts must not be too old when the recording is played."""
    for stream in ("ADMITTANCE", "ADMITTANCE_CHECKPOINTS"):
        info = json.loads((await nc.request(f"$JS.API.STREAM.INFO.{stream}")).data)
        config = {**info["config"], "max_age": 0}
        answer = await nc.request(f"$JS.API.STREAM.UPDATE.{stream}", json.dumps(config).encode())
        assert "error" not in json.loads(answer.data), answer.data


async def _as_it_stands(player: Player) -> dict[str, Any]:
    listed = json.loads(await player.admit("get", "workloads", "-n", NAMESPACE, "-o", "json"))
    decisions = []
    for line in (await player.admit("events", "-A", "-o", "json")).splitlines():
        event = json.loads(line)
        what = event["subject"].split(".")[2]
        if what in ("assigned", "preempted", "refused", "revoked", "planned"):
            sequence = event["sequence"]
            output = await player.admit("replay", "--from-log", str(sequence), "-o", "json")
            same = json.loads(output)["same"]
            decisions.append({"sequence": sequence, "kind": what, "same": same})
    items = listed["items"] if isinstance(listed, dict) else listed
    return {"workloads": {w["metadata"]["name"]: w for w in items}, "decisions": decisions}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        asyncio.run(_record(sys.argv[1], Path(made)))
