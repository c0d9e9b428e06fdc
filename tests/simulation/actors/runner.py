"""The runner: its pure moves (`admittance.runner.decide`) over claims and jobs in memory.

What its shell does with files and processes is told here in a few words: a `Folder` is what
outlives the process, a `Job` is a shim with its pods, which runs on when the runner dies and ends
by itself when the lease is not renewed. Hearing, recovering and mourning follow
`admittance.runner.fact_handlers` and `admittance.runner.fact_handlers`, question by question.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import msgspec

from admittance.events.codec import decode, encode
from admittance.events.facts import Admitted, Evicted, PodsNotReady, PodsReady, Stopped
from admittance.events.names import token
from admittance.events.subjects import subject_of, workload_key
from admittance.runner import decide
from admittance.runner.admissions import AdmissionState, AdmissionView, view, view_of
from admittance.runner.decide import Run, Stage
from admittance.workload import stored as workloads
from simulation.actors.jobs import Folder, Job
from simulation.actors.service import Service
from simulation.courses import Course
from simulation.kernel import Killed, Signal
from simulation.link import Feed, Unavailable
from simulation.stream import EXPECTED, MARKER, MESSAGE_ID, OPERATION, Outgoing, Refused, Stored

AGAIN: Final = 0.5
VERDICT: Final = "Admit-Claim"


class Runner(Service):
    """One life of a runner on its folder."""

    kind = "runner"
    folder: Folder
    course_of: Callable[[], Course]
    on_start: Callable[[str, str], None]
    on_end_of_job: Callable[[str, str], None]

    def start(self) -> None:
        self.folder.service = self
        self.runs: dict[str, Run] = {}
        self._chains: dict[str, list[decide.Effects]] = {}
        self._buffer: list[Stored] = []
        self._come = Signal()
        self._claims_buffer: list[Stored] = []
        self._claims_come = Signal()
        self.ready = False
        self.process.start(self._run())

    def ended(self) -> None:
        self.folder.service = None

    # Saying and asking. ---------------------------------------------------------------

    def _insist(self, question: Callable[[], Any]) -> Any:
        while True:
            try:
                return (yield from self.link.ask(question))
            except Unavailable:
                yield AGAIN

    def _say(self, fact: Any, again: str = "") -> Any:
        subject = subject_of(fact)
        what = subject.split(".")[2]
        headers = {MESSAGE_ID: f"runner/{fact.uid}/{fact.revision}/{what}{again}"}
        message = Outgoing(subject, encode(fact), headers)
        while True:
            try:
                yield from self.link.publish_all(self.server.publish, [message])
            except Unavailable:
                yield AGAIN
                continue
            self.tell(f"said {what} of {fact.name} at {fact.revision}")
            return

    # Claims. ----------------------------------------------------------------------------

    def _claim(self, key: str) -> tuple[str, str, int]:
        """State, holder and revision, as `admittance.runner.claims` reads them."""
        found = self.server.claims.last.get(key)
        if found is None:
            return "free", "", 0
        if not found.gone:
            return "held", found.data.decode(), found.sequence
        if found.headers.get(MARKER) == "MaxAge":
            return "expired", "", found.sequence
        if found.headers.get(VERDICT) == "over":
            return "over", found.headers.get("Admit-Runner", ""), found.sequence
        return "free", "", found.sequence

    def _take(self, key: str, again: bool) -> Any:
        """Claims the key; True when it is ours now. One server-side step per question."""
        if not self.mechanisms.claims:
            return True
        outcome = yield from self._insist(lambda: self._put(key, 0))
        if isinstance(outcome, Refused):
            state, holder, revision = yield from self._insist(lambda: self._claim(key))
            ours = state == "held" and holder == self.instance
            if not (ours or state == "free" or (again and state == "expired")):
                return state
            outcome = yield from self._insist(lambda: self._put(key, revision))
            if isinstance(outcome, Refused):
                state, holder, _ = yield from self._insist(lambda: self._claim(key))
                return state if holder != self.instance else True
        self.folder.held[key] = outcome
        return True

    def _put(self, key: str, expected: int) -> int | Refused:
        message = Outgoing(key, self.instance.encode(), {EXPECTED: str(expected)})
        return self.server.claims.publish(message)

    def _bury(self, key: str, *, dead_only: bool = False) -> Any:
        self.folder.held.pop(key, None)
        while True:
            state, holder, revision = yield from self._insist(lambda: self._claim(key))
            if state == "over":
                return holder == self.instance and not dead_only
            if state == "held" and holder != self.instance:
                return False
            if dead_only and state != "expired":
                return False
            marker = Outgoing(
                key,
                b"",
                {
                    EXPECTED: str(revision),
                    OPERATION: "DEL",
                    VERDICT: "over",
                    "Admit-Runner": self.instance,
                },
            )
            outcome = yield from self._insist(partial(self.server.claims.publish, marker))
            if not isinstance(outcome, Refused):
                return True

    # The bucket. --------------------------------------------------------------------------

    def _view(self, namespace: str, name: str) -> AdmissionView | None:
        entry = self.server.bucket.last.get(workload_key(namespace, name))
        if entry is None or entry.gone:
            return None
        return view(workloads.decode(entry.data), entry.sequence)

    def _standing(self, namespace: str, name: str, revision: int) -> AdmissionView:
        return view_of(self._view(namespace, name), revision)

    def _last_admitted(self, namespace: str, name: str) -> Admitted | None:
        subject = f"admit.workload.admitted.{token(namespace)}.{token(name)}"
        found = self.server.log.last.get(subject)
        if found is None:
            return None
        fact = decode(subject, found.data)
        return fact if isinstance(fact, Admitted) else None

    # Life. --------------------------------------------------------------------------------

    def _run(self) -> Any:
        end = yield from self._insist(lambda: self.server.log.end)
        yield from self._insist(lambda: self._listen(end))
        yield from self._recover()
        self.ready = True
        self.process.start(self._heed())
        while True:
            while not self._buffer:
                self._come.clear()
                yield self._come
            batch, self._buffer = self._buffer, []
            facts = [decode(stored.subject, stored.data) for stored in batch]
            yield from self._admit([fact for fact in facts if isinstance(fact, Admitted)])
            for fact in facts:
                if isinstance(fact, Evicted):
                    yield from self._evict(fact)

    def _listen(self, end: int) -> None:
        log, claims = self.server.log, self.server.claims
        wanted = ("admit.workload.admitted.", "admit.workload.evicted.")

        def heard(stored: Stored) -> None:
            self._buffer.append(stored)
            self._come.set()

        def claimed(stored: Stored) -> None:
            self._claims_buffer.append(stored)
            self._claims_come.set()

        feed = Feed(self.link, log, lambda subject: subject.startswith(wanted), heard)
        for stored in log.messages[end:]:
            if stored.subject.startswith(wanted):
                feed.deliver(stored)
        watch = Feed(self.link, claims, lambda _: True, claimed)
        for stored in sorted(claims.last.values()):
            watch.deliver(stored)
        self.closing += [feed.close, watch.close]

    def _recover(self) -> Any:
        folder = self.folder
        for key, run in folder.runs.items():
            self.runs[key] = msgspec.structs.replace(
                run, stage=run.stage if run.stage is Stage.STOPPING else Stage.STARTING
            )
            if run.stage is Stage.STOPPING:
                folder.jobs[key].stop("stopped")
        for key in list(folder.runs):
            if folder.jobs[key].outcome is None and (yield from self._take(key, True)) is not True:
                self._happen(key, decide.ClaimLost())
        entries = yield from self._insist(
            lambda: [one for one in sorted(self.server.bucket.last.values()) if not one.gone]
        )
        views: dict[tuple[str, str], AdmissionView] = {}
        for entry in entries:
            if entry.subject.startswith("workload.") and b'"Admitted"' in entry.data:
                workload = workloads.decode(entry.data)
                seen = view(workload, entry.sequence)
                if seen.revision:
                    views[workload.metadata.namespace, workload.metadata.name] = seen
        for key, run in list(self.runs.items()):
            seen = view_of(views.get((run.namespace, run.name)), run.revision)
            if seen.state is AdmissionState.EVICTED:
                self._happen(key, decide.JobEvicted(seen.evicted))
            elif seen.state is AdmissionState.OVER and folder.jobs[key].outcome is None:
                self._happen(key, decide.JobEvicted(run.revision + 1))
        for key in list(folder.runs):
            if folder.jobs[key].is_silent:
                continue
            self._report(folder.jobs[key])
            if self.runs.get(key) is not None and self.runs[key].stage is Stage.STARTING:
                self._launch(key)
        for (namespace, name), seen in views.items():
            key = _key(namespace, name, seen.revision)
            if key in self.runs or key in folder.closed:
                continue
            if seen.state is AdmissionState.EVICTED:
                yield from self._settle(namespace, name, seen.uid, seen.evicted)
            elif seen.state is AdmissionState.CURRENT:
                yield from self._consider(namespace, name)

    def _admit(self, facts: list[Admitted]) -> Any:
        keys = []
        for fact in facts:
            key = _key(fact.namespace, fact.name, fact.revision)
            if key in self.runs or key in self.folder.closed:
                continue
            self.runs[key] = Run(
                namespace=fact.namespace, name=fact.name, uid=fact.uid, revision=fact.revision
            )
            keys.append(key)
        for key in keys:
            run = self.runs[key]
            taken = yield from self._take(key, False)
            if taken is not True:
                self._happen(key, decide.NotOurs())
                if taken == "expired":
                    yield from self._mourn(run.namespace, run.name, run.revision)
                continue
            seen = yield from self._insist(
                partial(self._standing, run.namespace, run.name, run.revision)
            )
            if seen.state is AdmissionState.OVER:
                yield from self._bury(key)
                self._happen(key, decide.NotOurs())
                continue
            if seen.state is AdmissionState.EVICTED:
                self._happen(key, decide.JobEvicted(seen.evicted))
            self._happen(key, decide.Claimed())

    def _evict(self, fact: Evicted) -> Any:
        keys = decide.runs_to_evict(self.runs, fact.namespace, fact.name, fact.revision)
        if any(self.runs[key].evicted for key in keys):
            last = yield from self._insist(lambda: self._last_admitted(fact.namespace, fact.name))
            admitted = last.revision if last is not None else 0
            keys = decide.runs_to_evict(
                self.runs, fact.namespace, fact.name, fact.revision, admitted
            )
        for key in keys:
            self._happen(key, decide.JobEvicted(fact.revision))
        if not keys:
            yield from self._settle(fact.namespace, fact.name, fact.uid, fact.revision)

    def _settle(self, namespace: str, name: str, uid: str, evicted: int) -> Any:
        admitted = yield from self._insist(lambda: self._last_admitted(namespace, name))
        if admitted is not None and admitted.revision < evicted:
            buried = yield from self._bury(_key(namespace, name, admitted.revision))
            if not buried:
                return
        yield from self._say(Stopped(namespace=namespace, name=name, uid=uid, revision=evicted))

    def _mourn(self, namespace: str, name: str, revision: int) -> Any:
        if not (yield from self._bury(_key(namespace, name, revision), dead_only=True)):
            return
        seen = yield from self._insist(lambda: self._standing(namespace, name, revision))
        lost = Stopped(
            namespace=namespace,
            name=name,
            uid=seen.uid,
            revision=revision,
            reason=decide.NODE_FAILURES,
        )
        if seen.state is AdmissionState.CURRENT:
            yield from self._say(lost)
        elif seen.state is AdmissionState.EVICTED:
            yield from self._say(msgspec.structs.replace(lost, revision=seen.evicted, reason=""))

    def _consider(self, namespace: str, name: str) -> Any:
        seen = yield from self._insist(lambda: self._view(namespace, name))
        if seen is None or seen.state is not AdmissionState.CURRENT:
            return
        admitted = yield from self._insist(lambda: self._last_admitted(namespace, name))
        if admitted is not None and admitted.revision == seen.revision:
            yield from self._admit([admitted])

    def _heed(self) -> Any:
        while True:
            while not self._claims_buffer:
                self._claims_come.clear()
                yield self._claims_come
            stored = self._claims_buffer.pop(0)
            key = stored.subject
            namespace, name, revision = key.split(".")
            over = stored.headers.get(VERDICT) == "over"
            if over or (not stored.gone and stored.data.decode() == self.instance):
                continue
            if key in self.runs:
                if stored.sequence > self.folder.held.get(key, stored.sequence):
                    self.folder.held.pop(key, None)
                    self._happen(key, decide.ClaimLost())
                continue
            if stored.headers.get(MARKER) == "MaxAge":
                yield from self._mourn(namespace, name, int(revision))
            elif stored.gone:
                yield from self._consider(namespace, name)

    # Events in, effects out. ------------------------------------------------------------

    def _happen(self, key: str, event: decide.Event) -> None:
        run = self.runs.get(key)
        if run is None:
            return
        self.runs[key], effects = decide.step(run, event)
        if not effects:
            return
        chain = self._chains.get(key)
        if chain is not None:
            chain.append(effects)
            return
        self._chains[key] = [effects]
        self.process.start(self._carry_out(key))

    def _carry_out(self, key: str) -> Any:
        chain = self._chains[key]
        while chain:
            for effect in chain.pop(0):
                yield from self._effect(key, effect)
        del self._chains[key]

    def _effect(self, key: str, effect: decide.Effect) -> Any:
        folder = self.folder
        match effect:
            case decide.Start():
                if key not in folder.jobs:
                    folder.runs[key] = self.runs[key]
                    folder.jobs[key] = Job(self.kernel, key, self._news)
                    yield 0.001 + self.kernel.rng.random() * 0.05
                    self._launch(key)
            case decide.Stop():
                if key in folder.jobs:
                    folder.runs[key] = self.runs[key]
                    folder.jobs[key].stop("stopped")
            case decide.Publish(fact):
                yield from self._say(fact)
            case decide.MarkOver(then):
                buried = yield from self._bury(key)
                if buried and then is not None:
                    yield from self._say(then)
            case decide.Release():
                raise Killed("no runner leaves in order here")
            case decide.Close():
                self.runs.pop(key, None)
                if folder.runs.pop(key, None) is not None:
                    folder.closed.add(key)

    # Jobs. ------------------------------------------------------------------------------

    def _launch(self, key: str) -> None:
        job = self.folder.jobs[key]
        if not job.started and job.outcome is None:
            self.on_start(key, self.instance)
            job.start(self.course_of())

    def _news(self, job: Job) -> None:
        if job.outcome is not None:
            self.on_end_of_job(job.key, job.outcome[0])
        service = self.folder.service
        if service is not None and not job.is_silent:
            service.process.do(lambda: service._report(job))

    def _report(self, job: Job) -> None:
        if job.up:
            self._happen(job.key, decide.Up())
            if job.flaps:
                self.process.start(self._turn(job))
            elif job.ready:
                self._happen(job.key, decide.PodsAllReady())
        if job.outcome is not None:
            self._happen(job.key, decide.Ended(*job.outcome))

    def _turn(self, job: Job) -> Any:
        """Pods are not ready any more, or again: the shell of today tells only the first time, but
        foreign runners do."""
        run = self.runs.get(job.key)
        if run is None or job.outcome is not None:
            return
        kind = PodsReady if job.ready else PodsNotReady
        fact = kind(namespace=run.namespace, name=run.name, uid=run.uid, revision=run.revision)
        yield from self._say(fact, str(job.flaps))


def _key(namespace: str, name: str, revision: int) -> str:
    return f"{token(namespace)}.{token(name)}.{revision}"
