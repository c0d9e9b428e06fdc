"""``admit resubmit``: submits a stored workload once more, or what failed of an array."""

from __future__ import annotations

from admittance.cli.commands.arguments import queues, workload_command
from admittance.cli.commands.declare import option
from admittance.cli.support.job_options import requests_of, time_limit
from admittance.cli.support.link import link
from admittance.cli.support.options import Call
from admittance.client import requests


@workload_command()
@option("--failed", "Of an array only the elements that did not succeed.")
@option("--name N", "Name of the new workload. Default: generated.", name="new_name")
@option("--queue -q QUEUE", "Another LocalQueue.", complete=queues)
@option("--cpu QUANTITY", "Per pod, instead of that of the workload.")
@option("--memory QUANTITY", "Per pod.")
@option("--gpu QUANTITY", "Per pod.")
@option("--time SPAN", "Time limit of all its runs together.", name="limit")
@option("--priority P", "Priority; higher goes first.", kind=int)
@option("--priority-class NAME", "A WorkloadPriorityClass instead of a priority.")
@option("--anyway", "Submit even if the queue does not exist or can never hold it.")
async def resubmit(
    call: Call,
    name: str,
    failed: bool,
    new_name: str | None,
    queue: str | None,
    cpu: str | None,
    memory: str | None,
    gpu: str | None,
    limit: str | None,
    priority: int | None,
    priority_class: str | None,
    anyway: bool,
) -> int:
    """Submit a workload once more, as a new workload with the same spec that waits for no other.

    Other options replace what the workload had.

    With --failed the new workload is an array of the indexes that have failed, were deleted, or
    were ended by the array.
    """
    from admittance.cli.workloads.submissions import COMMAND_LINE, Submission
    from admittance.cli.workloads.submit import refuse_misfit, submit_all

    changes = requests.resubmission.Changes(
        queue=queue,
        requests=requests_of(cpu, memory, gpu),
        priority=priority,
        priority_class=priority_class,
        max_seconds=time_limit(limit, None),
    )

    async with link(call) as bus:
        workload = await requests.resubmission.again(
            bus, name, failed=failed, new_name=new_name, changes=changes
        )
        await refuse_misfit(bus, workload, anyway=anyway)
        return await submit_all(bus, [Submission(COMMAND_LINE, workload)])
