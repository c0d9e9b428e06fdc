"""What a runner needs of the machine on which it runs.

`admittance.runner.host.local_machine.LocalMachine` provides the machine with files, pipes and
processes. The simulation provides the machine in memory, with jobs in virtual time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from admittance.events.facts import Admitted
from admittance.events.stored.machines import Device, MachineFailure, RunnerInventory
from admittance.folders import MachineFacts
from admittance.job_rules.machine_options import GivenMachine
from admittance.runner.decide import Ended
from admittance.runner.groups.job_groups import Offers
from admittance.runner.host.processes import ProcessRef
from admittance.runner.host.records import RunIdentity, Spec, StopNote
from admittance.runner.host.run_journal import RunJournal
from admittance.runner.inventory.machine_inventory import AnnouncedRunner
from admittance.runner.plans.run_plan import RunPlan


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

    def note_drain(self, ends: float | None) -> None:
        """Notes when the machine must be empty, in seconds since boot; None: it need not be. Raises
        OSError."""

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

    def close(self) -> bool:
        """Marks all facts of the run as published; the output of the run is kept for a while.
        Returns whether its other files are gone: if not, `free` removes them. Takes no time."""

    def free(self) -> None:
        """Removes the files of a closed run except its output, which may take long."""

    def mark_published(self) -> None:
        """Marks all facts of the run as published by another runner."""

    def is_gone(self) -> bool:
        """Whether the files of the open run were removed, for example by the job itself."""

    def is_closed(self) -> bool:
        """Whether all facts of the run are published."""

    def remove(self) -> None:
        """Removes all files of the run, also its output."""


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

    def failure(self) -> MachineFailure | None:
        """Why the runner drains its machine, also after a restart; None: it does not."""

    def note_failure(self, failure: MachineFailure | None) -> None:
        """Keeps why the runner drains its machine. Raises OSError."""

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

    async def check(self) -> None:
        """Raises SetupError when no job can run on this machine."""

    def open(self, runner: str, checkpoints: str) -> None:
        """Prepares the limits of jobs of the runner with the id ``runner``. ``checkpoints``: the
        folder with the checkpoint folders of its jobs. Raises SetupError when the limits cannot be
        as the options want."""

    def offers(self) -> Offers:
        """What the machine limits for each pod."""

    def take_devices(self, runner: str, devices: tuple[Device, ...]) -> tuple[str, ...]:
        """Makes these the devices that the runner with the id ``runner`` gives to jobs; returns
        what is not sure about them, one sentence each."""

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

    async def epilog(self, run: RunFiles, end: Ended) -> str:
        """Runs the epilog of a run whose shim has died, after its processes are gone; returns why
        the epilog failed, or ""."""

    async def sweep(self, run: RunFiles) -> bool:
        """Ends the remaining processes of a run after the run's shim died, and waits for their end;
        returns whether they are gone.
        """


class Shims(Protocol):
    """Starts shims and tells them to stop; `admittance.runner.host.launcher.Launcher` does this
    with real processes.
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

    def tell_drain(self, run: RunFiles) -> None:
        """Tells a shim that warns its pods that the note of the drain has changed. A shim that
        starts later reads the note."""

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

    def inventory(self, given: GivenMachine, runner: AnnouncedRunner) -> RunnerInventory:
        """What the machine has, with what options say, as the runner announces it. The call may
        block. A later call, with the same options, says what has changed. Raises SetupError if an
        option contradicts the machine."""

    def find_run(self, roots: Mapping[str, str], key: str) -> OtherRun | None:
        """Returns the run with the key ``key`` from the data folder of another runner; None if no
        folder has the run. ``roots``: the path of each runner's folder, by the runner's id.
        """
