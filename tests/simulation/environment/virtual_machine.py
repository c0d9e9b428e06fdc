"""Machines of the simulation: what a runner keeps survives its deaths in memory, and jobs run in
virtual time under shims that outlive the runner.

A shim does what `admittance.runner.jobs.shim` does: it starts once, writes a journal, ends its job
when it is told to, and when nothing has renewed the lease. The runner above is the one that ships.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, Final

import msgspec

from admittance.events.codec import encode
from admittance.events.facts import PodsNotReady, PodsReady
from admittance.events.stored.machines import MachineFailure, RunnerInventory
from admittance.events.subjects import subject_of
from admittance.folders import MachineFacts
from admittance.job_rules.machine_options import GivenMachine
from admittance.runner import service as runner
from admittance.runner.host.local_executor import LocalExecutor
from admittance.runner.host.port import OtherRun, RunFiles
from admittance.runner.host.processes import ProcessRef
from admittance.runner.host.records import RunIdentity, Spec, StopNote
from admittance.runner.host.run_journal import RunJournal
from admittance.runner.inventory.machine_inventory import AnnouncedRunner
from admittance.runtime.bus.bus import Bus
from admittance.runtime.process.settings import Settings
from simulation.environment.courses import Course
from simulation.environment.machine_specs import NO_ROOM, MachineSpec
from simulation.nats.observed import Outgoing
from simulation.virtual_time.kernel import Kernel
from simulation.virtual_time.loop import Process, VirtualLoop

CLAIM_SECONDS: Final = 12.0
"""TTL of the claims of runners, shorter than many jobs."""
STARTS: Final = (0.001, 0.05)
"""Seconds until a shim has started: at least, and at most so much more."""
UP: Final = (0.01, 0.1)
HANG_SECONDS: Final = 150.0
"""Longest time until a runner has killed a shim that hangs."""
STOP_SECONDS: Final = 3.0
"""Longest time that a job takes to end when it is stopped."""


class RunnerOfWorld:
    """The runner that ships, each on its machine."""

    SERVICE = runner.SERVICE

    def __init__(self, machines: Callable[[str], VirtualMachine], claim_seconds: float) -> None:
        self._machines = machines
        self._claim_seconds = claim_seconds

    async def run(self, bus: Bus, settings: Settings, *, stop: asyncio.Event) -> None:
        """Runs admitted jobs until stop is set."""
        machine = self._machines(settings.instance)
        ttl = self._claim_seconds
        await runner.run(bus, settings, claim_ttl=ttl, machine=machine, stop=stop)


class Disk:
    """The files of one run."""

    def __init__(self) -> None:
        self.spec: Spec | None = None
        self.earlier: RunIdentity | None = None
        self.closed_at: float | None = None
        self.clear()

    def clear(self) -> None:
        """Removes what belongs to one start of the run."""
        self.stop: StopNote | None = None
        self.journal = b""
        self.shim: Shim | None = None
        self.said = False


class VirtualRun:
    """`RunFiles` in memory."""

    def __init__(self, machine: VirtualMachine, identity: RunIdentity) -> None:
        self.identity = identity
        self.journal = RunJournal()
        self.path = machine.root / identity.key
        self._machine = machine
        self.disk = machine.disks.setdefault(identity.key, Disk())

    def write(self, spec: Spec) -> None:
        if self.disk.spec is None:
            self.disk.clear()
        self.disk.spec = spec

    def note_stop(self, note: StopNote) -> None:
        self.disk.stop = note

    def note_drain(self, ends: float | None) -> None:
        """Notes nothing: the jobs of the simulation are not warned."""

    def stop_note(self) -> StopNote | None:
        return self.disk.stop

    def read_journal(self) -> bool:
        return self.journal.feed(self.disk.journal[self.journal.offset :])

    def shim_pid(self) -> int:
        return 1 if self.disk.shim is not None else 0

    def shim_lives(self) -> bool:
        return self.disk.shim is not None and self.disk.shim.alive

    def give_back(self) -> None:
        self.disk.spec, self.disk.earlier = None, self.identity
        self.disk.clear()
        self.disk.closed_at = self._machine.wall()

    def closed_at(self) -> float:
        if self.disk.closed_at is None:
            raise FileNotFoundError(self.path)
        return self.disk.closed_at

    def close(self) -> bool:
        self.mark_published()
        return True

    def free(self) -> None:
        """Does nothing: only the output is left."""

    def mark_published(self) -> None:
        self.disk.said = True
        self.disk.closed_at = self._machine.wall()

    def is_gone(self) -> bool:
        return False

    def fork_server(self) -> ProcessRef:
        return ProcessRef(0, 0)

    def is_closed(self) -> bool:
        return self.disk.said

    def remove(self) -> None:
        self._machine.disks.pop(self.identity.key, None)


class VirtualExecutor(LocalExecutor):
    """Plans as for local processes."""

    def __init__(self, machine: VirtualMachine) -> None:
        super().__init__({})
        self._machine = machine

    async def check(self) -> None:
        """Accepts the Unix user of this process, even root: the jobs are virtual."""

    def open(self, runner: str, checkpoints: str) -> None:
        """Makes no groups: the jobs are virtual."""

    async def sweep(self, run: RunFiles) -> bool:
        for disk in self._machine.disks.values():
            if disk.shim is not None and disk.shim.spec.mark == run.identity.mark:
                disk.shim.end("lost")
        return True


class VirtualShims:
    """`Shims` of one life of a runner."""

    def __init__(self, machine: VirtualMachine, on_change: Callable[[str], None]) -> None:
        self._machine = machine
        self._on_change = on_change
        self._starting: set[str] = set()

    async def open(self) -> None:
        process = self._machine.loop.current
        assert process is not None
        self._machine.listener = process, self._on_change

    async def close(self) -> None:
        self._machine.listener = None

    async def launch(self, run: RunFiles) -> None:
        key, machine = run.identity.key, self._machine
        if key not in self._starting:
            self._starting.add(key)
            if machine.failed is not None:
                machine.launched_drained.add(key)
            machine.after(*STARTS, partial(machine.start, key, machine.crashes))

    def start_done(self, key: str) -> None:
        self._starting.discard(key)

    def start_slots(self) -> tuple[int, int]:
        return len(self._starting), 0

    def stop(self, run: RunFiles) -> None:
        shim = self._machine.disks[run.identity.key].shim
        if shim is not None and shim.alive:
            self._machine.kernel.after(0.0, lambda: shim.end_all("stopped"))

    def tell_drain(self, run: RunFiles) -> None:
        """Says nothing: the jobs of the simulation are not warned."""

    def kill(self, run: RunFiles) -> None:
        shim = self._machine.disks[run.identity.key].shim
        if shim is not None:
            shim.die()


class VirtualMachine:
    """The machine of one runner. ``readable``: machines that read the folders of each other.
    ``crashes``: how often it has crashed."""

    renewed_at = 0.0
    """When the lease was last renewed."""

    def __init__(
        self,
        name: str,
        kernel: Kernel,
        loop: VirtualLoop,
        course_of: Callable[[], Course],
        on_start: Callable[[Spec, str], None],
        on_end: Callable[[str, str], None],
        publish: Callable[[Outgoing], Any],
        fails_prolog: Callable[[], bool],
        spec: MachineSpec = NO_ROOM,
    ) -> None:
        self.runner = name
        self.spec = spec
        self.crashes = 0
        self.kernel = kernel
        self.loop = loop
        self.course_of = course_of
        self.on_start = on_start
        self.on_end = on_end
        self.publish = publish
        self.fails_prolog = fails_prolog
        self.failed: MachineFailure | None = None
        self.launched_drained: set[str] = set()
        """Keys of runs that the runner launched although a hook had failed."""
        self.readable: dict[str, VirtualMachine] = {}
        self.root = Path("/virtual") / name
        self.lease, self.notify = self.root / "lease", self.root / "notify"
        self.disks: dict[str, Disk] = {}
        self.listener: tuple[Process, Callable[[str], None]] | None = None

    def wall(self) -> float:
        """The machine's time, in seconds since 1970."""
        return self.loop.wall().timestamp()

    def after(self, least: float, more: float, call: Callable[[], None]) -> None:
        self.kernel.after(least + self.kernel.rng.random() * more, call)

    # As a machine. ------------------------------------------------------------------------

    def boot_seconds(self) -> float:
        return self.loop.now

    def executor(self, _: str) -> VirtualExecutor:
        return VirtualExecutor(self)

    def open_files(self, _: Path) -> VirtualMachine:
        return self

    def shims(self, _: object, on_change: Callable[[str], None]) -> VirtualShims:
        return VirtualShims(self, on_change)

    def machine_facts(self) -> MachineFacts:
        return MachineFacts()

    def inventory(self, _: GivenMachine, runner: AnnouncedRunner) -> RunnerInventory:
        return self.spec.inventory(self.runner, runner)

    def find_run(self, roots: Mapping[str, str], key: str) -> OtherRun | None:
        for name in roots:
            other = self.readable.get(name)
            disk = other.disks.get(key) if other is not None else None
            if other is not None and disk is not None and disk.spec is not None:
                return OtherRun(VirtualRun(other, _identity(disk.spec)), other.secret)
        return None

    # As the files of its runner. ------------------------------------------------------------

    @property
    def secret(self) -> bytes:
        return f"secret of {self.runner}".encode()

    def failure(self) -> MachineFailure | None:
        return self.failed

    def note_failure(self, failure: MachineFailure | None) -> None:
        """Keeps it, as the data folder of the runner does."""
        self.failed = failure

    def touch_lease(self, boot_seconds: float) -> None:
        self.renewed_at = boot_seconds

    def folder_of(self, identity: RunIdentity) -> VirtualRun:
        return VirtualRun(self, identity)

    def runs(self) -> Iterator[VirtualRun]:
        for _, disk in sorted(self.disks.items()):
            if disk.spec is not None:
                yield VirtualRun(self, _identity(disk.spec))

    def given_back(self) -> Iterator[VirtualRun]:
        for _, disk in sorted(self.disks.items()):
            if disk.spec is None and disk.earlier is not None:
                yield VirtualRun(self, disk.earlier)

    def close(self) -> None:
        return

    # Shims. ---------------------------------------------------------------------------------

    def start(self, key: str, crashes: int) -> None:
        """Starts the shim of a run, unless it has one, or the machine has crashed since."""
        disk = self.disks.get(key)
        if disk is None or crashes != self.crashes:
            return
        if disk.spec is not None and disk.shim is None:
            disk.shim = Shim(self, disk, disk.spec)
            disk.shim.start()

    def kill_shims(self) -> None:
        """Kills all shims; their pods run on."""
        for disk in self.disks.values():
            if disk.shim is not None:
                disk.shim.die()

    def crash(self) -> None:
        """Ends all processes at once, as a loss of power does: no shim writes anything any more."""
        self.crashes += 1
        for disk in self.disks.values():
            if disk.shim is not None:
                disk.shim.crash()

    def lose_device(self) -> None:
        """One more device vanishes; the runner sees that at its next start."""
        left = sorted(set(range(self.spec.gpus)) - self.spec.lost)
        if left:
            lost = self.spec.lost | {self.kernel.rng.choice(left)}
            self.spec = self.spec._replace(lost=lost)

    def has_orphans(self) -> bool:
        """Whether pods of dead shims run. Only the sweep of the runner ends them: no promise covers
        a job that loses its shim and its runner."""
        shims = (disk.shim for disk in self.disks.values())
        return any(shim is not None and shim.dead and not shim.over for shim in shims)

    def notify_runner(self, key: str) -> None:
        if self.listener is not None:
            process, on_change = self.listener
            self.loop.post(process, on_change, key)

    def is_left_hanging(self, key: str) -> bool:
        """Whether the run's shim hangs, and its runner has had time to kill it."""
        disk = self.disks.get(key)
        shim = disk.shim if disk is not None else None
        return shim is not None and self.loop.now > shim.hangs_since + HANG_SECONDS


