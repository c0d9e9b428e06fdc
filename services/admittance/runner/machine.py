"""What a runner needs of the machine on which it runs, and the records that runner and machine
exchange.

`admittance.runner.launcher.LocalMachine` provides the machine with files, pipes and processes. The
simulation provides the machine in memory, with jobs in virtual time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import datetime, timedelta
from heapq import nsmallest
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import msgspec

from admittance.events.facts import Admitted
from admittance.events.names import token
from admittance.events.reader import BROKEN, one_line
from admittance.events.shapes import PodRetries, PodRetry
from admittance.events.stored.machines import RunnerInventory
from admittance.events.system import RunnerStarts
from admittance.folders import MachineFacts
from admittance.job_rules.machine_options import GivenMachine
from admittance.runner.decide import MESSAGE_MAX, Ended
from admittance.runner.files.plan import Transfers
from admittance.runner.groups.job_groups import Offers
from admittance.runner.jobs.devices import MachineDevices
from admittance.runner.jobs.plan import GRACE_SECONDS, RunPlan
from admittance.runner.processes import ProcessRef, tag_of

RETRIES_SHOWN: Final = 10
"""The most pods that wait for their next start of which the time is said."""


class _Line(msgspec.Struct, frozen=True):
    e: str
    p: str = ""
    pid: int = 0
    t: int = 0
    code: int = 0
    kind: str = ""
    message: str = ""
    reason: str = ""
    failed: int = 0
    due: float | None = None
    left: int | None = None


_decoder = msgspec.json.Decoder(_Line)


class PodFailures:
    """The pods of a run that failed and run again, as the journal says.

    ``failed``: how many pods and containers have failed; ``given_up``: how many indexes have failed
    for good."""

    def __init__(self) -> None:
        self.failed = 0
        self.given_up = 0
        self.message = ""
        self._waiting: dict[str, tuple[float, int | None]] = {}
        """For each pod that waits the time of its next start, in seconds since boot, and how often
        it may fail again."""

    def note(self, line: _Line) -> None:
        self.failed = max(self.failed, line.failed)
        self.message = one_line(line.message, MESSAGE_MAX)
        if line.due is None:
            self.given_up += 1
        else:
            self._waiting[line.p] = line.due, line.left

    def starts(self, pod: str) -> None:
        self._waiting.pop(pod, None)

    def summary(self, now: datetime, boot: float) -> PodRetries | None:
        """The failures for people; None: no pod has failed. ``boot``: the seconds since boot at the
        time ``now``."""
        if not self.failed:
            return None
        first = nsmallest(RETRIES_SHOWN, self._waiting.items(), key=lambda pair: pair[1][0])
        return PodRetries(
            failed=self.failed,
            given_up=self.given_up,
            waiting=len(self._waiting),
            pods=tuple(
                PodRetry(pod=pod, at=now + timedelta(seconds=due - boot), left=left)
                for pod, (due, left) in first
            ),
            message=self.message,
        )


class RunJournal:
    """The events that a shim has written into the journal of its run; `feed` takes the bytes of the
    journal from ``offset`` on."""

    def __init__(self) -> None:
        self.offset = 0
        self.up = False
        self.ready = False
        self.outcome: Ended | None = None
        """How the run has ended; None: it has not."""
        self.processes: dict[int, int] = {}
        """The process groups that the run has ever started: pid to start time in ticks."""
        self.ended: dict[str, int] = {}
        """Pods of the run that have ended, with their exit codes."""
        self.failures = PodFailures()

    @property
    def is_result(self) -> bool:
        """Whether the job ended without a stop request: then the result counts, and the job does
        not run again."""
        return self.outcome is not None and self.outcome.is_result

    def feed(self, data: bytes) -> bool:
        """Reads the complete new lines of the journal from ``data``; returns whether there was such
        a line. A last line without its newline is left for the next call, because the shim may have
        written only a part of it.
        """
        whole = data.rfind(b"\n") + 1
        self.offset += whole
        for text in data[:whole].splitlines():
            try:
                line = _decoder.decode(text)
            except BROKEN:
                continue  # skips an incomplete line, written just before a power failure
            match line.e:
                case "start":
                    self.processes[line.pid] = line.t
                    self.ended.pop(line.p, None)  # the pod runs again after a failure
                    self.failures.starts(line.p)
                case "retry":
                    self.failures.note(line)
                case "end":
                    self.ended[line.p] = line.code
                case "up":
                    self.up = True
                case "ready":
                    self.ready = True
                case "outcome":
                    message = one_line(line.message, MESSAGE_MAX)
                    self.outcome = Ended(line.kind, message, line.code, line.reason)
        return whole > 0


class Spec(RunPlan, frozen=True, kw_only=True):
    """What a shim reads at its start: the plan of a run and the identity of the run. ``mark`` is
    the value of ADMITTANCE_RUN in the environment of every process of the run; ``tag``: the number
    that processes of the run inherit whatever their environment is; 0: none. ``lease_stop`` and
    ``lease_kill``: how many seconds after the last renewal of the lease the shim sends SIGTERM and
    SIGKILL to its pods.
    """

    key: str
    mark: str
    namespace: str
    name: str
    uid: str
    revision: int
    notify: str
    lease: str
    lease_stop: float
    lease_kill: float
    pods: int = 1
    units: tuple[str, ...] = ()
    part: int = 0
    parts: int = 0
    restarts: int = 0
    placed: bool = False
    tag: int = 0
    requests: dict[str, int] = msgspec.field(default_factory=dict)


def spec_of(plan: RunPlan, identity: RunIdentity, files: RunnerFiles, ttl: float) -> Spec:
    """What the shim of a run reads. ``ttl``: seconds after the last renewal of the claims at which
    another runner may take them."""
    # The shim's SIGTERM and SIGKILL come before the claims' TTL ends: SIGTERM early enough for the
    # grace period, then SIGKILL.
    kill = ttl * 0.95
    stop = kill - max(ttl * 0.15, min(plan.grace, ttl / 3))
    return Spec(
        **{name: getattr(plan, name) for name in plan.__struct_fields__},
        key=identity.key,
        mark=identity.mark,
        namespace=identity.namespace,
        name=identity.name,
        uid=identity.uid,
        revision=identity.revision,
        notify=str(files.notify),
        lease=str(files.lease),
        lease_stop=stop,
        lease_kill=kill,
        pods=identity.pods,
        units=identity.units,
        part=identity.part,
        parts=identity.parts,
        placed=identity.placed,
        requests=identity.requests,
        restarts=identity.restarts,
        tag=tag_of(identity.mark),
    )


class StopNote(msgspec.Struct, frozen=True, kw_only=True):
    """Why a run was told to stop; the fields have the meaning that they have in
    `admittance.runner.decide.Run`."""

    evicted: int = 0
    leaving: bool = False
    claim_lost: bool = False


class RunIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a `Spec` that the runner needs. ``grace``: how many seconds a pod of the run has
    from SIGTERM to SIGKILL. ``pods``: how many of `JobLimits.pods` the run takes. ``units``: the
    units of devices that the run has, as ``<resource>=<id>``. ``part``: which of the ``parts`` of a
    job on several machines; 0: the whole job. ``placed``: whether the job is assigned to this
    runner. ``requests``: what its pods ask for together, in accounting units. ``restarts``: how
    often this runner has started the same admission before. ``transfers``: the files that the
    runner brings and keeps."""

    key: str
    namespace: str
    name: str
    uid: str
    revision: int
    mark: str = ""
    grace: int = GRACE_SECONDS
    pods: int = 1
    units: tuple[str, ...] = ()
    part: int = 0
    parts: int = 0
    placed: bool = False
    requests: dict[str, int] = msgspec.field(default_factory=dict)
    restarts: int = 0
    transfers: Transfers | None = None


