"""Asks why the runner of an admitted workload has not started the job yet, which of its pods failed
and run again, and whether a runner would start the job of a workload that waits."""

from __future__ import annotations

from datetime import datetime
from typing import Final, NamedTuple

from msgspec.structs import replace

from admittance.cli.support.errors import CliError
from admittance.cli.support.link import Link, NoResponder
from admittance.cli.support.times import span, stamp
from admittance.events.reading_requests import Runners, RunnersReply
from admittance.events.requests import ExplainReply, Logs, LogsReply
from admittance.events.shapes import PodRetries
from admittance.workload.phase import Phase, phase
from admittance.workload.stored import StoredWorkload

ASK_SECONDS: Final = 2.0
"""How long a runner has for its answer: less than for other requests, since most workloads wait for
nothing on their runner."""


NO_RUNNER: Final = "no runner answers"
START_A_RUNNER: Final = "a runner: `admit serve runner`, or `admit up` without --no-runner"


class RunnerAnswer(NamedTuple):
    """What the runner of a workload says about its job. ``held_back``: why it has not started the
    job yet; ""; it has started the job, or does not say. ``retries``: the pods that failed and run
    again; None: there are none, or it does not say."""

    held_back: str = ""
    retries: PodRetries | None = None


async def answer_of_runner(bus: Link, workload: StoredWorkload, now: datetime) -> RunnerAnswer:
    """What the runner of an admitted workload says, with `NO_RUNNER` if the job has not started and
    no runner listens; nothing if it does not answer in time, or if the user may not ask."""
    where = phase(workload, now)
    if where not in (Phase.ADMITTED, Phase.RUNNING):
        return RunnerAnswer()
    asked = Logs(name=workload.metadata.name, tail=0)
    try:
        reply = await bus.ask(
            "logs",
            asked,
            LogsReply,
            namespace=workload.metadata.namespace,
            timeout=ASK_SECONDS,
        )
    except NoResponder:
        return RunnerAnswer(NO_RUNNER if where is Phase.ADMITTED else "")
    except CliError:
        return RunnerAnswer()
    return RunnerAnswer(reply.waiting, reply.retries)


def retry_lines(retries: PodRetries | None, now: datetime) -> tuple[str, ...]:
    """The failed pods of a job, one line for the job and one for each pod that waits."""
    if retries is None:
        return ()
    from admittance.cli.show.event_lines import retries_text

    lines = [f"pods failed {retries_text(retries)}"]
    for one in retries.pods:
        seconds = max(0.0, (one.at - now).total_seconds())
        left = "" if one.left is None else f"; {one.left:,} retries left after it"
        lines.append(f"{one.pod} runs again at {stamp(one.at)} (in {span(seconds)}){left}")
    if (more := retries.waiting - len(retries.pods)) > 0:
        lines.append(f"{more:,} more pods wait longer")
    return tuple(lines)


WAITING: Final = frozenset({Phase.PENDING, Phase.BACKOFF, Phase.QUOTA_RESERVED})


async def refused_by_runners(bus: Link, workload: StoredWorkload, now: datetime) -> RunnersReply:
    """Why no runner would start the job of the workload; empty if the workload does not wait, if
    one would start it, or if there is no answer: the user may not ask, or the workload-controller
    is away or older than this command."""
    if not bus.user or phase(workload, now) not in WAITING:
        # On a server without users no runner announces rules that count.
        return RunnersReply()
    asked = Runners(name=workload.metadata.name)
    namespace = workload.metadata.namespace
    try:
        reply = await bus.ask(
            "runners", asked, RunnersReply, namespace=namespace, timeout=ASK_SECONDS
        )
    except CliError:
        return RunnersReply()
    return RunnersReply() if reply.error else reply


def with_runners(reply: ExplainReply, held_back: str, refused: RunnersReply) -> ExplainReply:
    """The explanation with what the runners add: the answers of `answer_of_runner` and
    `refused_by_runners`."""
    if held_back == NO_RUNNER:
        # Another program may run workloads too, but none of ours will.
        message = f"{reply.message}; {NO_RUNNER}"
        return replace(reply, message=message, unblocked_by=(*reply.unblocked_by, START_A_RUNNER))
    if refused.why:
        return replace(reply, unblocked_by=(*reply.unblocked_by, f"besides: {refused.needed}"))
    return reply
