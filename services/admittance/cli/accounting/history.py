"""``admit history``: workloads that ran, each with its waits, runs and evictions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from admittance.cli.accounting.shapes import output_option, shape_of
from admittance.cli.commands.arguments import all_namespaces, queues
from admittance.cli.commands.declare import PLACE, command, option
from admittance.cli.support.link import link
from admittance.cli.support.options import Call
from admittance.cli.support.output import note
from admittance.cli.support.times import moment_of
from admittance.client import requests
from admittance.client.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Sequence

SPELLED: Final = ("--state", "--sort")


def _states(_ctx: click.Context, _start: str) -> Sequence[str]:
    from admittance.usage.history import STATES

    return STATES


def _sort_keys(_ctx: click.Context, _start: str) -> Sequence[str]:
    from admittance.usage.history import SORT_KEYS

    return SORT_KEYS


@command(PLACE, own_output=True)
@option("--user USER", "Only workloads that this user submitted.")
@option("--queue -q QUEUE", "Only runs in this LocalQueue or ClusterQueue.", complete=queues)
@option(
    "--since TIME",
    "Runs that ended since: 2h, 7d, or 2026-02-07T00:10:00Z. Default: a day before --until.",
)
@option("--until TIME", "Runs that ended before: the same forms. Default: now.")
@option("--state STATE,...", "Only succeeded, failed, evicted.", complete=_states)
@option(
    "--sort KEY",
    "ended (default), submitted, waited, ran, cpu, gpu, evictions, name, user, queue.",
    complete=_sort_keys,
)
@all_namespaces
@output_option
async def history(
    call: Call,
    user: str | None,
    queue: str | None,
    since: str | None,
    until: str | None,
    state: str | None,
    sort: str | None,
    all_namespaces: bool,
    output: str | None,
) -> None:
    """Show workloads that ran: when, how long, where, how they ended, and what they used.

    One row is a workload with all its runs that ended in this time, as far back as the log reaches.
    `admit usage` has sums of any age. What still runs is in `admit queue`.
    """
    from admittance.cli.accounting import history_rows
    from admittance.runtime import clock

    shape = shape_of(output, call)
    states = tuple(word.strip().lower() for word in state.split(",")) if state is not None else ()
    order = sort if sort is not None else "ended"
    requests.past.check_words(states, order, SPELLED)
    now = clock.now()
    begin = None if since is None else moment_of(since, "--since", now)
    end = None if until is None else moment_of(until, "--until", now)
    if begin is not None and end is not None and begin >= end:
        raise BadInput(f'--since "{since}" is not before --until "{until}"')
    async with link(call) as bus:
        found = await requests.past.history(
            bus,
            None if all_namespaces else call.namespace,
            user=user or "",
            queue=queue or "",
            since=begin,
            until=end,
            states=states,
            sort=order,
            spelled=SPELLED,
        )
    where = "all namespaces" if all_namespaces else f"namespace {call.namespace}"
    if found.removed_until is not None:
        note(requests.past.removed_text(found.removed_until))
    of = f" of user {user}" if user else ""
    of += f" in queue {queue}" if queue else ""
    of += f" with state {' or '.join(states)}" if states else ""
    history_rows.show(found, shape, where, of, several=all_namespaces)
