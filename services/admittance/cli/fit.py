"""Whether a workload could ever start, checked before it is submitted.

A command after ``admit submit`` is refused if its workload could never start. Manifests are
accepted with a warning instead, as in Kubernetes: their queues may be created or enlarged later.
"""

from __future__ import annotations

from admittance.api.workload import Workload
from admittance.cli.support import output
from admittance.cli.support.link import Link
from admittance.client.requests import submissions
from admittance.client.requests.submissions import Spelling
from admittance.client.requests.warnings import inactive, uncharged


async def refuse_misfit(bus: Link, workload: Workload, *, anyway: bool, spelled: Spelling) -> None:
    """Raises AnswerIsNo if the queue does not exist or can never hold the workload, unless
    ``anyway``. Warns about requests for which no quota is charged, and about an inactive queue."""
    reply = await submissions.refuse_misfit(bus, workload, anyway=anyway, spelled=spelled)
    if reply is not None:
        for warning in (*uncharged("the workload", reply), *inactive([reply])):
            output.warn(warning)
