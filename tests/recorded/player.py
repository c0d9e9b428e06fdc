"""Plays the programs around the system in a recorded story: the runner and a check controller.

Only the command `admit` and the bus are used, so it serves any version.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg

from recorded.story import NAMESPACE, PLAYED_CHECKS
from support.processes.fork_server import run_admit

ADMIT = Path(sys.executable).with_name("admit")

Verdict = dict[str, Any]
"""The fields of a `check.reported` beside workload, check and cycle."""


class Player:
    """Acts as the runner of a recorded story, and as the controller of the checks `PLAYED_CHECKS`.
    Controllers of the system answer the other checks.

    ``verdicts``: by workload; a workload that is not named gets ``otherwise``, or no verdict.
    ``ignored``: facts that the runner does not act on, as ("admitted", workload). ``creds``: the
    credentials file of its commands.
    """

    def __init__(
        self,
        nc: Client,
        url: str,
        *,
        verdicts: dict[str, Verdict],
        otherwise: Verdict | None = None,
        ignored: frozenset[tuple[str, str]] = frozenset(),
        creds: str = "",
    ) -> None:
        self.nc = nc
        self._creds = creds
        self.url = url
        self.running: dict[str, int] = {}
        """The revision of the admission, by workload."""
        self._verdicts = verdicts
        self._otherwise = otherwise
        self._ignored = ignored
        self._seen: dict[str, int] = {}
        """The revision of the newest fact acted on, by workload."""

    async def start(self) -> None:
        """Subscribes the subjects of facts and check requests."""
        await self.nc.subscribe("admit.workload.*.*.*", cb=self._on_message)
        await self.nc.subscribe("admit.check.requested.*.*.*", cb=self._on_message)
        await self.nc.flush()

    async def catch_up(self) -> None:
        """Acts on the newest facts that the log holds for each workload, in their order."""
        filters = ("admit.workload.admitted", "admit.workload.evicted", "admit.check.requested.*")
        newest = []
        for pattern in filters:
            asked = json.dumps({"subjects_filter": f"{pattern}.{NAMESPACE}.*"}).encode()
            answer = await self.nc.request("$JS.API.STREAM.INFO.ADMITTANCE", asked)
            for subject in json.loads(answer.data)["state"].get("subjects", {}):
                wanted = json.dumps({"last_by_subj": subject}).encode()
                msg = await self.nc.request("$JS.API.DIRECT.GET.ADMITTANCE", wanted)
                newest.append((int((msg.headers or {})["Nats-Sequence"]), subject, msg.data))
        for _, subject, data in sorted(newest):
            await self._act(subject, data)

    async def _on_message(self, msg: Msg) -> None:
        await self._act(msg.subject, msg.data)

    async def _act(self, subject: str, data: bytes) -> None:
        what, name = subject.split(".")[2], subject.rsplit(".", 1)[-1]
        if what not in ("admitted", "evicted", "requested") or (what, name) in self._ignored:
            return
        fact = json.loads(data)
        if what == "requested":
            if fact["check"] not in PLAYED_CHECKS:
                return
            verdict = self._verdicts.get(name, self._otherwise)
            if verdict is not None:
                reported = subject.replace(".requested.", ".reported.")
                asked = {"check": fact["check"], "cycle": fact.get("cycle", 0)}
                await self.say(reported, name, **asked, **verdict)
            return
        # `catch_up` may read a fact after a newer one was read.
        if fact["revision"] < self._seen.get(name, 0):
            return
        self._seen[name] = fact["revision"]
        if what == "admitted":
            self.running[name] = fact["revision"]
        else:
            self.running.pop(name, None)
        for said in ("started", "pods_ready") if what == "admitted" else ("stopped",):
            await self.say_of_job(said, name, revision=fact["revision"])

    async def finish(self, name: str, *, succeeded: bool = True) -> None:
        """Ends the job of the workload, if it runs."""
        revision = self.running.pop(name, None)
        if revision is not None:
            ended = {"succeeded": succeeded, "message": ""}
            await self.say_of_job("finished", name, revision=revision, **ended)

    async def say_of_job(self, said: str, name: str, **fields: Any) -> None:
        await self.say(f"admit.workload.{said}.{NAMESPACE}.{name}", name, **fields)

    async def say(self, subject: str, name: str, **fields: Any) -> None:
        payload = {"namespace": NAMESPACE, "name": name, **fields}
        await self.nc.jetstream().publish(subject, json.dumps(payload).encode())

    async def workload(self, name: str) -> dict[str, Any]:
        """The stored object; empty where there is none."""
        subject = f"$JS.API.DIRECT.GET.KV_admittance.$KV.admittance.workload.{NAMESPACE}.{name}"
        msg = await self.nc.request(subject, b"", timeout=5)
        return dict(json.loads(msg.data)) if msg.data else {}

    async def until(self, name: str, claim: Callable[[dict[str, Any]], bool]) -> None:
        """Waits until the stored workload is so."""
        for _ in range(1200):
            if claim(await self.workload(name)):
                return
            await asyncio.sleep(0.05)
        raise TimeoutError(f"{name} is not as expected: {await self.workload(name)}")

    async def admit(self, *args: str, stdin: str | None = None) -> str:
        """Runs the command; its output."""
        env = {"ADMIT_NATS_URL": self.url, "ADMIT_NATS_CREDS": self._creds}
        done = await asyncio.to_thread(run_admit, *map(str, args), env=env, stdin=stdin or "")
        if done.status and args[0] != "replay":
            raise RuntimeError(f"admit {' '.join(args)}: status {done.status}: {done.err}")
        return done.out


def condition(type_: str, status: str = "True") -> Callable[[dict[str, Any]], bool]:
    def holds(stored: dict[str, Any]) -> bool:
        conditions = stored.get("status", {}).get("conditions", [])
        return any(c["type"] == type_ and c["status"] == status for c in conditions)

    return holds