class Shim:
    """The shim of one start of a run, with its pods. ``over``: its pods have ended. ``dead``: the
    shim was killed, and its pods run on until they are swept. ``hangs_since``: its pods ended then,
    and it does not write that they have."""

    def __init__(self, machine: VirtualMachine, disk: Disk, spec: Spec) -> None:
        self.spec = spec
        self.alive = True
        self.dead = False
        self.hangs_since = inf
        self._machine = machine
        self._disk = disk
        self._why = ""
        self.over = False
        self._course = Course(0.0)

    def start(self) -> None:
        machine = self._machine
        if self._disk.stop is not None:
            self._tell_end("stopped")
            return
        if machine.loop.now >= machine.renewed_at + self.spec.lease_stop:
            self._tell_end("lost")
            return
        if machine.fails_prolog():
            self._write(e="begun")
            machine.after(*UP, self._fail_prolog)
            return
        machine.on_start(self.spec, machine.runner)
        self._course = course = machine.course_of()
        machine.after(*UP, self._come_up)
        ending = "succeeded" if course.succeeds else "failed"
        machine.kernel.after(course.seconds, lambda: self.end(self._why or ending))
        self._watch_lease()

    def _fail_prolog(self) -> None:
        """Ends before any pod has started, since the prolog of the machine has failed."""
        if not self.over and not self.dead:
            self._tell_end("unprepared", drain="the prolog failed: exit code 1")

    def _come_up(self) -> None:
        if self.over:
            return
        self._write(e="up")
        course, kernel = self._course, self._machine.kernel
        if not course.ready:
            self._write(e="ready")
        else:
            kernel.after(course.ready, lambda: self._write(e="ready"))
        if course.flaps is not None:
            gone, back = course.flaps
            kernel.after(course.ready + gone, lambda: self._turn(PodsNotReady))
            kernel.after(course.ready + back, lambda: self._turn(PodsReady))

    def _turn(self, kind: type[PodsReady | PodsNotReady]) -> None:
        """Pods are not ready any more, or again. The runner that ships publishes only the first
        time; others publish each."""
        if not self.over:
            spec = self.spec
            fact = kind(
                namespace=spec.namespace, name=spec.name, uid=spec.uid, revision=spec.revision
            )
            self._machine.publish(Outgoing(subject_of(fact), encode(fact)))

    def _watch_lease(self) -> None:
        machine = self._machine
        if self.over or self.dead or self._why == "lost":
            return
        deadline = machine.renewed_at + self.spec.lease_stop
        if machine.loop.now < deadline:
            machine.loop.at(deadline, self._watch_lease)
        else:
            self.end_all("lost", within=self.spec.lease_kill - self.spec.lease_stop)

    def end_all(self, why: str, *, within: float = inf) -> None:
        """Tells the pods to end; kills them after the grace period, or ``within`` seconds."""
        if self.over:
            return
        kernel = self._machine.kernel
        if not self._why:
            self._why = why
            within = min(within, self.spec.grace)
            if not self._course.ignores_stop:
                self._machine.after(0.0, STOP_SECONDS, lambda: self.end(why))
        if within < inf:
            kernel.after(within, lambda: self.end(self._why))

    def end(self, kind: str) -> None:
        """All pods have ended."""
        if not self.over:
            self.over = True
            self._machine.on_end(self.spec.key, kind)
            if self._why == "stopped" and self._course.hangs:
                self.hangs_since = self._machine.loop.now
            else:
                self._tell_end(kind)

    def die(self) -> None:
        """Kills the shim: its pods run on, and nothing more about them is written."""
        self.alive = False
        self.dead = True

    def crash(self) -> None:
        """Ends the shim and its pods, and nothing about them is written."""
        self.die()
        if not self.over:
            self.over = True
            self._machine.on_end(self.spec.key, "lost")

    def _tell_end(self, kind: str, *, drain: str = "") -> None:
        self.over = True
        self.alive = False
        self._write(
            e="outcome",
            kind=kind,
            message="" if kind == "succeeded" else kind,
            code=1 if kind == "failed" else 0,
            drain=drain,
        )

    def _write(self, **line: Any) -> None:
        if not self.dead and (line["e"] == "outcome" or not self.over):
            self._disk.journal += json.dumps(line).encode() + b"\n"
            self._machine.notify_runner(self.spec.key)


def _identity(spec: Spec) -> RunIdentity:
    return msgspec.json.decode(msgspec.json.encode(spec), type=RunIdentity)
