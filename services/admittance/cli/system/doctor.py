"""``admit doctor``: checks an installation from outside and lists what is wrong."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from admittance.cli.commands.declare import command, option
from admittance.cli.support import output
from admittance.cli.support.link import link
from admittance.cli.support.options import Call, Output
from admittance.cli.support.output import Table, columns_of

if TYPE_CHECKING:
    from admittance.doctor.finding import Finding


@command(without=[Output.NAME])
@option(
    "--monitor URL",
    "HTTP monitoring port of a nats-server, such as http://127.0.0.1:8222; repeatable.",
    many=True,
)
@option(
    "--admin HOST:PORT",
    "Admin port that services should serve; repeatable. Default: $ADMIT_ADMIN.",
    many=True,
)
async def doctor(call: Call, monitor: Sequence[str], admin: Sequence[str]) -> int:
    """Check the server, streams, consumers and services; status 1 if something is wrong."""
    from admittance.doctor import examination, servers
    from admittance.doctor.finding import WRONG
    from admittance.doctor.processes import admin_ports
    from admittance.services import SERVICES

    admins = admin or [url for url in [os.environ.get("ADMIT_ADMIN")] if url]
    servers.refuse_bad_urls(monitor)
    admin_ports.refuse_bad_addresses(admins)
    async with link(call) as bus:
        await examination.refuse_without_rights(bus)
        every = call.output in (Output.JSON, Output.YAML)
        options = examination.Options(
            call.url, bool(call.connection.tls_first), monitor, admins, every=every
        )
        lines = (await examination.examine(bus, options, SERVICES)).findings
    wrong = [line for line in lines if line.state == WRONG]
    shown = {"healthy": not wrong, "checks": [_shown(line) for line in lines]}
    if not output.show_value(shown, call.output):
        columns = columns_of("STATE", "WHAT", "FOUND")
        output.show_table(
            Table(columns, [(finding.state, finding.what, finding.found) for finding in lines])
        )
        _show_todo(lines)
    if wrong:
        output.error(f"{len(wrong)} of {len(lines)} checks are wrong")
    return 1 if wrong else 0


def _shown(finding: Finding) -> dict[str, str]:
    shown = {"state": finding.state, "what": finding.what, "found": finding.found}
    return {**shown, "todo": finding.todo} if finding.todo else shown


def _show_todo(lines: Sequence[Finding]) -> None:
    """Prints the findings that need an action once more, uncut and with the action."""
    from admittance.doctor.finding import NOTE, WRONG

    for state in (NOTE, WRONG):
        for line in lines:
            if line.state == state and line.todo:
                output.say("")
                output.say(output.clean(f"{line.state}: {line.what}: {line.found}"))
                output.say(output.clean(f"   do: {line.todo}"))
