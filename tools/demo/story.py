"""The story of the demo: what it submits, and what it prints of the log."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from tools.demo.tally import Tally

from admittance.cli.support import output
from admittance.client import Client, ClientError
from admittance.client.wording.facts import line_of
from admittance.events import codec, facts
from admittance.events.requests.history import LogEntry
from admittance.runtime import clock
from admittance.runtime.errors import SetupError
from admittance.runtime.process.child_process import ends_with_parent
from admittance.runtime.tasks import task_group

LIMIT_SECONDS: Final = 180.0
"""Far more than the demo takes, for a machine that is busy with something else."""
JOBS: Final = 6
SHOWN: Final = frozenset(
    {"submitted", "refused", "held", "admitted", "started", "finished", "evicted", "rejected"}
    | {"asked", "coming", "there", "revoked"}
)
"""Kinds of facts that are printed; `admit events` shows the others."""
CAPACITY: Final = {
    "capacity asked": "asked",
    "capacity coming": "coming",
    "capacity there": "there",
    "capacity revoked": "revoked",
}
COLORS: Final = {
    "finished": "32",
    "admitted": "36",
    "refused": "33",
    "held": "35",
    "asked": "35",
    "coming": "35",
    "there": "35",
    "revoked": "31",
    "rejected": "31",
}
JOB: Final = """
apiVersion: batch/v1
kind: Job
metadata:
  name: {name}
  labels: {{kueue.x-k8s.io/queue-name: {queue}}}
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
        - name: main
          image: busybox
          command: [sh, -c, "echo {word}; {work}; echo done"]
          resources: {{requests: {{cpu: "{cpu}", memory: 256Mi}}}}
