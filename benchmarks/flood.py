"""How long a flood of one namespace delays the single job of another one, on a locked server.

``python -m benchmarks.flood [--flood 20000] [--jobs 15] [--containers 1]``

The flood is published twice: straight to the log, as by a client in the account of the services,
and by a user, whose facts enter the log in turn by namespace. Each time a process of its own sends
all submissions at once. Until the last of them is applied, a single job with free quota is
submitted in another namespace every 100 ms; the time until each is admitted is compared with that
before the flood.

With ``--flood 30 --containers 5500`` the flood is 30 manifests of 460 KB, and only the user sends
them.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any, Final

import msgspec

from admittance.access.users import User
from admittance.bench import system
from admittance.bench.run import loop_factory, main_of
from admittance.bench.system import with_load_user
from admittance.events.requests import Apply, ApplyReply, Settled, SettledReply
from admittance.runtime import chance, clock
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.errors import SetupError, Unavailable
from admittance.runtime.nats.connection_options import ConnectionOptions
from admittance.runtime.nats_server.auth_store import AuthStore

VERSION: Final = "kueue.x-k8s.io/v1beta2"
LIMIT: Final = 300.0
PART: Final = 1000
EVERY: Final = 0.1
"""Seconds between two single jobs during the flood."""
PREFIXES: Final = {"log": "admit.workload.submitted", "turns": "admit.user.{user}.submitted"}
"""By way: the first tokens of the subject of a submission."""


def _queues(name: str, cpu: int) -> list[dict[str, Any]]:
    group = {
        "coveredResources": ["cpu"],
        "flavors": [{"name": "default", "resources": [{"name": "cpu", "nominalQuota": cpu}]}],
    }
    return [
        {"apiVersion": VERSION, "kind": "ResourceFlavor", "metadata": {"name": "default"}},
        {
            "apiVersion": VERSION,
            "kind": "ClusterQueue",
            "metadata": {"name": name},
            "spec": {"namespaceSelector": {}, "resourceGroups": [group]},
        },
        {
            "apiVersion": VERSION,
            "kind": "LocalQueue",
            "metadata": {"name": "lq", "namespace": name},
            "spec": {"clusterQueue": name},
        },
    ]


def _submission(way: str, user: str, namespace: str, name: str, containers: int = 1) -> Outgoing:
    each = {"command": ["true"], "resources": {"requests": {"cpu": "1"}}}
    spec = {
        "restartPolicy": "Never",
        "containers": [{"name": f"c{number}", **each} for number in range(containers)],
    }
    manifest = {
        "apiVersion": VERSION,
        "kind": "Workload",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "queueName": "lq",
            "podSets": [{"name": "main", "count": 1, "template": {"spec": spec}}],
        },
    }
    fact = {"namespace": namespace, "name": name, "workload": manifest}
    subject = f"{PREFIXES[way].format(user=user)}.{namespace}.{name}"
    return Outgoing(subject, msgspec.json.encode(fact), {"Nats-Msg-Id": f"{way}-{name}"})


async def _flood(url: str, creds: str, way: str, count: int, containers: int) -> None:
    """Sends all submissions at once, and waits until all are acknowledged."""
    bus = await Bus.connect(url, name="flood", access=ConnectionOptions(creds=creds))
    names = [f"{way}-{n}" for n in range(count)]
    messages = [_submission(way, "ada", "flood", name, containers) for name in names]
    parts = [messages[at : at + PART] for at in range(0, count, PART)]
    sys.stdout.write("begin\n")
    sys.stdout.flush()
    outcomes = await asyncio.gather(*(bus.publish_all(part, timeout=LIMIT) for part in parts))
    refused = [one for part in outcomes for one in part if not isinstance(one, int)]
    await bus.close()
    if refused:
        raise SetupError(f"{len(refused)} submissions were refused: {refused[0]}")
    stored = (one for part in outcomes for one in part if isinstance(one, int))
    sys.stdout.write(f"{max(stored)}\n")


class Quiet:
    """The jobs of the other namespace. ``core`` hears what is admitted."""

    def __init__(self, core: Bus, bob: Bus) -> None:
        self._core = core
        self._bob = bob
        self._admitted: dict[str, asyncio.Event] = {}

    async def start(self) -> None:
        await self._core.nc.listen("admit.workload.admitted.quiet.*", self._hear)

    def _hear(self, subject: bytes, _reply: bytes, _data: bytes, _headers: bytes) -> None:
        waits = self._admitted.get(subject.decode().split(".")[-1])
        if waits is not None:
            waits.set()

    async def job(self, way: str) -> float:
        """Submits one job; returns the milliseconds until it is admitted."""
        name = chance.token_hex(6)
        admitted = self._admitted[name] = asyncio.Event()
        bus = self._bob if way == "turns" else self._core
        began = clock.monotonic()
        await bus.publish(_submission(way, "bob", "quiet", name), timeout=LIMIT)
        async with asyncio.timeout(LIMIT):
            await admitted.wait()
        return (clock.monotonic() - began) * 1000


async def _measured(flood: int, jobs: int, containers: int) -> list[str]:
    lines = []
    for way in PREFIXES if containers == 1 else ["turns"]:
        with tempfile.TemporaryDirectory(prefix="admit-bench-") as name:
            lines.append(await _way(Path(name), way, flood, jobs, containers))
    return lines


async def _way(folder: Path, way: str, flood: int, jobs: int, containers: int) -> str:
    data = folder / "data"
    arguments = ["up", "--no-runner", "--port", "0", "--data-dir", str(data)]
    child = await system.start(arguments, folder / "log")
    try:
        url = await child.ready()
        store = AuthStore(data / "auth")
        for user, namespace in (("ada", "flood"), ("bob", "quiet")):
            person = User(name=user, role="user", key="", namespaces=(namespace,))
            store.add(person, folder / f"{user}.creds")
        access = await with_load_user(data / "auth", url)
        core = await Bus.connect(url, name="benchmark", access=access)
        bob = await Bus.connect(
            url, name="bob", access=ConnectionOptions(creds=str(folder / "bob.creds"))
        )
        try:
            await _apply(core, [*_queues("flood", 1), *_queues("quiet", 1000)[1:]])
            quiet = Quiet(core, bob)
            await quiet.start()
            before = [await quiet.job(way) for _ in range(jobs)]
            creds = str(folder / "ada.creds") if way == "turns" else str(access.creds)
            words = ["--flooder", url, creds, way, "--flood", str(flood)]
            words += ["--containers", str(containers)]
            flooding = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "benchmarks.flood", *words), stdout=asyncio.subprocess.PIPE
            )
            assert flooding.stdout is not None
            began_line = await flooding.stdout.readline()
            began = clock.monotonic()
            told = asyncio.create_task(flooding.communicate())
            running: list[asyncio.Task[float]] = []
            while not told.done():
                running.append(asyncio.create_task(quiet.job(way)))
                await asyncio.wait([told], timeout=EVERY)
            last, _ = await told
            if not began_line or flooding.returncode:
                raise SetupError("the flood ended with an error")
            applied = asyncio.create_task(_settled(core, int(last)))
            while not applied.done():
                running.append(asyncio.create_task(quiet.job(way)))
                await asyncio.wait([applied], timeout=EVERY)
            await applied
            during = await asyncio.gather(*running)
            took = clock.monotonic() - began
        finally:
            await bob.close()
            await core.close()
    finally:
        await child.stop()
    delay = median(during) - median(before)
    size = f" of {containers:,} containers" if containers > 1 else ""
    return (
        f"{way:<5}  {flood} submissions at once{size}: a single job of another namespace is "
        f"admitted after {median(before):.1f} ms without and {median(during):.1f} ms with the "
        f"flood, median of {len(during)} jobs in {took:.1f} s, longest {max(during):.0f} ms: "
        f"delayed by {delay:.0f} ms"
    )


async def _settled(core: Bus, sequence: int) -> None:
    """Waits until the fact at the sequence is applied."""
    data = msgspec.json.encode(Settled(sequence=sequence))
    async with asyncio.timeout(LIMIT):
        while True:
            try:
                answer = await core.request("admit.api.settled", data, 60)
            except Unavailable:
                continue
            if not msgspec.json.decode(answer, type=SettledReply).error:
                return


async def _apply(core: Bus, objects: list[dict[str, Any]]) -> None:
    raws = tuple(msgspec.Raw(msgspec.json.encode(one)) for one in objects)
    data = msgspec.json.encode(Apply(objects=raws))
    for _ in range(50):
        try:
            answer = await core.request("admit.api.apply", data, 10)
        except Unavailable:
            await asyncio.sleep(0.1)
            continue
        if error := msgspec.json.decode(answer, type=ApplyReply).error:
            raise SetupError(error)
        return
    raise SetupError("no answer to admit.api.apply")


def command() -> list[str]:
    """Runs the benchmark with the options of the command line; returns the lines to print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--flood", type=int, default=20_000, help="submissions at once")
    parser.add_argument("--jobs", type=int, default=15, help="single jobs before the flood")
    parser.add_argument("--containers", type=int, default=1, help="of a submission of the flood")
    parser.add_argument("--flooder", nargs=3, metavar=("URL", "CREDS", "WAY"), default=None)
    found = parser.parse_args()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        if found.flooder:
            url, creds, way = found.flooder
            runner.run(_flood(url, creds, way, found.flood, found.containers))
            return []
        return runner.run(_measured(found.flood, found.jobs, found.containers))


if __name__ == "__main__":
    main_of(command)
