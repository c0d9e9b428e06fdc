"""``admit top``: `admit queue` as a screen that reads itself again, with keys."""

from __future__ import annotations

import sys

from admittance.cli.commands.arguments import all_namespaces, queues
from admittance.cli.commands.declare import PLACE, command, option
from admittance.cli.support import times
from admittance.cli.support.link import link
from admittance.cli.support.options import Call
from admittance.client.errors import BadInput

EVERY_SECONDS = 2
LIMIT = 200


@command(PLACE)
@option("--queue -q QUEUE", "Only this LocalQueue or ClusterQueue.", complete=queues)
@option("--mine", "Only workloads that you submitted.")
@option(
    "--limit N",
    f"At most N rows of what runs, and of what waits; up to {LIMIT}. Default: {LIMIT}",
    kind=int,
    least=1,
    default=LIMIT,
)
@option("--every SPAN", f"Read the queues again after this time. Default: {EVERY_SECONDS}s")
@all_namespaces
async def top(
    call: Call, queue: str | None, mine: bool, limit: int, every: str | None, all_namespaces: bool
) -> int:
    """Show the queues, what runs and what waits, live; sort, explain and cancel with keys.

    The key ? lists the keys. `admit queue` prints the same once.
    """
    seconds = EVERY_SECONDS if every is None else times.whole_seconds(every, "--every")
    # Textual reads keys from standard input and draws on standard error.
    if not all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        raise BadInput("admit top needs a terminal; `admit queue` prints the same once")
    from admittance.cli.top.answers import Answers, Question
    from admittance.cli.top.screen import TopScreen

    namespace = None if all_namespaces and queue is None else call.namespace
    async with link(call) as bus:
        answers = Answers(bus, Question(queue, namespace, mine=mine, limit=limit))
        # The first answer is read before the screen opens, so that a wrong queue is an error line.
        seen = await answers.read()
        screen = TopScreen(answers, seen, every=seconds)
        await screen.run_async()
        return screen.return_code or 0
