"""Asks why the runner of an admitted workload has not started the job yet, and whether a runner
would start the job of a workload that waits."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from msgspec.structs import replace

from admittance.cli.support.errors import CliError
from admittance.cli.support.link import Link, NoResponder
from admittance.events.reading_requests import Runners, RunnersReply
from admittance.events.requests import ExplainReply, Logs, LogsReply
from admittance.workload.phase import Phase, phase
from admittance.workload.stored import StoredWorkload

ASK_SECONDS: Final = 2.0
"""How long a runner has for its answer: less than for other requests, since most workloads wait for
nothing on their runner."""


NO_RUNNER: Final = "no runner answers"
START_A_RUNNER: Final = "a runner: `admit serve runner`, or `admit up` without --no-runner"


async def waits_on_runner(bus: Link, workload: StoredWorkload, now: datetime) -> str:
    """Why the runner of the workload has not started its job yet, `NO_RUNNER` if there is none; ""
    if it has started the job, if it does not answer in time, or if the user may not ask."""
    if phase(workload, now) is not Phase.ADMITTED:
        return ""
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
        return NO_RUNNER
    except CliError:
        return ""
    return reply.waiting


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
    """The explanation with what the runners add: the answers of `waits_on_runner` and
    `refused_by_runners`."""
    if held_back == NO_RUNNER:
        # Another program may run workloads too, but none of ours will.
        message = f"{reply.message}; {NO_RUNNER}"
        return replace(reply, message=message, unblocked_by=(*reply.unblocked_by, START_A_RUNNER))
    if refused.why:
        return replace(reply, unblocked_by=(*reply.unblocked_by, f"besides: {refused.needed}"))
    return reply
