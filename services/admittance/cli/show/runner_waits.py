"""Asks the runner of an admitted workload why it has not started the job yet."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from admittance.cli.support.errors import CliError
from admittance.cli.support.link import Link, NoResponder
from admittance.events.requests import Logs, LogsReply
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