"""
FAMILY: Final = "train-1"
OTHERS: Final = ("other-1-reservation", "other-1-on-demand")
"""Of the sample: the workload that moves up, and the ones that hold its quota at first."""
BURST: Final = "burst"
IN_ITS_WAY: Final = ("other-on-reservation", "other-on-spot")
"""Of the sample: the workload that gets capacity, and the ones that hold it at first."""
WAITS: Final = "evaluate-3"
LEFT: Final = (
    ("evaluate-1", "research", 2),
    ("evaluate-2", "research", 2),
    (WAITS, "research", 2),
    ("serve", "production", 1),
)
"""What ``--keep`` leaves, with queue and cpu: two of research take all that the queue may use."""
LONG: Final = "sleep 86400"
CONTROLLER: Final = "example.com/allowance"
PATIENCE_SECONDS: Final = 60.0
"""Limit of one wait: two jobs that borrow, capacity that comes at the second attempt."""


def _sweep(name: str) -> str:
    return JOB.format(name=name, queue="sweeps", word="sweeping", work="sleep 0.5", cpu=1)


def _audit() -> str:
    return JOB.format(name="audit", queue="production", word="auditing", work="sleep 1", cpu=3)


class Demo:
    """One run of the demo against the system at ``url``. ``folder``: has the context and the data
    folder that `admit up` wrote."""

    def __init__(self, url: str, samples: Path, folder: Path) -> None:
        self._url = url
        self._folder = folder
        self._env = {**os.environ, "ADMIT_NATS_URL": url, "XDG_CONFIG_HOME": str(folder)}
        self._samples = samples
        self._gate = folder / "steps-may-end"
        """Once this file exists, the steps end: a step that ended by itself might do so before
        production wants its quota back."""
        self._began = clock.now()
        self._seen: set[str] = set()
        self.tally = Tally()
        self.changed = asyncio.Event()

    async def run(self) -> bool:
        """Runs the demo; returns whether everything finished."""
        async with (
            await Client.connect(self._url, environ=self._env) as client,
            task_group() as tasks,
        ):
            following = tasks.create_task(self.follow(client))
            try:
                await self._act()
                async with asyncio.timeout(LIMIT_SECONDS):
                    while self.tally.open:
                        await self.changed.wait()
                        self.changed.clear()
            except TimeoutError:
                late = ", ".join(self.tally.open)
                output.say(f"\nIt took too long; these did not finish: {late}")
            finally:
                following.cancel()
        return self.tally.all_finished

    async def follow(self, client: Client) -> None:
        """Hears all facts, until it is cancelled. Raises SetupError if the log cannot be read."""
        try:
            async for entry in client.events(follow=True, all_namespaces=True):
                self._on_entry(entry)
        except ClientError as error:
            raise SetupError(f"the log cannot be followed: {error}") from None

    @asynccontextmanager
    async def allowance_check(self) -> AsyncIterator[None]:
        """Runs the sample check as a separate process, with credentials of its own on a locked
        server."""
        env = self._env
        users = self._folder / "data" / "auth"
        if users.exists():
            heading("A check of your own is a user of its own")
            file = str(self._folder / "allowance.creds")
            words = ("auth", "add", "check", "allowance", "--controller", CONTROLLER)
            await self.admit(*words, "--dir", str(users), "-o", file)
            env = {**env, "ADMIT_NATS_CREDS": file}
        program = self._samples / "checks" / "allowance" / "allowance.py"
        with (self._folder / "check.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *ends_with_parent([sys.executable, str(program)]),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=env,
            )
        try:
            yield
        finally:
            with suppress(ProcessLookupError):
                process.terminate()
            await process.wait()

    async def _act(self) -> None:
        heading("Two teams, quota for each, one cohort in which they lend to each other")
        await self.admit("apply", "-f", str(self._samples / "queues.yaml"))
        await self._family()
        await self._budget()
        await self._capacity()
        await self._revoke()
        heading("Real jobs: two of batch/v1, a workload of two pod sets, and more than fits")
        self.tally.expect("count-words", "nightly-report", "train")
        await self.admit("submit", "-f", str(self._samples / "job.yaml"))
        await self.admit("submit", "-f", str(self._samples / "workload.yaml"))
        names = [f"step-{number}" for number in range(1, JOBS + 1)]
        self.tally.expect(*names)
        # All in one call, so that they come at once however slow the machine is.
        await self.admit("submit", "-f", "-", text="---".join(map(self._step, names)))
        await self._until(lambda: self.tally.running(*names) >= 2)
        await self._until(lambda: bool(self._refused(names)))
        for name in self._refused(names)[-1:]:
            heading("Why does the last one wait?")
            await self.admit("explain", "workload", name, fails=True)
            await self.admit("get", "pending", fails=True)
        await self._reclaim()
        heading("The rest starts as quota comes free")

    async def _family(self) -> None:
        """A job that starts on the worst flavor and moves to better ones as others end."""
        heading("One job, three flavors: it starts where there is room, and moves up")
        self.tally.expect(*OTHERS, FAMILY)
        await self.admit("apply", "-f", str(self._samples / "families" / "story-1.yaml"))

    async def _capacity(self) -> None:
        """The reserved machines are in use, so capacity is requested; at first there is none."""
        heading("Reserved machines first, else spot, which a provider has to obtain beforehand")
        folder = self._samples / "provisioning"
        self.tally.expect(*IN_ITS_WAY)
        files = [str(folder / name) for name in ("machines.yaml", "story.yaml")]
        await self.admit("apply", "-f", files[0], "-f", files[1])
        await self._until(lambda: self.tally.running(*IN_ITS_WAY) == len(IN_ITS_WAY))
        self.tally.expect(BURST)
        await self.admit("apply", "-f", str(folder / "burst.yaml"))

    async def _revoke(self) -> None:
        """The machines of a running job are revoked and come back."""
        if not await self._until(lambda: self.tally.running(BURST) == 1):
            return
        folder = self._samples / "provisioning"
        heading("Its machines are taken away: the job is stopped and rejected. They come back")
        await self.admit("apply", "-f", str(folder / "gone"))
        await self._until(lambda: self.tally.has_fact(BURST, "rejected"))
        await self.admit("apply", "-f", str(folder / "machines.yaml"))
        await self.admit("activate", "workload", BURST, fails=True)

    async def _until(self, so: Callable[[], bool]) -> bool:
        """Waits for a condition; returns whether it came true in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not so():
                    await self.changed.wait()
                    self.changed.clear()
        return so()

    async def _budget(self) -> None:
        """A custom check holds a job back and admits it later."""
        check = self._samples / "checks" / "allowance"
        heading(
            "A check of your own: a budget of one start in five seconds, a program of ten lines"
        )
        output.say(styled(f"$ python {check / 'allowance.py'} &", "1"))
        await self.admit("apply", "-f", str(check / "manifests.yaml"))
        names = ("sweep-1", "sweep-2")
        self.tally.expect(*names)
        await self.admit("submit", "-f", "-", text="---".join(map(_sweep, names)))

    def _step(self, name: str) -> str:
        work = f"until [ -e {shlex.quote(str(self._gate))} ]; do sleep 0.1; done; sleep 1"
        return JOB.format(name=name, queue="research", word="computing", work=work, cpu=2)

    def _refused(self, names: list[str]) -> list[str]:
        return [name for name in names if self.tally.has_fact(name, "refused")]

    async def _reclaim(self) -> None:
        """Production reclaims quota while research borrows it."""
        heading("Production wants its quota back: a borrower is stopped, and runs again later")
        self.tally.expect("audit")
        await self.admit("submit", "-f", "-", text=_audit())
        await self._until(lambda: self.tally.has_fact("audit", "admitted"))
        self._gate.touch()

    async def close(self) -> None:
        """Prints logs and workloads at the end."""
        heading("What jobs printed")
        await self.admit("logs", "workload", "train", fails=True)
        await self.admit("logs", "workload", FAMILY, "--pod", "0", fails=True)
        await self.admit("get", "workloads", fails=True)

    async def leave(self) -> None:
        """Leaves jobs that run and one that waits, and prints a fresh link to the page."""
        heading("Left to be looked at: jobs that run, and one that waits for quota")
        jobs = [
            JOB.format(name=name, queue=queue, word="working", work=LONG, cpu=cpu)
            for name, queue, cpu in LEFT
        ]
        await self.admit("submit", "-f", "-", text="---".join(jobs))
        await self.admit("web", "--data-dir", str(self._folder / "data"), fails=True)

    async def admit(self, *arguments: str, text: str = "", fails: bool = False) -> None:
        """Runs the command with text as its input and shows it with its answer. Raises SetupError
        unless it may fail."""
        output.say(styled(f"$ admit {shlex.join(arguments)}", "1"))
        process = await asyncio.create_subprocess_exec(
            str(Path(sys.executable).parent / "admit"),
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**self._env, "COLUMNS": "110"},
        )
        out, err = await process.communicate(text.encode())
        for line in (out + err).decode(errors="replace").rstrip().splitlines():
            output.say(f"  {line}")
        if process.returncode and not fails:
            raise SetupError(f"admit {arguments[0]} ended with {process.returncode}")

    def _on_entry(self, entry: LogEntry) -> None:
        line = line_of(entry)
        moved = _places(entry.subject, bytes(entry.data))
        if line.what == "check reported":
            if not line.message.startswith("Retry"):
                return
            # Shows the check and its message.
            why = line.message.partition(": ")[2]
            line = line._replace(what="held", message=f"by {line.reason}: {why}")
        if line.what in CAPACITY:
            short = line.message.partition(", until ")[0]
            line = line._replace(what=CAPACITY[line.what], reason="", message=short)
        name = line.subject.rpartition("/")[2]
        if not self.tally.expects(name):
            return  # A variant: its parent is shown.
        since = (entry.time - self._began).total_seconds()
        if moved and name in (FAMILY, *OTHERS):
            self.tally.at(name, moved, since)
            line = line._replace(message=f"on {moved}")
        if line.what == "evicted" and line.reason == "VariantEvicted":
            line = line._replace(message=f"from {self.tally.place(name)}, to move up")
        self.tally.record(line.what, name, since, line.reason)
        self.changed.set()
        text = f"{line.what:<9} {name:<19} {line.message or line.reason}".rstrip()
        by_check = line.what == "evicted" and line.reason == "AdmissionCheck"
        # A workload that migrates starts again; other repeated lines are not printed.
        known = text in self._seen and name not in (FAMILY, BURST)
        if line.what in SHOWN and not by_check and not known:
            self._seen.add(text)
            output.say(styled(f"    {since:5.1f} s  {text}", COLORS.get(line.what, "2")))


def _places(subject: str, data: bytes) -> str:
    """The flavors of an admission; "" for any other fact."""
    if not subject.startswith("admit.workload.admitted."):
        return ""
    fact = codec.decode(subject, data)
    assert isinstance(fact, facts.Admitted)
    return ", ".join(
        dict.fromkeys(flavor for pods in fact.pod_sets for flavor in pods.flavors.values())
    )


def heading(text: str) -> None:
    output.say(f"\n{styled(text, '1;34')}")


def styled(text: str, code: str) -> str:
    """The text with a terminal style; plain if standard output is not a terminal."""
    return f"\033[{code}m{text}\033[0m" if output.is_terminal() else text
