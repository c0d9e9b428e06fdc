"""``admit wait``: follows one workload in the bucket until it reaches a phase."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admittance.cli.commands.arguments import ends, phases, timeout, workload_command
from admittance.cli.commands.declare import option
from admittance.cli.support import output, times
from admittance.cli.support.link import link
from admittance.cli.support.options import Call
from admittance.client import kinds, requests
from admittance.client.errors import RequestFailed

if TYPE_CHECKING:
    from admittance.client.requests.link import Link


@workload_command()
@option("--for PHASE", lambda: ", ".join(ends()), name="phase", required=True, complete=phases)
@timeout
async def wait(call: Call, name: str, phase: str, timeout: str | None) -> None:
    """Wait until a workload is in a phase, or has Succeeded or Failed.

    A later phase counts too: Running for Admitted, both for QuotaReserved, and a workload that ran
    to its end for all three. The status is 1 if the phase can no longer be reached, and for
    Finished if the job failed.
    """
    limit = None if timeout is None else times.seconds_of(timeout, "--timeout")
    wanted = requests.waits.goal_named(phase, "--for")
    async with link(call) as bus:
        if wanted == "Finished" and requests.objects.elements_named(name) is not None:
            await _wait_for_elements(bus, call.namespace, name, limit)
            return
        workload = await requests.waits.reach(bus, call.namespace, name, wanted, limit)
    if wanted == "Finished" and (why := requests.waits.is_failure(workload)):
        raise RequestFailed(f'workload "{name}" is Finished, and failed: {why}')
    output.outcome(f"{kinds.WORKLOAD.qualified}/{name}", str(wanted))


async def _wait_for_elements(bus: Link, namespace: str, name: str, limit: float | None) -> None:
    """Waits until the elements of an array have a result. Raises RequestFailed if one failed."""
    from admittance.api.arrays import written_indexes

    ended = await requests.arrays.wait_for_elements(bus, name, namespace, limit)
    if ended.failed:
        array = name.partition("[")[0]
        raise RequestFailed(
            f"{len(ended.failed)} of {ended.elements} elements did not succeed: "
            f"{array}[{written_indexes(ended.failed)}]"
        )
    output.outcome(f"{kinds.WORKLOAD.qualified}/{name}", "Finished")
