"""The plan carried out against a live system: submissions in time, and the runner's part."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec
import nats.errors

from admittance.api.units import render
from admittance.cli.bench import queues
from admittance.cli.bench.answers import Answers
from admittance.cli.bench.generator import RESOURCE, Plan, PlannedWorkload
from admittance.cli.bench.mimic import Mimic
from admittance.cli.bench.speaker import Speaker
from admittance.events.applying import Settled, SettledReply
from admittance.events.names import token
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import AdmittanceError, Unavailable
from admittance.runtime.tasks import set_within

IN_FLIGHT_MAX: Final = 2000
"""Submissions not yet acknowledged; the server's queue per stream has an end."""
SAMPLE_SECONDS: Final = 1.0
STALL_SECONDS: Final = 60.0
"""Without any admission or end for so long, and nothing left to create, it is over."""

_encode = msgspec.json.Encoder().encode
_settled = msgspec.json.Decoder(SettledReply)


class Outcome(NamedTuple):
    """Lists are indexed like the plan's workloads; times in seconds since the start.

    ``admitted_at`` -1.0: never. ``usage`` has per sample the used share of each queue's nominal
    quota, 1.0 for all of it. ``trouble`` is empty when everything finished.
    """

    wall_seconds: float
    created_at: list[float]
    admitted_at: list[float]
    finished: set[int]
    evictions: int
    usage: list[dict[str, float]]
    trouble: str


class Stalled(AdmittanceError):
    """The system stopped admitting."""


async def carry_out(bus: Bus, plan: Plan) -> Outcome:
    """Creates every workload at its time and ends it after its runtime; returns when all ended.

    The wall time ends when the last end has had its effect, as the system itself says.
    """
    speaker = Speaker(bus)
    speaking = asyncio.create_task(speaker.run())
    mimic = Mimic(plan, speaker)
    ears = [
        await bus.nc.listen(f"admit.workload.{what}.>", mimic.hear)
        for what in ("admitted", "evicted")
    ]
    if queues.checks_of(plan):
        answers = Answers(speaker)
        ears.append(await bus.nc.listen("admit.check.requested.>", answers.hear))
    created = [0.0] * len(plan.workloads)
    usage: list[dict[str, float]] = []
    started = clock.monotonic()
    sampling = asyncio.create_task(_sample(bus, plan, usage))
    trouble = ""
    try:
        submitting = asyncio.create_task(_submit(plan, speaker, created, started))
        await _watch(mimic, speaker, submitting)
        await speaker.quiet()
        await effective(bus, speaker.sequence)
    except (AdmittanceError, TimeoutError) as error:
        trouble = str(error)
    finally:
        wall = clock.monotonic() - started
        for task in (sampling, speaking):
            task.cancel()
            with suppress(asyncio.CancelledError, nats.errors.Error):
                await task
        for ear in ears:
            await bus.nc.deafen(ear)
    if speaker.refused:
        trouble = trouble or f"{len(speaker.refused)} facts were refused: {speaker.refused[0]}"
    return Outcome(
        wall_seconds=wall,
        created_at=[moment - started for moment in created],
        admitted_at=[moment - started if moment else -1.0 for moment in mimic.admitted_at],
        finished=mimic.finished,
        evictions=mimic.evictions,
        usage=usage,
        trouble=trouble,
    )


async def _submit(plan: Plan, speaker: Speaker, created: list[float], started: float) -> None:
    for index, workload in enumerate(plan.workloads):
        wait = started + workload.at - clock.monotonic()
        if wait > 0:
            await asyncio.sleep(wait)
        elif index % 100 == 0:
            await asyncio.sleep(0)
        if speaker.in_flight > IN_FLIGHT_MAX:
            await speaker.quiet()
        created[index] = clock.monotonic()
        queue = plan.queues[workload.queue]
        subject = f"admit.workload.submitted.{token(queue.namespace)}.{token(workload.name)}"
        speaker.say(subject, submission(workload, queue.namespace, queue.name))


async def _watch(mimic: Mimic, speaker: Speaker, submitting: asyncio.Task[None]) -> None:
    """Waits for the end of everything. Raises Stalled when nothing happens any more."""
    try:
        while True:
            if await set_within(mimic.done, 1.0):
                await submitting
                return
            if submitting.done():
                await submitting
                if clock.monotonic() - mimic.heard_at > STALL_SECONDS:
                    raise Stalled(
                        f"nothing was admitted for {STALL_SECONDS:.0f} s; "
                        f"{len(mimic.finished)} of {len(mimic.admitted_at)} finished"
                    )
            if speaker.refused:
                raise Stalled(f"a fact was refused: {speaker.refused[0]}")
    finally:
        submitting.cancel()


async def effective(bus: Bus, sequence: int, *, patience: float = 30.0) -> None:
    """Waits until every fact up to sequence has had its effect. Raises Unavailable."""
    deadline = clock.monotonic() + patience
    data = _encode(Settled(sequence=sequence))
    while True:
        reply = _settled.decode(await queues.ask(bus, "admit.api.settled", data, deadline))
        if not reply.error:
            return
        if clock.monotonic() > deadline:
            raise Unavailable(f"the last facts had no effect in time: {reply.error}")
        await asyncio.sleep(0.01)


async def _sample(bus: Bus, plan: Plan, usage: list[dict[str, float]]) -> None:
    nominal = {queue.name: queue.nominal for queue in plan.queues}
    while True:
        await asyncio.sleep(SAMPLE_SECONDS)
        with suppress(Unavailable):
            state = await queues.state(bus, clock.monotonic())
            usage.append(
                {
                    status.name: sum(u.admitted for u in status.usage) / nominal[status.name]
                    for status in state.cluster_queues
                    if nominal.get(status.name)
                }
            )


def submission(workload: PlannedWorkload, namespace: str, queue: str) -> bytes:
    """The payload of ``admit.workload.submitted`` for one workload of the plan."""
    # Written out: names of a plan need no escape in JSON, and the load should cost next to nothing.
    only = ",".join(f'"{name}"' for name in workload.flavors)
    only = f'"admissionConstraints":{{"allowedResourceFlavors":[{only}]}},' if only else ""
    return (
        f'{{"namespace":"{namespace}","name":"{workload.name}","workload":'
        '{"apiVersion":"kueue.x-k8s.io/v1beta2","kind":"Workload","metadata":'
        f'{{"name":"{workload.name}","namespace":"{namespace}"}},"spec":{{"queueName":"{queue}",'
        f'"priority":{workload.priority},{only}"podSets":[{{"name":"main","count":1,"template":'
        '{"spec":{"restartPolicy":"Never","containers":[{"name":"main","image":"mimicked",'
        f'"resources":{{"requests":{{"{RESOURCE}":"{render(RESOURCE, workload.request)}"}}}}}}]}}}}'
        "}]}}}"
    ).encode()
