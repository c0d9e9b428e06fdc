"""``admit doctor``: checks an installation from outside and lists what is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from admittance.cli.doctor import (
    admin_ports,
    consumers,
    controllers,
    history,
    queues,
    runners,
    schedules,
    servers,
    services,
    streams,
)
from admittance.cli.doctor.clocks import clock_findings
from admittance.cli.doctor.finding import NOTE, WRONG, Finding, without_repeats
from admittance.cli.doctor.permissions import permission_findings
from admittance.cli.doctor.set_aside import set_aside_findings
from admittance.cli.support import output
from admittance.cli.support.errors import NotAllowed
from admittance.cli.support.link import Link, link
from admittance.cli.support.options import Call, Output
from admittance.cli.support.output import Table, columns_of
from admittance.cli.up.readiness import health_answers
from admittance.events import subjects
from admittance.runtime.bus.streams import stream_infos
from admittance.runtime.errors import AccessDenied, Refused, Unavailable

HEALTH_SECONDS = 1.0


class Options(NamedTuple):
    """Options of ``admit doctor``. ``monitors``: URLs of HTTP monitoring ports of nats-servers.
    ``admin_ports``: addresses at which services should serve their admin port."""

    monitors: Sequence[str] = ()
    admin_ports: Sequence[str] = ()


async def doctor(call: Call, options: Options) -> int:
    """Prints one line per finding; the exit status is 1 if a finding is wrong. Raises BadInput for
    bad options."""
    servers.refuse_bad_urls(options.monitors)
    admin_ports.refuse_bad_addresses(options.admin_ports)
    async with link(call) as bus:
        try:
            await bus.bus.api(f"STREAM.INFO.{subjects.TIMERS}")
        except AccessDenied as error:
            raise NotAllowed(
                f"{error}; `admit doctor` needs a login with the role viewer or admin"
            ) from None
        except (Refused, Unavailable):
            pass  # `streams.stream_findings` reports it.
        lines = await examine(bus, options)
    wrong = [line for line in lines if line.state == WRONG]
    shown = {"healthy": not wrong, "checks": [_shown(one) for one in lines]}
    if not output.show_value(shown, call.output):
        columns = columns_of("STATE", "WHAT", "FOUND")
        output.show_table(Table(columns, [(one.state, one.what, one.found) for one in lines]))
        _show_todo(lines)
    if wrong:
        output.error(f"{len(wrong)} of {len(lines)} checks are wrong")
    return 1 if wrong else 0


async def examine(bus: Link, options: Options) -> list[Finding]:
    """All findings about the installation at the server of the link."""
    call = bus.call
    answers = await health_answers(bus.bus, seconds=HEALTH_SECONDS)
    replies = [one.reply for one in answers]
    found = without_repeats(one for reply in replies for one in reply.findings)
    infos = await stream_infos(bus.bus)
    monitored = await servers.monitor_findings(options.monitors)
    log = await consumers.consumers_of_log(bus.bus)
    waiting = await runners.waiting_jobs(bus, replies, log)
    return [
        *await servers.server_findings(bus.bus, call, [*found, *monitored]),
        *monitored,
        *found,
        *clock_findings(answers, await servers.clock_of_server(bus.bus)),
        *streams.stream_findings(infos),
        *streams.replica_findings(infos, replies),
        *await streams.write_findings(bus.bus),
        *(consumers.consumer_finding(info, jobs_wait=bool(waiting)) for info in log),
        *await controllers.check_controllers(bus),
        *await controllers.capacity_classes(bus),
        *await queues.queue_findings(bus),
        *await schedules.timers_found(bus.bus),
        *await schedules.families_found(bus.bus),
        *services.service_findings(replies),
        *runners.runner_findings(replies, waiting),
        *runners.away_findings(await runners.announced_runners(bus), replies, log),
        *await services.leader_findings(bus.bus, replies),
        *permission_findings(replies),
        *await admin_ports.admin_findings(options.admin_ports),
        *await history.domain_findings(bus.bus),
        *await history.checkpoint_findings(bus.bus),
        *await set_aside_findings(bus.bus, every=call.output in (Output.JSON, Output.YAML)),
        *await history.dead_letter_findings(bus.bus),
    ]


def _shown(one: Finding) -> dict[str, str]:
    shown = {"state": one.state, "what": one.what, "found": one.found}
    return {**shown, "todo": one.todo} if one.todo else shown


def _show_todo(lines: Sequence[Finding]) -> None:
    """Prints the findings that need an action once more, uncut and with the action."""
    for state in (NOTE, WRONG):
        for one in lines:
            if one.state == state and one.todo:
                output.say("")
                output.say(output.clean(f"{one.state}: {one.what}: {one.found}"))
                output.say(output.clean(f"   do: {one.todo}"))