def run_key(namespace: str, name: str, revision: int, part: int = 0) -> str:
    """The name of a run and of its claim: ``<ns>.<name>.<revision>``, and for a part of a job on
    several machines ``<ns>.<name>.<revision>-<part>``, which runners without parts leave alone."""
    key = f"{token(namespace)}.{token(name)}.{revision}"
    return f"{key}-{part}" if part else key


class RunFiles(Protocol):
    """The files that are kept of one run: what to run, its stop note, and the journal that its shim
    writes.
    """

    identity: RunIdentity
    journal: RunJournal
    """The events that the runner has read from the run's journal so far."""

    @property
    def path(self) -> Path:
        """The folder with the files of the run."""

    def write(self, spec: Spec) -> None:
        """Creates the files of the run, with its spec. No process of the run may start before this
        function returns. Raises OSError.
        """

    def note_stop(self, note: StopNote) -> None:
        """Writes the stop note of the run: that the run must stop, and why."""

    def stop_note(self) -> StopNote | None:
        """The stop note of the run; None if `note_stop` was not called."""

    def read_journal(self) -> bool:
        """Reads new lines of the run's journal; returns True if there was a new line."""

    def shim_pid(self) -> int:
        """The pid of the run's shim; 0 if no shim has started yet."""

    def fork_server(self) -> ProcessRef:
        """The fork server that forked the run's shim; pid 0 if it is not known."""

    def shim_lives(self) -> bool:
        """Whether the run's shim still runs."""

    def give_back(self) -> None:
        """Ends the run so that its admission may start again, on this runner or another. The output
        of the run is kept.
        """

    def closed_at(self) -> float:
        """When the run was closed or given back, in seconds since 1970. Raises
        FileNotFoundError.
        """

    def close(self) -> None:
        """Marks all facts of the run as published; the output of the run is kept for a while."""

    def mark_published(self) -> None:
        """Marks all facts of the run as published by another runner."""

    def is_gone(self) -> bool:
        """Whether the files of the open run were removed, for example by the job itself."""

    def is_closed(self) -> bool:
        """Whether all facts of the run are published."""

    def remove(self) -> None:
        """Removes all files of the run, also its output."""


