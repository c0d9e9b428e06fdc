"""``admit wait``: follows one workload in the bucket until it reaches a phase.

The wait ends at once with status 1 if the phase can no longer be reached.
"""

from __future__ import annotations

from admittance.cli.support import output
from admittance.cli.support.errors import AnswerIsNo
from admittance.cli.support.link import link
from admittance.cli.support.options import Call
from admittance.client import kinds
from admittance.client.requests.waits import goal_named, is_failure, reach
from admittance.workload.phase import Phase


async def wait(call: Call, name: str, typed: str, timeout: float | None) -> None:
    """Waits until the workload has the phase or result, and prints it.

    Raises AnswerIsNo on timeout, if the phase or result can no longer be reached, and for Finished
    if the job failed.
    """
    wanted = goal_named(typed, "--for")
    async with link(call) as bus:
        workload = await reach(bus, call.namespace, name, wanted, timeout)
    if wanted is Phase.FINISHED and (why := is_failure(workload)):
        raise AnswerIsNo(f'workload "{name}" is Finished, and failed: {why}')
    output.outcome(f"{kinds.WORKLOAD.qualified}/{name}", str(wanted))
