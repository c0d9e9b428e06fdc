"""All findings about an installation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from admittance.cli.doctor import consumers, runners, services
from admittance.client.health import health_answers
from admittance.client.requests.link import Link
from admittance.doctor import (
    admin_ports,
    controllers,
    history,
    machines,
    queues,
    schedules,
    servers,
    streams,
)
from admittance.doctor.clocks import clock_findings
from admittance.doctor.finding import Finding, without_repeats
from admittance.doctor.permissions import login_findings, permission_findings
from admittance.doctor.set_aside import set_aside_findings
from admittance.runtime.bus.streams import stream_infos
from admittance.runtime.process.service import LogConsumers
from admittance.services import SERVICES

HEALTH_SECONDS = 1.0
LEADER_READERS = frozenset(
    name for name, service in SERVICES.items() if service.consumers is LogConsumers.OF_LEADER
)
"""Services with leaders that create consumers of the log for themselves; the names of the consumers
begin with the name of the service."""


class Options(NamedTuple):
    """What is examined. ``url``: of the servers; ``tls_first``: they send nothing before the TLS
    handshake. ``monitors``: URLs of HTTP monitoring ports of nats-servers. ``admin_ports``:
    addresses at which services should serve their admin port."""

    url: str
    tls_first: bool
    monitors: Sequence[str] = ()
    admin_ports: Sequence[str] = ()


async def examine(bus: Link, options: Options, *, every: bool) -> list[Finding]:
    """All findings about the installation at the server of the link. ``every``: of many unreadable
    entries all, not only the first."""
    answers = await health_answers(bus.bus, seconds=HEALTH_SECONDS)
    replies = [answer.reply for answer in answers]
    reported = without_repeats(finding for reply in replies for finding in reply.findings)
    infos = await stream_infos(bus.bus)
    monitored = await servers.monitor_findings(options.monitors)
    log = await consumers.consumers_of_log(bus.bus)
    waiting = await runners.waiting_jobs(bus, replies, log)
    announced = await runners.announced_runners(bus)
    lines = [
        *await servers.server_findings(
            bus.bus, options.url, [*reported, *monitored], quiet=options.tls_first
        ),
        *monitored,
        *reported,
        *clock_findings(answers, await servers.clock_of_server(bus.bus)),
        *streams.stream_findings(infos),
        *streams.replica_findings(infos, replies),
        *await streams.write_findings(bus.bus),
        *(consumers.consumer_finding(info, jobs_wait=bool(waiting)) for info in log),
        *await controllers.check_controllers(bus),
        *await controllers.capacity_classes(bus),
        *await queues.queue_findings(bus),
        *await schedules.timers_found(bus),
        *await schedules.families_found(bus),
        *await schedules.arrays_found(bus),
        *services.service_findings(replies),
        *runners.runner_findings(replies, waiting),
        *runners.away_findings(announced, replies, log),
        *await machines.machine_findings(bus, announced),
        *await services.leader_findings(bus.bus, replies),
        *permission_findings(replies, with_jwts=bus.bus.nc.has_jwt),
        *await admin_ports.admin_findings(options.admin_ports),
        *await history.domain_findings(bus.bus),
        *await history.checkpoint_findings(bus.bus),
        *await set_aside_findings(bus.bus, LEADER_READERS, every=every),
        *await history.dead_letter_findings(bus.bus),
    ]
    # Last, because each check may have been refused something.
    nc = bus.bus.nc
    mine = login_findings(nc.role, nc.namespaces, nc.user, [*nc.denials], has_jwt=nc.has_jwt)
    return [*lines, *mine]
