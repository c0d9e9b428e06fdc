"""Executes a plan against a live system: submits workloads on time and plays the runner."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Final, NamedTuple

import msgspec

from admittance.api.fields.units import render
from admittance.bench import generator
from admittance.bench.connection import until_settled
from admittance.bench.generator import RESOURCE, BenchPlan, PlannedWorkload
from admittance.client.errors import ClientError, RequestFailed
from admittance.client.requests.link import Link
from admittance.events.names import token
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import PASSING, AdmittanceError
from admittance.runtime.nats.jetstream import Ack
from admittance.runtime.nats.protocol import frame
from admittance.runtime.process.progress import NO_STEPS, Steps
from admittance.runtime.tasks import set_within

IN_FLIGHT_MAX: Final = 2000
"""The greatest number of submissions that may be without an acknowledgement at the same time: the
server limits the queue of unwritten messages of a stream.
"""
SAMPLE_SECONDS: Final = 1.0
STALL_SECONDS: Final = 60.0
"""Once all workloads are submitted, the run ends if no workload was admitted or finished for this
long.
"""


class Outcome(NamedTuple):
    """Result of a run of `admit bench`. Lists have one value per workload of the plan, in the
    plan's order; times are seconds since the start of the run. ``admitted_at`` -1.0: the workload
    was never admitted. ``usage`` has for each sample the share of each queue's nominal quota that
    is in use; 1.0: all of the quota. ``trouble`` is empty when everything finished.
    """

    wall_seconds: float
    created_at: list[float]
    admitted_at: list[float]
    finished: set[int]
    evictions: int
    usage: list[dict[str, float]]
    trouble: str


class Stalled(AdmittanceError):
    """The system under test has admitted and finished no workload for `STALL_SECONDS`."""


async def execute(link: Link, plan: BenchPlan, steps: Steps = NO_STEPS) -> Outcome:
    """Submits each workload at its time and finishes it after its runtime; returns when all have
    finished. Wall time ends when the system has applied the last fact. ``steps``: for the number of
    finished workloads."""
    steps.begin("workloads", len(plan.workloads))
    created = [0.0] * len(plan.workloads)
    usage: list[dict[str, float]] = []
    trouble = ""
    async with publishing(link.bus) as publisher, AsyncExitStack() as stack:
        jobs = SimulatedRunner(plan, publisher)
        callbacks = {
            f"admit.workload.{what}.>": jobs.on_message for what in ("admitted", "evicted")
        }
        if generator.checks_of(plan):
            callbacks["admit.check.requested.>"] = SimulatedController(publisher).on_message
        for subject, callback in callbacks.items():
            subscription = await link.bus.nc.listen(subject, callback)
            stack.push_async_callback(link.bus.nc.unlisten, subscription)
        started = clock.monotonic()
        sampling = asyncio.create_task(_sample(link, plan, usage))
        try:
            submitting = asyncio.create_task(_submit(plan, publisher, created, started))
            await _watch(jobs, publisher, submitting, steps)
            await publisher.until_acknowledged()
            await until_settled(link, publisher.sequence)
        except (AdmittanceError, ClientError, TimeoutError) as error:
            trouble = str(error)
        finally:
            wall = clock.monotonic() - started
            await _end(sampling)
    if publisher.refused:
        trouble = trouble or f"{len(publisher.refused)} facts were refused: {publisher.refused[0]}"
    return Outcome(
        wall_seconds=wall,
        created_at=[moment - started for moment in created],
        admitted_at=[moment - started if moment else -1.0 for moment in jobs.admitted_at],
        finished=jobs.finished,
        evictions=jobs.evictions,
        usage=usage,
        trouble=trouble,
    )


async def _submit(
    plan: BenchPlan, publisher: Publisher, created: list[float], started: float
) -> None:
    for index, workload in enumerate(plan.workloads):
        wait = started + workload.at - clock.monotonic()
        if wait > 0:
            await asyncio.sleep(wait)
        elif index % 100 == 0:
            await asyncio.sleep(0)
        if publisher.in_flight > IN_FLIGHT_MAX:
            await publisher.until_acknowledged()
        created[index] = clock.monotonic()
        queue = plan.queues[workload.queue]
        subject = f"admit.workload.submitted.{token(queue.namespace)}.{token(workload.name)}"
        payload = submission(workload, queue.namespace, queue.name, distinct=plan.distinct)
        publisher.publish(subject, payload)


async def _watch(
    jobs: SimulatedRunner, publisher: Publisher, submitting: asyncio.Task[None], steps: Steps
) -> None:
    """Waits until all workloads have finished. Raises Stalled if no workload is admitted or
    finished for `STALL_SECONDS`.
    """
    try:
        while True:
            if await set_within(jobs.done, 1.0):
                await submitting
                return
            steps.reach(len(jobs.finished))
            if submitting.done():
                await submitting
                if clock.monotonic() - jobs.last_message_at > STALL_SECONDS:
                    raise Stalled(
                        f"no workload was admitted or finished for {STALL_SECONDS:.0f} s; "
                        f"{len(jobs.finished)} of {len(jobs.admitted_at)} finished"
                    )
            if publisher.refused:
                raise Stalled(f"a fact was refused: {publisher.refused[0]}")
    finally:
        submitting.cancel()


async def _sample(link: Link, plan: BenchPlan, usage: list[dict[str, float]]) -> None:
    nominal = {queue.name: queue.nominal for queue in plan.queues}
    while True:
        await asyncio.sleep(SAMPLE_SECONDS)
        with suppress(RequestFailed):
            state = await generator.state(link)
            usage.append(
                {
                    status.name: sum(u.admitted for u in status.usage) / nominal[status.name]
                    for status in state.cluster_queues
                    if nominal.get(status.name)
                }
            )


def submission(
    workload: PlannedWorkload, namespace: str, queue: str, *, distinct: bool = False
) -> bytes:
    """The payload of ``admit.workload.submitted`` for one workload of the plan. ``distinct``: with
    a command and a variable that no other workload has."""
    # The payload is formatted without a JSON encoder, since the load must cost little CPU; names of
    # a plan need no escape.
    only = ",".join(f'"{name}"' for name in workload.flavors)
    only = f'"admissionConstraints":{{"allowedResourceFlavors":[{only}]}},' if only else ""
    resources = f'{{"requests":{{"{RESOURCE}":"{render(RESOURCE, workload.request)}"}}}}'
    own = (
        f'"command":["python","train.py","--run","{workload.name}"],'
        f'"env":[{{"name":"RUN","value":"{workload.name}"}}],'
        if distinct
        else ""
    )
    return (
        f'{{"namespace":"{namespace}","name":"{workload.name}","workload":'
        '{"apiVersion":"kueue.x-k8s.io/v1beta2","kind":"Workload","metadata":'
        f'{{"name":"{workload.name}","namespace":"{namespace}"}},"spec":{{"queueName":"{queue}",'
        f'"priority":{workload.priority},{only}"podSets":[{{"name":"main","count":1,"template":'
        '{"spec":{"restartPolicy":"Never","containers":[{"name":"main","image":"simulated",'
        f'{own}"resources":{resources}}}]}}}}}}]}}}}}}'
    ).encode()


class _Asked(msgspec.Struct, frozen=True, rename="camel"):
    namespace: str
    name: str
    check: str
    cycle: int


_asked = msgspec.json.Decoder(_Asked)


class SimulatedController:
    """A check controller that reports Ready. A repeated request gets the same verdict again, as the
    protocol allows.
    """

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher

    def on_message(self, subject: bytes, _reply: bytes, data: bytes, _headers: bytes) -> None:
        """Answers a message on ``admit.check.requested.<controller>.<ns>.<name>`` with Ready."""
        asked = _asked.decode(data)
        rest = subject.decode().split(".", 3)[3]
        # The payload is formatted without a JSON encoder: names of a plan need no escape.
        verdict = (
            f'{{"namespace":"{asked.namespace}","name":"{asked.name}","check":"{asked.check}",'
            f'"cycle":{asked.cycle},"state":"Ready","message":"always ready"}}'
        )
        self._publisher.publish(f"admit.check.reported.{rest}", verdict.encode())


class _Revision(msgspec.Struct, frozen=True, rename="camel"):
    revision: int = 0


_revision = msgspec.json.Decoder(_Revision)


class SimulatedRunner:
    """The runner's part: publishes `stopped` after `evicted`, and `finished` when the runtime after
    `admitted` is over.

    Lists are indexed like the plan's workloads; times are monotonic seconds, 0.0: not yet.
    ``admitted_at``: time of the first admission. ``finished``: indices of finished workloads. A
    repeated fact has no effect.
    """

    def __init__(self, plan: BenchPlan, publisher: Publisher) -> None:
        count = len(plan.workloads)
        self._plan = plan
        self._publisher = publisher
        self._loop = asyncio.get_running_loop()
        self._running = [0] * count
        self._due: list[tuple[float, int, int]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._names = [
            f"{token(plan.queues[w.queue].namespace)}.{token(w.name)}" for w in plan.workloads
        ]
        self._index = {name.encode(): i for i, name in enumerate(self._names)}
        self._evicted = [0] * count
        self.admitted_at = [0.0] * count
        self.finished: set[int] = set()
        self.evictions = 0
        self.last_message_at = clock.monotonic()
        self.done = asyncio.Event()

    def on_message(self, subject: bytes, _reply: bytes, data: bytes, _headers: bytes) -> None:
        """Handles a message on ``admit.workload.{admitted,evicted}.<ns>.<name>`` as a runner
        does."""
        _, _, what, name = subject.split(b".", 3)
        index = self._index.get(name)
        if index is None:
            return
        self.last_message_at = clock.monotonic()
        revision = _revision.decode(data).revision
        if what == b"admitted":
            self._admitted(index, revision)
        else:
            self._stop(index, revision)

    def _admitted(self, index: int, revision: int) -> None:
        if revision <= self._running[index] or revision <= self._evicted[index]:
            return
        self._running[index] = revision
        # The workload was evicted before its `finished` was applied, so that fact did not count.
        self.finished.discard(index)
        if not self.admitted_at[index]:
            self.admitted_at[index] = self.last_message_at
        due = self.last_message_at + self._plan.workloads[index].runtime
        first = not self._due or due < self._due[0][0]
        heapq.heappush(self._due, (due, index, revision))
        if first:
            self._wake()

    def _stop(self, index: int, revision: int) -> None:
        if revision <= self._evicted[index]:
            return
        self._evicted[index] = revision
        self.evictions += 1
        self._say("stopped", index, revision)

    def _wake(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._due:
            delay = max(0.0, self._due[0][0] - clock.monotonic())
            self._timer = self._loop.call_later(delay, self._end)

    def _end(self) -> None:
        # Timers of the event loop are precise to a millisecond: finish all workloads that are due
        # within the next half millisecond.
        until = clock.monotonic() + 0.0005
        while self._due and self._due[0][0] <= until:
            _, index, revision = heapq.heappop(self._due)
            if self._running[index] == revision and self._evicted[index] < revision:
                self.finished.add(index)
                self._say("finished", index, revision)
        if len(self.finished) == len(self._plan.workloads):
            self.done.set()
        self._timer = None
        self._wake()

    def _say(self, what: str, index: int, revision: int) -> None:
        workload = self._plan.workloads[index]
        namespace = self._plan.queues[workload.queue].namespace
        # The payload is formatted without a JSON encoder: names of a plan need no escape.
        data = f'{{"namespace":"{namespace}","name":"{workload.name}","revision":{revision}}}'
        self._publisher.publish(f"admit.workload.{what}.{self._names[index]}", data.encode())


_ack = msgspec.json.Decoder(Ack)


class Publisher:
    """Publishes facts. `publish` never waits; facts that are published in one turn of the event
    loop are sent in one write.

    ``refused``: the errors with which the server refused facts. ``sequence``: the newest sequence
    that the server assigned. Facts that a broken connection loses are not published again, since
    retries would falsify the measurement.
    """

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._inbox = f"{bus.nc.new_inbox()}.a"
        self._buffer: list[bytes] = []
        self._some = asyncio.Event()
        self.sent = 0
        self.acknowledged = 0
        self.sequence = 0
        self.refused: list[str] = []

    async def run(self) -> None:
        """Sends the published facts to the server, until cancelled."""
        subscription = await self._bus.nc.listen(self._inbox, self._on_ack)
        try:
            while True:
                await self._some.wait()
                self._some.clear()
                blob = b"".join(self._buffer)
                self._buffer.clear()
                await self._bus.nc.send(blob)
        finally:
            await self._bus.nc.unlisten(subscription)

    def publish(self, subject: str, data: bytes) -> None:
        """Queues data for publication on subject in the next write."""
        self._buffer.append(frame(subject, self._inbox, data, None))
        self.sent += 1
        self._some.set()

    @property
    def in_flight(self) -> int:
        """Number of facts that are not acknowledged yet."""
        return self.sent - self.acknowledged

    async def until_acknowledged(self, timeout: float = 10.0) -> None:
        """Waits until all facts are acknowledged. Raises TimeoutError."""
        deadline = clock.monotonic() + timeout
        while self.in_flight:
            if clock.monotonic() > deadline:
                raise TimeoutError(f"{self.in_flight} messages were never acknowledged")
            await asyncio.sleep(0.005)

    def _on_ack(self, _subject: bytes, _reply: bytes, data: bytes, _headers: bytes) -> None:
        self.acknowledged += 1
        if not data:
            self.refused.append("no stream stores these subjects")
            return
        ack = _ack.decode(data)
        if ack.error is not None:
            self.refused.append(ack.error.description)
        elif ack.seq > self.sequence:
            self.sequence = ack.seq


@asynccontextmanager
async def publishing(bus: Bus) -> AsyncIterator[Publisher]:
    """A publisher that sends what it gets, until the end."""
    publisher = Publisher(bus)
    sending = asyncio.create_task(publisher.run())
    try:
        yield publisher
    finally:
        await _end(sending)


async def _end(task: asyncio.Task[None]) -> None:
    """Cancels a task. Raises an error that it had, unless the system was away."""
    task.cancel()
    with suppress(asyncio.CancelledError, RequestFailed, *PASSING):
        await task
