"""``admit resubmit``: submits a stored workload once more, or what failed of an array."""

from __future__ import annotations

from admittance.cli.commands.arguments import workload_command
from admittance.cli.commands.declare import option
from admittance.cli.support.link import link
from admittance.cli.support.options import Call
from admittance.client import requests


@workload_command()
@option("--failed", "Of an array only the elements that did not succeed.")
@option("--name N", "Name of the new workload. Default: generated.", name="new_name")
async def resubmit(call: Call, name: str, failed: bool, new_name: str | None) -> int:
    """Submit a workload once more, as a new workload with the same spec that waits for no other.

    With --failed the new workload is an array of the indexes that have failed, were deleted, or
    were ended by the array.
    """
    from admittance.cli.workloads.submissions import COMMAND_LINE, Submission
    from admittance.cli.workloads.submit import submit_all

    async with link(call) as bus:
        workload = await requests.resubmission.again(bus, name, failed=failed, new_name=new_name)
        return await submit_all(bus, [Submission(COMMAND_LINE, workload)])
