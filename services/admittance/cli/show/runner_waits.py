"""Asks the runner of an admitted workload why it has not started the job yet."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from admittance.cli.support.errors import CliError
from admittance.cli.support.link import Link
from admittance.events.requests import Logs, LogsReply
from admittance.workload.phase import Phase, phase
from admittance.workload.stored import StoredWorkload

ASK_SECONDS: Final = 2.0
"""How long a runner has for its answer: less than for other requests, since most workloads wait for
nothing on their runner."""


async def waits_on_runner(bus: Link, workload: StoredWorkload, now: datetime) -> str:
    """Why the runner of the workload has not started its job yet; "" if it has, if no runner
    answers, or if the user may not ask."""
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
    except CliError:
        return ""
    return reply.waiting
