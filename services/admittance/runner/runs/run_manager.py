"""Keeps the runs of one runner: calls the core (`decide.step`) and carries out the effects that it
returns.

A crash can leave these states behind, and each is repaired:

- A claim whose run has no folder: the fact ``admitted`` is not acknowledged, so it comes again, and
  this runner starts the job under the claim that it already holds.
- The folder of a run without a shim: the launcher starts a shim for the folder again; a shim starts
  no run twice.
- A stop note of which the shim was not told: the runner reads the note at its next start and tells
  the shim.
- The end of a job in the journal without a published fact: the runner publishes the fact at its
  next start, under the same message id.
- A published end of a job with a claim that is not marked as over, or with a run that is not
  closed: the runner marks the claim and closes the run again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, TypeVar

import msgspec
import structlog

from admittance.events.base import Fact
from admittance.events.facts import Admitted, Finished
from admittance.events.reader import one_line
from admittance.events.stored.machines import MachineFailure
from admittance.job_rules.limits import JobLimits
from admittance.job_rules.rules import CannotRun
from admittance.runner import decide
from admittance.runner.decide import Event, Run, Stage
from admittance.runner.host.other_folders import OtherFolders
from admittance.runner.host.port import Executor, HostMachine, RunFiles, RunnerFiles
from admittance.runner.host.records import StopNote, run_key
from admittance.runner.jobs.journal import NO_ROOM
from admittance.runner.plans.devices import NotAsPlaced, part_here, runners_to_run
from admittance.runner.plans.run_plan import with_file_limit
from admittance.runner.runs.admissions import REQUESTS_MAX, AdmissionReader
from admittance.runner.runs.claims import Claim, Claims, UnpublishedEnds
from admittance.runner.runs.closed_runs import ClosedRuns, earlier_result
from admittance.runner.runs.file_transfers import FileTransfers, NoInput
from admittance.runner.runs.left_evictions import LeftEvictions
from admittance.runner.runs.machine_drain import MachineDrain
from admittance.runner.runs.publisher import Publisher, retry
from admittance.runner.runs.run_starts import identity_of, spec_of, starts_before, with_end
from admittance.runner.runs.start_gate import GatedShims
from admittance.runtime import chance
from admittance.runtime.bus.bus import Outgoing
from admittance.runtime.clock import Clock
from admittance.runtime.errors import BusRefused, BusUnavailable, SetupError
from admittance.runtime.process.settings import FILE_LIMIT
from admittance.runtime.tasks import BackgroundTasks
from admittance.runtime.telemetry.object_faults import faults

T = TypeVar("T")
log = structlog.get_logger(service="runner")


class RunManager:
    """The runs of one runner. ``runs`` holds the open runs; ``closed`` and ``given_back`` hold
    ended runs that are kept for their output. The job of a run that was given back may start again,
    on this runner or another.
    """

    def __init__(
        self,
        admissions: AdmissionReader,
        claims: Claims,
        machine: HostMachine,
        folder: RunnerFiles,
        executor: Executor,
        *,
        ttl: float,
        clock: Clock,
        limits: JobLimits,
        file_limit: int = FILE_LIMIT,
    ) -> None:
        self.admissions = admissions
        self.claims = claims
        self.machine = machine
        self.folder = folder
        self._publisher = Publisher(admissions.bus, folder.secret, clock)
        self.executor = executor
        self.other_folders = OtherFolders(admissions.bus, machine, folder)
        self.launcher = GatedShims(
            machine.shims(folder, self.on_journal_change), limits, folder.root
        )
        self.files = FileTransfers(admissions.bus, file_limit)
        self.ttl = ttl
        self.clock = clock
        self.runs: dict[str, Run] = {}
        self.folders: dict[str, RunFiles] = {}
        self.closed = ClosedRuns()
        self.given_back: dict[str, RunFiles] = {}
        self.shutting_down = False
        self.cordoned = False
        """Whether the machine gets no new jobs."""
        self.drain = MachineDrain(folder, machine, clock)
        self.name = folder.runner
        """The name of this runner."""
        self.has_name = True
        """Whether no other runner has the name of this one."""
        self.ends = UnpublishedEnds(folder.runner, ttl)
        self.left_evictions = LeftEvictions(folder.runner)
        self.answering = asyncio.Semaphore(REQUESTS_MAX)
        """The places of evictions that are answered at the same time."""
        self.left_out = False
        """Whether this runner left admissions to others, so that some may be unclaimed."""
        self.open_runs_changed = asyncio.Event()
        """The event that is set when a run begins or has ended."""
        self.idle = asyncio.Event()
        self.handling_facts = asyncio.Lock()
        """The lock that is held while this runner handles a batch of facts."""
        self.released: list[tuple[str, str]] = []
        """Workloads (namespace, name) with an admission that this runner released and may claim
        again.
        """
        self.broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """A future that gets the exception of a background task that failed; this ends the
        runner."""
        self._released: set[str] = set()
        self.hung_at: dict[str, float] = {}
        """For each run that was told to stop: when its shim counts as hung, in seconds since
        boot."""
        self.without_room: set[str] = set()
        """Runs of which the data folder does not have the start or stop yet, mostly because its
        disk is full. Their shims do not start."""
        self.ending: set[str] = set()
        """Runs without a shim whose processes are being ended."""
        self._results: dict[str, RunFiles] = {}
        """For each run the earlier run whose result counts as its own."""
        self._admitted: dict[str, Admitted] = {}
        self._traces: dict[str, str] = {}
        self._chains: dict[str, asyncio.Task[None]] = {}
        self._tasks = BackgroundTasks(self._on_failed)

    def may_claim(self, *, is_placed: bool) -> bool:
        """Whether this runner claims admissions. ``is_placed``: those that are placed on it, which
        may be placed before the machine was cordoned."""
        takes_others = not (self.cordoned or self.drain.failure is not None)
        return self.has_name and not self.shutting_down and (is_placed or takes_others)

    def add_run(self, fact: Admitted, trace: str) -> str:
        """Adds a run for an admission that is not claimed yet; returns the key of the run."""
        part = self._part_of(fact)
        key = run_key(fact.namespace, fact.name, fact.revision, part)
        self._admitted[key] = fact
        self._traces[key] = trace
        self.runs[key] = Run(
            namespace=fact.namespace,
            name=fact.name,
            uid=fact.uid,
            revision=fact.revision,
            part=part,
            placed=any(pod_set.parts for pod_set in fact.pod_sets),
        )
        return key

    def has_run(self, fact: Admitted) -> bool:
        """Whether the admission of this fact has a run, open or closed."""
        key = run_key(fact.namespace, fact.name, fact.revision, self._part_of(fact))
        return key in self.runs or key in self.closed

    def _part_of(self, fact: Admitted) -> int:
        return part_here(runners_to_run(fact.pod_sets), self.folder.runner)

    # Effects. --------------------------------------------------------------------------

    def handle(self, key: str, event: Event) -> None:
        """Applies an event to a run. The effects of the event are carried out in order, in the
        background.
        """
        run = self.runs.get(key)
        if run is None:
            return
        try:
            self.runs[key], effects = decide.step(run, event)
        except Exception as error:
            faults.record("runner", f"handle {type(event).__name__}", f"run {key}", error)
            return
        if not effects:
            return
        before = self._chains.get(key)
        work = self._carry_out(key, effects, before)
        self._chains[key] = self._tasks.start(work, name=f"run {key}")

    async def wait_for_effects(self, keys: Iterable[str]) -> None:
        """Waits until all effects that are now pending for the runs ``keys`` are carried out."""
        tasks = [self._chains[key] for key in keys if key in self._chains]
        if tasks:
            await asyncio.gather(*tasks)

    def run_in_background(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Runs ``work`` as a task; an exception in it ends the runner."""
        self._tasks.start(work, name=name)

    def _on_failed(self, _: asyncio.Task[Any], error: BaseException) -> None:
        if not self.broken.done():
            self.broken.set_exception(error)

    async def _carry_out(
        self, key: str, effects: decide.Effects, before: asyncio.Task[None] | None
    ) -> None:
        if before is not None:
            await asyncio.wait([before])
        for effect in effects:
            match effect:
                case decide.StartRun():
                    await self.drain.announced()
                    self._start(key)
                case decide.StopRun():
                    self.stop(key)
                case decide.Publish(fact):
                    files = self.folders.get(key)
                    # A closed folder: another runner that can read the folder has published the
                    # job's result already.
                    if files is None or not files.is_closed():
                        await self.publish(await self._with_outputs(fact, key), key)
                case decide.DrainMachine(reason, message):
                    await self.drain.begin(reason, message)
                case decide.MarkOver(then):
                    if then is None:
                        await self.retry(lambda: self.claims.mark_over(key))
                    else:
                        await self.end(key, then)
                case decide.Release():
                    await self.retry(lambda: self.claims.release(key))
                    files = self.folders.pop(key, None)
                    self.open_runs_changed.set()
                    if files is not None:
                        await asyncio.to_thread(files.give_back)
                        self.given_back[key] = files
                        self._released.add(key)
                case decide.Close():
                    await self._forget(key)
        if self._chains.get(key) is asyncio.current_task():
            del self._chains[key]

    async def _forget(self, key: str) -> None:
        files = self.folders.get(key)
        if files is not None:
            # The run is added to the closed runs before it is removed from the open runs, so that
            # log requests and repeated facts always find the run.
            self.closed[key] = files
            del self.folders[key]
            self.open_runs_changed.set()
        run = self.runs.pop(key)
        self.hung_at.pop(key, None)
        self._admitted.pop(key, None)
        self._results.pop(key, None)
        self._traces.pop(key, None)
        for waiting in self.launcher.forget(key):
            self._tasks.start(self.launch(waiting))
        if files is not None:
            # the lists of a run's processes and pods are dropped, because nothing reads them once
            # the run is closed
            files.journal.processes.clear()
            files.journal.ended.clear()
            if not files.close():
                await asyncio.to_thread(files.free)
        if key in self._released:
            self._released.discard(key)
            if not self.shutting_down:
                # The previous process of this runner ended before it had released the claim; this
                # process has released the claim, so the job may run again.
                self.released.append((run.namespace, run.name))
        if not self.runs:
            self.idle.set()

    def _start(self, key: str) -> None:
        run, admitted = self.runs[key], self._admitted[key]
        if self.drain.failure is not None:
            self._give_back(key, self.drain.failure)
            return
        restarts = starts_before(self.given_back.get(key))
        earlier = earlier_result(run, self.runs_of(run.namespace, run.name))
        if earlier is not None:
            log.info("earlier_result_counts", run=key, earlier=earlier.identity.key)
            assert earlier.journal.end is not None, "it has a result"
            self._results[key] = earlier
            self.handle(key, earlier.journal.end)
            return
        # Each start of a run has its own mark: after a clean shutdown of the runner the same
        # admission is started again.
        mark = f"{self.folder.runner}.{key}.{chance.token_hex(3)}"
        try:
            ends_in = None
            if admitted.ends_at is not None:
                ends_in = (admitted.ends_at - self.clock()).total_seconds()
            again = msgspec.structs.replace(admitted, restarts=admitted.restarts + restarts)
            plan = with_file_limit(self.executor.run_plan(again, mark), self.files.limit)
            plan = with_end(plan, ends_in, self.machine.boot_seconds())
            identity = identity_of(
                run, admitted, plan, runner=self.folder.runner, mark=mark, restarts=restarts
            )
            files = self.folder.folder_of(identity)
            files.write(spec_of(plan, identity, self.folder, self.ttl))
            self.drain.note(files)
        except OSError as error:
            if error.errno in NO_ROOM:
                self._try_later(key, error)
                self.launcher.wait_for_room(key)
                return
            raise SetupError(
                f"cannot write to the data folder {self.folder.root} ({error.strerror}): "
                "set its rights, or choose another folder with --data-dir"
            ) from error
        except SetupError:
            raise
        except NotAsPlaced as error:
            reason = one_line(str(error), decide.MESSAGE_MAX)
            log.warning("not_as_placed", run=key, message=reason)
            self.handle(key, decide.Ended("lost", reason))
            return
        except CannotRun as error:
            reason = one_line(str(error), decide.MESSAGE_MAX)
            log.info("job_cannot_run", run=key, message=reason)
            self.handle(key, decide.Unstartable(reason))
            return
        except Exception as error:
            # The data of one job must not end the runner, which would read the job again.
            reason = faults.record("runner", "plan a job", f"run {key}", error)
            self.handle(key, decide.Unstartable(f"the runner cannot plan the job: {reason}"))
            return
        self.without_room.discard(key)
        self.given_back.pop(key, None)
        self.folders[key] = files
        self.open_runs_changed.set()
        log.info("job_starting", run=key, pods=identity.pods)
        self._tasks.start(self.launch(files), name=f"launch {key}")

    def try_again(self, key: str) -> None:
        """Starts or stops a run that could not be written, unless it has ended since."""
        run = self.runs.get(key)
        if run is not None and run.stage is Stage.STARTING:
            self._start(key)
        elif run is not None and run.stage is Stage.STOPPING:
            self.stop(key)
        else:
            self.without_room.discard(key)

    def _try_later(self, key: str, error: OSError) -> bool:
        """Notes a run that cannot be written now; returns whether it is the first attempt."""
        if key in self.without_room:
            return False
        event = "disk_full" if error.errno in NO_ROOM else "run_not_written"
        log.warning(event, run=key, folder=str(self.folder.root), error=error.strerror)
        self.without_room.add(key)
        return True

    def _give_back(self, key: str, failure: MachineFailure) -> None:
        """Gives back a run of which nothing has started, since the machine is drained."""
        message = f"runner {self.name} is drained: {failure.message}"
        self.handle(key, decide.Ended("unprepared", one_line(message, decide.MESSAGE_MAX)))

    async def launch(self, files: RunFiles) -> None:
        """Starts a shim for the run, unless the run must wait or has ended."""
        self.launcher.set_problem(await self.executor.problem())
        key = files.identity.key
        if self.drain.failure is not None and not self.launcher.has_started(key):
            self._give_back(key, self.drain.failure)
        elif self.folders.get(key) is files and key not in self.without_room:
            await self.launcher.launch(files, self._bring_inputs)

    async def _bring_inputs(self, files: RunFiles) -> bool:
        """Brings the inputs of a run; returns whether its shim may start."""
        key = files.identity.key
        try:
            is_ready = await self.files.bring(files)
        except NoInput as error:
            log.info("job_cannot_run", run=key, message=str(error))
            self.handle(key, decide.Unstartable(one_line(str(error), decide.MESSAGE_MAX)))
            return False
        except (BusRefused, BusUnavailable, OSError) as error:
            log.warning("inputs_not_brought", run=key, error=str(error))
            self.launcher.wait_for_inputs(key, str(error))
            return False
        if is_ready:
            self.launcher.has_inputs(key)
        return is_ready

    def runs_of(self, namespace: str, name: str) -> list[RunFiles]:
        """The open and the closed runs of a workload."""
        mine = run_key(namespace, name, 0)[:-1]
        open_ones = [files for key, files in self.folders.items() if key.startswith(mine)]
        return [*open_ones, *self.closed.of(namespace, name)]

    def stop(self, key: str) -> None:
        """Writes the stop note of the run and tells its shim to stop the pods."""
        run, found = self.runs[key], self.folders.get(key)
        if found is None:
            if key in self.without_room:
                self.without_room.discard(key)
                self.handle(key, decide.Ended("stopped", "stopped before it started"))
            return
        note = StopNote(evicted=run.evicted, leaving=run.leaving, claim_lost=run.claim_lost)
        try:
            found.note_stop(note)
            self.without_room.discard(key)
        except FileNotFoundError:
            return  # the folder of the run was removed: `run_checks` ends the run
        except OSError as error:
            # A shim that has not started yet would not know of the stop.
            if not (self._try_later(key, error) and self.launcher.has_started(key)):
                return
        log.info("job_stopping", run=key, evicted=run.evicted, leaving=run.leaving)
        waits_for_inputs = found.identity.transfers is not None and not found.shim_pid()
        if self.launcher.stop(found) or waits_for_inputs:
            self._tasks.start(self.launch(found))

    # Publishing. -----------------------------------------------------------------------

    async def _with_outputs(self, fact: Fact, key: str) -> Fact:
        """The result of a run with its outputs, which are stored first."""
        files = self._results.get(key) or self.folders.get(key)
        if not isinstance(fact, Finished) or files is None or files.journal.end is None:
            return fact
        outputs = await self.files.store(files)
        return msgspec.structs.replace(fact, outputs=outputs) if outputs else fact

    async def publish(
        self, fact: Fact, key: str = "", *, start: str = "", secret: bytes = b""
    ) -> None:
        """Publishes the fact, repeatedly until the log has it.

        ``start``, ``secret``: for a run of another runner, the mark of the run and the secret of
        that runner's folder.
        """
        trace = self._traces.get(key, "")
        start = self._mark_of(key) or start
        await self._publisher.publish(fact, key, start=start, trace=trace, secret=secret)

    async def end(self, key: str, fact: Fact) -> None:
        """Marks a claim as over and publishes the end of its job, unless another runner has the
        claim or has marked it."""
        mark = await self.retry(lambda: self.claims.mark_over(key, before_end=True))
        if mark is not None:
            await self.publish_after(mark, fact, key)

    async def publish_after(self, mark: Claim, fact: Fact | None, key: str) -> None:
        """Publishes the end of a job (None: it is published) after this runner has marked its
        claim; with the message id that another runner would use."""
        if fact is not None:
            trace = self._traces.get(key, "")
            await self._publisher.publish(fact, key, trace=trace, secret=mark.end.encode())
        await self.retry(lambda: self.claims.note_published(key, mark))

    def message(self, fact: Fact, key: str, what: str) -> Outgoing:
        """The fact as a message; ``what``: distinguishes the facts of a run."""
        trace = self._traces.get(key, "")
        return self._publisher.message(fact, what, start=self._mark_of(key), trace=trace)

    def _mark_of(self, key: str) -> str:
        files = self.folders.get(key)
        return "" if files is None else files.identity.mark

    async def retry(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Repeats a request until the bus answers, and returns the answer."""
        return await retry(ask)

    # Journals. -------------------------------------------------------------------------

    def on_journal_change(self, key: str) -> None:
        """Reads the journal of a run after it has grown."""
        files = self.folders.get(key)
        if files is not None:
            files.read_journal()
            self.report_journal(key, files)

    def report_journal(self, key: str, files: RunFiles) -> None:
        """Turns the journal of a run into events for the core; an event that the core has had
        before changes nothing."""
        journal = files.journal
        if journal.up:
            self.launcher.start_done(key)
            self.handle(key, decide.Up())
        if journal.ready:
            self.handle(key, decide.PodsAllReady())
        if journal.result is not None:
            self.launcher.start_done(key)
            self.handle(key, decide.ResultKnown(journal.result))
        if journal.outcome is not None:
            self.launcher.start_done(key)
            if journal.outcome.kind == "lost":
                self.executor.doubt()
            outcome = journal.outcome
            if outcome.kind == "unprepared":
                message = one_line(f"runner {self.name}: {outcome.message}", decide.MESSAGE_MAX)
                outcome = msgspec.structs.replace(outcome, message=message)
            self.handle(key, outcome)

    async def close(self) -> None:
        await self._tasks.end()
        await self.launcher.close()
        self.broken.cancel()
