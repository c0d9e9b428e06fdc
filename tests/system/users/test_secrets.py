"""No secret that a program is given is printed, logged, published or stored."""

from __future__ import annotations

import asyncio
import base64
import json
from functools import partial
from pathlib import Path

import pytest

from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.streams import all_streams
from admittance.runtime.errors import BusRefused
from admittance.runtime.nats.connection_options import ConnectionOptions
from support.cluster import Cluster, Service
from support.nats.logins import NKey, write_secret
from support.processes.fork_server import run_admit
from support.requests import becomes, eventually
from support.servers import ConfiguredServer

pytestmark = pytest.mark.bus

QUEUES = """
{apiVersion: kueue.x-k8s.io/v1beta2, kind: ResourceFlavor, metadata: {name: f}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: q}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: f, resources: [{name: cpu, nominalQuota: 2}]}]
---
{apiVersion: kueue.x-k8s.io/v1beta2, kind: LocalQueue, metadata: {name: q, namespace: default},
 spec: {clusterQueue: q}}
"""
PASSWORDS = ("planted-in-url", "planted-in-variable", "planted-in-file")
OTHERS = ("planted-wrong", "planted-token", "planted-cloud-key")


class Story:
    """A server with users of each kind, services that log in in each way, and all that is said."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.key, self.stranger = NKey(), NKey()
        self.secrets = [*PASSWORDS, *OTHERS, self.key.seed, self.stranger.seed]
        users = [f'{{user: u{i}, password: "{password}"}}' for i, password in enumerate(PASSWORDS)]
        users.append(f"{{nkey: {self.key.public}}}")
        logins = f"authorization {{ users: [{', '.join(users)}] }}"
        config = f'{logins}\njetstream {{ store_dir: "STORE" }}\n'
        self.server = ConfiguredServer(folder / "server", config)
        self.creds = write_secret(folder / "good.nk", self.key.seed)
        self.password_file = write_secret(folder / "password", PASSWORDS[2])
        self.said = ""

    def url(self, user: str = "") -> str:
        return self.server.url(user)

    async def start(self) -> Cluster:
        await self.server.start()
        cluster = Cluster(self.url(), self.folder)
        planted = {"AWS_SECRET_ACCESS_KEY": OTHERS[2]}
        await cluster.start(
            "workload-controller", ADMIT_NATS_URL=self.url(f"u0:{PASSWORDS[0]}"), **planted
        )
        await cluster.start(
            "scheduler", ADMIT_NATS_USER="u1", ADMIT_NATS_PASSWORD=PASSWORDS[1], **planted
        )
        await cluster.start("retry-timer", ADMIT_NATS_CREDS=self.creds)
        await cluster.start(
            "runner",
            ADMIT_NATS_USER="u2",
            ADMIT_NATS_PASSWORD_FILE=self.password_file,
            ADMIT_NATS_TOKEN="",
            **planted,
        )
        return cluster

    async def admit(self, *words: str, **env: str) -> int:
        """Runs a command, keeps what it says, and returns its status."""
        config = {"XDG_CONFIG_HOME": str(self.folder), "XDG_DATA_HOME": str(self.folder)}
        planted = {**config, "AWS_SECRET_ACCESS_KEY": OTHERS[2], **env}
        done = await asyncio.to_thread(run_admit, *words, env=planted)
        self.said += f"$ {words[0]}\n{done.out}{done.err}"
        return done.status

    async def stored(self) -> str:
        """Every message of every stream, with its headers."""
        bus = await Bus.connect(self.url(), name="test", access=ConnectionOptions(creds=self.creds))
        secrets = []
        try:
            for stream in all_streams():
                after = 0
                while True:
                    ask = {"seq": after + 1, "next_by_subj": ">"}
                    try:
                        answer = await bus.api(f"STREAM.MSG.GET.{stream.name}", ask)
                    except BusRefused:
                        break
                    message = answer["message"]
                    after = message["seq"]
                    parts = (message.get("hdrs", ""), message.get("data", ""))
                    secrets.append(b"".join(map(base64.b64decode, parts)).decode(errors="replace"))
        finally:
            await bus.close()
        assert len(secrets) > 10
        return "\n".join(secrets)


def process_list() -> str:
    commands = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    return b"\n".join(commands).decode(errors="replace")


def text_in(folder: Path) -> str:
    """All that services keep in their data folders."""
    files = [path for path in folder.glob("data-*/**/*") if path.is_file()]
    return "\n".join(path.read_bytes().decode(errors="replace") for path in files)


async def _is_refused(service: Service) -> bool:
    return "refuses" in service.log


async def test_planted_secrets_are_nowhere(tmp_path: Path) -> None:
    story = Story(tmp_path)
    cluster = await story.start()
    good = {"ADMIT_NATS_URL": story.url(), "ADMIT_NATS_CREDS": story.creds}
    in_url = {"ADMIT_NATS_URL": story.url(f"u0:{PASSWORDS[0]}")}
    in_variable = {
        "ADMIT_NATS_URL": story.url(),
        "ADMIT_NATS_USER": "u1",
        "ADMIT_NATS_PASSWORD": PASSWORDS[1],
    }
    queues = tmp_path / "queues.yaml"
    queues.write_text(QUEUES)
    try:
        await becomes(lambda: story.admit("apply", "-f", str(queues), **good), 0)
        script = "env; cat /proc/$PPID/environ"
        job = ("submit", "-q", "q", "--name", "job", "--wait", "--", "sh", "-c", script)
        assert await story.admit(*job, **in_url) == 0
        listed = process_list()
        assert await story.admit("logs", "workload", "job", **in_variable) == 0
        for words in (
            ("describe", "wl", "job"),
            ("explain", "wl", "job"),
            ("events", "--workload", "job", "-o", "json"),
            ("get", "wl", "-o", "yaml"),
            ("doctor",),
            ("doctor", "-o", "json"),
            ("context", "list"),
        ):
            await story.admit(*words, **in_url)
        # Logins that the server refuses, and files that cannot be used.
        stranger = write_secret(tmp_path / "stranger.nk", story.stranger.seed)
        damaged = write_secret(tmp_path / "damaged.nk", f"{story.stranger.seed[:-2]}AA")
        story.secrets.append(story.stranger.seed[:50])
        opened = tmp_path / "open.nk"
        opened.write_text(story.stranger.seed)
        opened.chmod(0o644)
        wrong = {"ADMIT_NATS_URL": story.url(f"u0:{OTHERS[0]}")}
        broken = {"ADMIT_NATS_URL": f"nats://u0:{OTHERS[0]}@[::1"}
        token = {"ADMIT_NATS_URL": story.url(), "ADMIT_NATS_TOKEN": OTHERS[1]}
        both = {**good, "ADMIT_NATS_TOKEN": OTHERS[1]}
        refused = [wrong, broken, token, both, {**in_variable, "ADMIT_NATS_PASSWORD": OTHERS[0]}]
        refused += [
            {**good, "ADMIT_NATS_CREDS": str(creds)} for creds in (stranger, damaged, opened)
        ]
        for env in refused:
            for words in (("get", "wl"), ("doctor",)):
                assert await story.admit(*words, ADMIT_DEBUG="1", **env) != 0
        for number, login in enumerate(
            ({"USER": "u1", "PASSWORD": OTHERS[0]}, {"TOKEN": OTHERS[1]}, {"CREDS": stranger})
        ):
            env = {f"ADMIT_NATS_{name}": value for name, value in login.items()}
            waiting = await cluster.start("retry-timer", f"refused-{number}", **env)
            await eventually(partial(_is_refused, waiting))
        stored = await story.stored()
        story.server.stop()
        await story.admit("get", "wl", **in_url)
    finally:
        await cluster.stop()
        story.server.stop()
    logs = "\n".join(process.log for process in cluster.processes)
    assert json.dumps("job_starting")[1:-1] in logs
    kept = text_in(tmp_path)
    assert "ADMITTANCE_RUN" in kept
    for place, text in (
        ("commands", story.said),
        ("streams", stored),
        ("logs", logs),
        ("data folders", kept),
        ("processes", listed),
    ):
        for secret in story.secrets:
            lines = [line for line in text.splitlines() if secret in line]
            assert not lines, f"{place}: {secret}: {lines[0]}"
