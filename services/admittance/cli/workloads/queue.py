"""``admit queue``: one look at what runs in queues, and at what waits."""

from __future__ import annotations

from admittance.cli.commands.arguments import all_namespaces, queues
from admittance.cli.commands.declare import command, option
from admittance.cli.support.link import link
from admittance.cli.support.options import Call, Output
from admittance.client import requests


@command(without=(Output.NAME,))
@option("--queue -q QUEUE", "Only this LocalQueue or ClusterQueue.", complete=queues)
@option("--mine", "Only workloads that you submitted.")
@option(
    "--limit N",
    "At most N rows of what runs, and of what waits; up to 200. Default: 50",
    kind=int,
    least=1,
)
@all_namespaces
async def queue(
    call: Call, queue: str | None, mine: bool, limit: int | None, all_namespaces: bool
) -> None:
    """Show what runs, what waits in the order in which it is tried, and the use of the queues.

    An array is one row. The queues are those of the namespace.
    """
    from admittance.cli.show import queue_rows

    module = requests.overview
    namespace = None if all_namespaces and queue is None else call.namespace
    async with link(call) as bus:
        seen = await module.overview(
            bus, queue, namespace, mine=mine, limit=module.ROWS if limit is None else limit
        )
    queue_rows.show(call, seen, several=namespace is None)