class ClosedRuns(dict[str, RunFiles]):
    """Closed runs by key, and also by their workload."""

    def __init__(self) -> None:
        super().__init__()
        self._of: dict[tuple[str, str], set[str]] = {}

    def __setitem__(self, key: str, run: RunFiles) -> None:
        super().__setitem__(key, run)
        self._of.setdefault((run.identity.namespace, run.identity.name), set()).add(key)

    def drop(self, key: str) -> RunFiles | None:
        """Removes the run with the key ``key`` from the closed runs and returns the run; returns
        None if no such run is closed."""
        run = self.pop(key, None)
        if run is not None:
            which = run.identity.namespace, run.identity.name
            keys = self._of.get(which, set())
            keys.discard(key)
            if not keys:
                self._of.pop(which, None)
        return run

    def of(self, namespace: str, name: str) -> list[RunFiles]:
        """The closed runs of a workload."""
        return [self[key] for key in self._of.get((namespace, name), ())]


class RunnerFiles(Protocol):
    """The files that a runner keeps from one process to the next. ``runner``: the runner's id."""

    runner: str
    root: Path

    @property
    def secret(self) -> bytes:
        """The secret from which this runner computes its message ids."""

    @property
    def lease(self) -> Path:
        """The path of the file in which shims read the time of the last renewal of claims."""

    @property
    def notify(self) -> Path:
        """The path of the pipe to which shims write the key of a run when its journal has grown."""

    def touch_lease(self, boot_seconds: float) -> None:
        """Writes into the lease file, for the shims, that a successful renewal of all claims began
        at ``boot_seconds``."""

    def folder_of(self, identity: RunIdentity) -> RunFiles:
        """The files of the run ``identity``; the files need not exist yet."""

    def runs(self) -> Iterator[RunFiles]:
        """Every run of the runner, open or closed."""

    def given_back(self) -> Iterator[RunFiles]:
        """The runs that this runner gave back and that have not started again on this runner."""

    def close(self) -> None:
        """Unlocks the data folder, so that another runner process can use it."""


