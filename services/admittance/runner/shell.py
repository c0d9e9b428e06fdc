"""The runner: hears facts, claims and journals; asks the core; carries out what it answers.

What a crash leaves behind, step by step. A claim without a folder: the fact is not acknowledged,
comes again, and the claim is found to be ours. A folder without a shim: handed to a shim again,
which starts nothing twice. A stop noted but not sent: the note is read at the next start. An end in
the journal but not said: said then, under the same message id. Said but the claim not buried, or
the folder not closed: both are done again.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Final, TypeVar

import msgspec
import structlog

from admittance.events.base import HEADER_MSG_ID, HEADER_SCHEMA, SCHEMA_VERSION, Fact
from admittance.events.codec import encode
from admittance.events.facts import Admitted
from admittance.events.subjects import subject_of
from admittance.runner import decide
from admittance.runner.claims import Claims
from admittance.runner.decide import Event, Run, Stage
from admittance.runner.folder import (
    ClosedRuns,
    DataFolder,
    Identity,
    RunFolder,
    Spec,
    StopNote,
    run_key,
)
from admittance.runner.launcher import Executor, Launcher
from admittance.runner.other_folders import OtherFolders, OtherRun
from admittance.runner.plan import CannotRun, Plan
from admittance.runner.world import World
from admittance.runtime.bus.bus import Outgoing
from admittance.runtime.bus.message_ids import message_id
from admittance.runtime.clock import Clock, monotonic
from admittance.runtime.errors import Refused, SetupError, Unavailable
from admittance.runtime.telemetry import tracing
from admittance.runtime.telemetry.seldom import Seldom

AGAIN_SECONDS: Final = 0.5
"""Between two tries of what the bus did not take."""

LEAVE_LOOK_SECONDS: Final = 0.2
"""Between two looks at what still runs, at the end."""

T = TypeVar("T")
log = structlog.get_logger(service="runner")


class Shell:
    """One runner. ``runs`` are those that are not closed; ``closed`` and ``given_back`` are kept
    for their output. What was given back may run again, here or elsewhere."""

    def __init__(
        self,
        world: World,
        claims: Claims,
        folder: DataFolder,
        executor: Executor,
        *,
        ttl: float,
        clock: Clock,
    ) -> None:
        self.world = world
        self.claims = claims
        self.folder = folder
        self._secret = folder.secret
        self.executor = executor
        self.others = OtherFolders(world.bus, folder)
        self.launcher = Launcher(folder, self.on_news)
        self.ttl = ttl
        self.clock = clock
        self.runs: dict[str, Run] = {}
        self.folders: dict[str, RunFolder] = {}
        self.closed = ClosedRuns()
        self.given_back: dict[str, RunFolder] = {}
        self.leaving = False
        self.idle = asyncio.Event()
        self.at_work = asyncio.Lock()
        """Held while a batch of facts is dealt with."""
        self.returned: list[tuple[str, str]] = []
        """Workloads whose admission we gave back and may take on again."""
        self.broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done with the error when something failed that must not."""
        self._returned: set[str] = set()
        self._admitted: dict[str, Admitted] = {}
        self._traces: dict[str, str] = {}
        self._chains: dict[str, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, fact: Admitted, trace: str) -> str:
        """A run for an admission that is not ours yet; its key."""
        key = run_key(fact.namespace, fact.name, fact.revision)
        self._admitted[key] = fact
        self._traces[key] = trace
        self.runs[key] = Run(
            namespace=fact.namespace, name=fact.name, uid=fact.uid, revision=fact.revision
        )
        return key

    def knows(self, fact: Admitted) -> bool:
        """Whether the admission has a run, open or closed."""
        key = run_key(fact.namespace, fact.name, fact.revision)
        return key in self.runs or key in self.closed

    # Events in, effects out. -----------------------------------------------------------

    def happen(self, key: str, event: Event) -> None:
        """Asks the core; the effects are carried out one after the other, per run."""
        run = self.runs.get(key)
        if run is None:
            return
        self.runs[key], effects = decide.step(run, event)
        if not effects:
            return
        before = self._chains.get(key)
        task = asyncio.create_task(self._carry_out(key, effects, before), name=f"run {key}")
        self._chains[key] = task
        self._keep(task)

    async def settled(self, keys: Iterable[str]) -> None:
        """Waits until what is to be done for these runs now is done."""
        tasks = [self._chains[key] for key in keys if key in self._chains]
        if tasks:
            await asyncio.gather(*tasks)

    def keep(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Does work beside everything else; an error in it ends the runner."""
        self._keep(asyncio.create_task(work, name=name))

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None and not self.broken.done():
            self.broken.set_exception(task.exception() or RuntimeError())

    async def _carry_out(
        self, key: str, effects: decide.Effects, before: asyncio.Task[None] | None
    ) -> None:
        if before is not None:
            await asyncio.wait([before])
        for effect in effects:
            match effect:
                case decide.Start():
                    self._start(key)
                case decide.Stop():
                    self._stop(key)
                case decide.Say(fact):
                    found = self.folders.get(key)
                    # Another runner that could read the folder may have said all of it.
                    if found is None or not found.is_closed():
                        await self.say(fact, key)
                case decide.Bury(then):
                    if await self.insist(lambda: self.claims.bury(key)) and then is not None:
                        await self.say(then, key)
                case decide.Release():
                    await self.insist(lambda: self.claims.release(key))
                    found = self.folders.pop(key, None)
                    if found is not None:
                        await asyncio.to_thread(found.give_back)
                        self.given_back[key] = found
                        self._returned.add(key)
                case decide.Forget():
                    await self._forget(key)
        if self._chains.get(key) is asyncio.current_task():
            del self._chains[key]

    async def _forget(self, key: str) -> None:
        found = self.folders.get(key)
        if found is not None:
            # First here, then there no more: the logs and repeated facts find it at any moment.
            self.closed[key] = found
            del self.folders[key]
        run = self.runs.pop(key)
        self._admitted.pop(key, None)
        self._traces.pop(key, None)
        self.launcher.settled(key)
        if found is not None:
            found.journal.processes.clear()  # nobody will look for them any more
            await asyncio.to_thread(found.close)
        if key in self._returned:
            self._returned.discard(key)
            if not self.leaving:
                # An end of the runner before this one, finished only now: it runs again.
                self.returned.append((run.namespace, run.name))
        if not self.runs:
            self.idle.set()

    def _start(self, key: str) -> None:
        run, admitted = self.runs[key], self._admitted[key]
        earlier = self._earlier_result(run)
        if earlier is not None:
            log.info("earlier_result_counts", run=key, earlier=earlier.identity.key)
            assert earlier.journal.outcome is not None, "it has a result"
            self.happen(key, decide.Ended(*earlier.journal.outcome, earlier.journal.exit_code))
            return
        # A name of its own for every start: after a clean end the same admission runs again.
        mark = f"{self.folder.runner}.{key}.{secrets.token_hex(3)}"
        try:
            plan = self.executor.plan(admitted, mark)
        except CannotRun as error:
            log.info("job_cannot_run", run=key, message=str(error))
            self.happen(key, decide.Unstartable(str(error)))
            return
        identity = Identity(
            key=key,
            namespace=run.namespace,
            name=run.name,
            uid=run.uid,
            revision=run.revision,
            mark=mark,
        )
        found = self.folder.folder_of(identity)
        try:
            found.write(self._spec(plan, identity, mark))
        except OSError as error:
            raise SetupError(
                f"cannot write to the data folder {self.folder.root} ({error.strerror}): "
                "make room, or choose another with --data-dir"
            ) from error
        self.given_back.pop(key, None)
        self.folders[key] = found
        log.info("job_starting", run=key, pods=sum(each.parallel for each in plan.sets))
        self._keep(asyncio.create_task(self.launcher.launch(found), name=f"launch {key}"))

    def _earlier_result(self, run: Run) -> RunFolder | None:
        """The run of an earlier admission of the same workload whose result came too late to count:
        the work is done, so it is not done again."""
        mine = run_key(run.namespace, run.name, 0)[:-1]
        open_ones = [found for key, found in self.folders.items() if key.startswith(mine)]
        for found in [*open_ones, *self.closed.of(run.namespace, run.name)]:
            if found.identity.uid != run.uid or found.identity.revision >= run.revision:
                continue
            found.read_journal()
            if found.journal.is_result:
                return found
        return None

    def _spec(self, plan: Plan, identity: Identity, mark: str) -> Spec:
        # Both before the TTL ends: SIGTERM early enough for the grace, SIGKILL in any case.
        kill = self.ttl * 0.95
        stop = kill - max(self.ttl * 0.15, min(plan.grace, self.ttl / 3))
        return Spec(
            **{name: getattr(plan, name) for name in plan.__struct_fields__},
            key=identity.key,
            mark=mark,
            namespace=identity.namespace,
            name=identity.name,
            uid=identity.uid,
            revision=identity.revision,
            notify=str(self.folder.notify),
            lease=str(self.folder.lease),
            lease_stop=stop,
            lease_kill=kill,
        )

    def _stop(self, key: str) -> None:
        run, found = self.runs[key], self.folders.get(key)
        if found is None:
            return
        note = StopNote(evicted=run.evicted, leaving=run.leaving, claim_lost=run.claim_lost)
        found.note_stop(note)
        log.info("job_stopping", run=key, evicted=run.evicted, leaving=run.leaving)
        self.launcher.stop(found)

    # Saying. ---------------------------------------------------------------------------

    async def say_result_of(self, other: OtherRun) -> None:
        """Says what came of a run of another runner, as that one would; it need not any more."""
        who = other.folder.identity
        run = Run(namespace=who.namespace, name=who.name, uid=who.uid, revision=who.revision)
        journal = other.folder.journal
        assert journal.outcome is not None, "it has ended"
        result = decide.result_of(run, *journal.outcome, journal.exit_code)
        await self.say(result, start=who.mark, secret=other.secret or self._secret)
        await asyncio.to_thread(other.folder.mark_said)

    async def say(self, fact: Fact, key: str = "", *, start: str = "", secret: bytes = b"") -> None:
        """States the fact until the log has it. The message id makes twice once.

        ``start``, ``secret``: the mark of its run and the secret of the folder, where both are
        another runner's.
        """
        what = subject_of(fact).split(".")[2]
        found = self.folders.get(key)
        start = found.identity.mark if found is not None else start
        headers = {
            HEADER_MSG_ID: message_id(
                secret or self._secret, fact.uid, getattr(fact, "revision", 0), start, what
            ),
            HEADER_SCHEMA: SCHEMA_VERSION,
        }
        tracing.inject(headers, self._traces.get(key, ""))
        said = msgspec.structs.replace(fact, time=self.clock())
        message = Outgoing(subject_of(fact), encode(said), headers)
        await self.insist(lambda: self.world.bus.publish(message))
        log.info("fact_said", what=what, run=key, namespace=fact.namespace, workload=fact.name)

    async def insist(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Asks until the bus answers."""
        told = Seldom()
        while True:
            try:
                return await ask()
            except (Unavailable, Refused) as error:
                if told.due(monotonic()):
                    log.warning("bus_asked_again", error=str(error))
                await asyncio.sleep(AGAIN_SECONDS)

    # Journals. -------------------------------------------------------------------------

    def on_news(self, key: str) -> None:
        """The journal of a run has grown."""
        found = self.folders.get(key)
        if found is not None:
            found.read_journal()
            self.report(key, found)

    def report(self, key: str, found: RunFolder) -> None:
        """Tells the core how the run stands; what it knows already changes nothing."""
        journal = found.journal
        if journal.up:
            self.launcher.settled(key)
            self.happen(key, decide.Up())
        if journal.ready:
            self.happen(key, decide.Ready())
        if journal.outcome is not None:
            self.launcher.settled(key)
            self.happen(key, decide.Ended(*journal.outcome, journal.exit_code))

    async def look_after(self) -> None:
        """What no news tell: shims that died, shims that never came, news that were lost."""
        for count, (key, found) in enumerate(list(self.folders.items())):
            if count % 50 == 49:
                await asyncio.sleep(0)
            if found.read_journal():
                self.report(key, found)
            if found.journal.outcome is not None:
                continue
            if not found.shim_pid():
                if self.runs[key].stage is not Stage.ENDED:
                    self._keep(asyncio.create_task(self.launcher.launch(found)))
            elif not found.shim_lives():
                found.read_journal()  # its last words came before its end
                self.report(key, found)
                if found.journal.outcome is None:
                    await self._lost(key, found)

    async def _lost(self, key: str, found: RunFolder) -> None:
        log.warning("shim_died", run=key)
        await self.executor.sweep(found.identity.mark, found.journal.processes)
        self.happen(key, decide.Ended("lost", "the processes' keeper died"))

    # The end. --------------------------------------------------------------------------

    async def leave(self, seconds: float, gone_seconds: float) -> bool:
        """Stops all jobs and gives their claims back; False when that took too long. While the bus
        is away, jobs still get their grace; it is waited for only ``gone_seconds`` after that."""
        self.leaving = True
        for key in list(self.runs):
            self.happen(key, decide.Leave())
        left = gone_seconds
        try:
            async with asyncio.timeout(seconds):
                while self.runs and left > 0:
                    self.idle.clear()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(LEAVE_LOOK_SECONDS):
                            await self.idle.wait()
                    if self.world.bus.is_up:
                        left = gone_seconds
                        continue
                    self._stop_without_bus()
                    at_work = any(map(_is_at_work, self.folders.values()))
                    left = gone_seconds if at_work else left - LEAVE_LOOK_SECONDS
        except TimeoutError:
            return False
        return not self.runs

    def _stop_without_bus(self) -> None:
        """Tells those to stop that wait for the bus with something else before that."""
        for key, found in self.folders.items():
            if self.runs[key].stage is Stage.STOPPING and found.stop_note() is None:
                self._stop(key)

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.launcher.close()
        self.broken.cancel()


def _is_at_work(run: RunFolder) -> bool:
    """Whether processes of the run may still run."""
    run.read_journal()
    return run.journal.outcome is None and run.shim_lives()