class Executor(Protocol):
    """Makes the plans by which jobs run as processes or containers. ``mark``: the text that
    identifies a run in the environment of its processes and on its containers.
    """

    machine: MachineDevices
    """The devices that this runner gives to jobs."""

    async def check(self) -> None:
        """Raises SetupError when no job can run on this machine."""

    def open(self, runner: str, checkpoints: str) -> None:
        """Prepares the limits of jobs of the runner with the id ``runner``. ``checkpoints``: the
        folder with the checkpoint folders of its jobs. Raises SetupError when the limits cannot be
        as the options want."""

    def offers(self) -> Offers:
        """What the machine limits for each pod."""

    async def end_leftovers(self, open_runs: Callable[[], Collection[str]]) -> None:
        """Ends what is left of runs that are not open. ``open_runs``: a function that returns the
        names of the folders of open runs."""

    def close(self) -> None:
        """Removes what `open` has prepared, unless jobs run on."""

    async def problem(self) -> str:
        """Why this machine can start no job now, as a sentence; "": it can. An answer may be some
        seconds old."""

    def doubt(self) -> None:
        """Makes the next answer of `problem` a new one: a job was lost."""

    def run_plan(self, admitted: Admitted, mark: str) -> RunPlan:
        """Returns the plan that the shim of a run carries out. Raises CannotRun."""

    async def sweep(self, run: RunFiles) -> bool:
        """Ends the remaining processes of a run after the run's shim died, and waits for their end;
        returns whether they are gone.
        """


class Shims(Protocol):
    """Starts shims and tells them to stop; `admittance.runner.launcher.Launcher` does this with
    real processes.
    """

    async def open(self) -> None:
        """Prepares the starts of shims; from now on ``on_change`` is called for each run whose
        journal has grown."""

    async def close(self) -> None:
        """Stops calling ``on_change``; the shims keep running."""

    async def launch(self, run: RunFiles) -> None:
        """Starts a shim for the run when a slot is free. A second call for the same run starts no
        second shim.
        """

    def start_done(self, key: str) -> None:
        """Frees the start slot of the run, because its processes are started or the run has
        ended.
        """

    def start_slots(self) -> tuple[int, int]:
        """How many start slots are used, and how many are free."""

    def stop(self, run: RunFiles) -> None:
        """Tells the run's shim to end its pods. A shim that starts later reads the stop note."""

    def kill(self, run: RunFiles) -> None:
        """Kills the run's shim: after this call the shim writes nothing more into the journal.
        Processes of the run may remain."""


class OtherRun(NamedTuple):
    """A run in the data folder of another runner. ``secret``: the other runner's secret for message
    ids; None if this runner cannot read it.
    """

    folder: RunFiles
    secret: bytes | None


class HostMachine(Protocol):
    """The machine of a runner: a data folder, executors, shims, and a clock that counts from the
    boot of the machine."""

    def boot_seconds(self) -> float:
        """Seconds since the machine's boot, by which leases are measured."""

    def executor(self, name: str) -> Executor:
        """Returns the executor with the name ``name``, such as docker. Raises SetupError for an
        unknown name.
        """

    def open_files(self, data_dir: Path) -> RunnerFiles:
        """Opens the runner's files in the folder ``data_dir``. Raises SetupError if another runner
        uses the folder, or if the folder cannot be written.
        """

    def shims(self, files: RunnerFiles, on_change: Callable[[str], None]) -> Shims:
        """Returns the object that starts and stops the runner's shims. ``on_change`` is called with
        the key of a run whose journal has grown."""

    def machine_facts(self) -> MachineFacts:
        """What identifies the machine."""

    def inventory(
        self,
        given: GivenMachine,
        *,
        id: str,
        name: str,
        executor: str,
        starts: RunnerStarts | None,
        messages: tuple[str, ...],
    ) -> RunnerInventory:
        """What the machine has, with what options say. ``messages``: what it cannot do. It may
        block. Raises SetupError if an option contradicts the machine."""

    def find_run(self, roots: Mapping[str, str], key: str) -> OtherRun | None:
        """Returns the run with the key ``key`` from the data folder of another runner; None if no
        folder has the run. ``roots``: the path of each runner's folder, by the runner's id.
        """
