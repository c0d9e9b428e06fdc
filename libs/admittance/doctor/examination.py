"""All findings about an installation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from admittance.client.errors import NotAllowed
from admittance.client.health import health_answers
from admittance.client.requests.link import Link
from admittance.doctor import (
    controllers,
    history,
    machines,
    queues,
    schedules,
    servers,
    streams,
)
from admittance.doctor.finding import Finding, without_repeats
from admittance.doctor.permissions import login_findings, permission_findings
from admittance.doctor.processes import admin_ports, consumers, instances, runners
from admittance.doctor.processes.clocks import clock_findings
from admittance.doctor.set_aside import set_aside_findings
from admittance.events import subjects
from admittance.events.requests.services import HealthReply
from admittance.runtime.bus.streams import StreamInfos, stream_infos
from admittance.runtime.errors import AccessDenied, BusRefused, BusUnavailable
from admittance.runtime.process.service import LogConsumers, Service

HEALTH_SECONDS = 1.0


class Options(NamedTuple):
    """What is examined. ``url``: of the servers; ``tls_first``: they send nothing before the TLS
    handshake. ``monitors``: URLs of HTTP monitoring ports of nats-servers. ``admin_ports``:
    addresses at which services should serve their admin port. ``every``: of many unreadable
    entries all, not only the first. ``thorough``: every stored value is read, and a message is
    written to each stream."""

    url: str
    tls_first: bool = False
    monitors: Sequence[str] = ()
    admin_ports: Sequence[str] = ()
    every: bool = False
    thorough: bool = True


class Examined(NamedTuple):
    """What was seen. ``parts``: findings, with what they are about. ``consumers``: infos of the
    consumers of the log."""

    parts: list[tuple[str, list[Finding]]]
    replies: list[HealthReply]
    infos: StreamInfos
    consumers: list[dict[str, Any]]

    @property
    def findings(self) -> list[Finding]:
        """All findings, in the order in which they are shown."""
        return list(chain.from_iterable(lines for _, lines in self.parts))


async def refuse_without_rights(link: Link) -> None:
    """Raises NotAllowed for a login that may not examine the system."""
    try:
        await link.bus.api(f"STREAM.INFO.{subjects.TIMERS}")
    except AccessDenied as error:
        raise NotAllowed(
            f"{error}; `admit doctor` needs a login with the role viewer or admin"
        ) from None
    except (BusRefused, BusUnavailable):
        pass  # `streams.stream_findings` reports it.


async def examine(bus: Link, options: Options, services: Mapping[str, Service]) -> Examined:
    """Examines the installation at the server of the link. ``services``: all services, by name."""
    answers = await health_answers(bus.bus, seconds=HEALTH_SECONDS)
    replies = [answer.reply for answer in answers]
    reported = without_repeats(finding for reply in replies for finding in reply.findings)
    infos = await stream_infos(bus.bus)
    monitored = await servers.monitor_findings(options.monitors)
    log = await consumers.consumers_of_log(bus.bus)
    runner = next(service for service in services.values() if service.runs_jobs)
    waiting = await runners.waiting_jobs(bus, replies, log, runner)
    announced = await runners.announced_runners(bus)
    nc = bus.bus.nc
    parts: list[tuple[str, Iterable[Finding]]] = [
        (
            "bus",
            await servers.server_findings(
                bus.bus, options.url, [*reported, *monitored], quiet=options.tls_first
            ),
        ),
        ("bus", monitored),
        ("services", reported),
        ("services", clock_findings(answers, await servers.clock_of_server(bus.bus))),
        ("bus", streams.stream_findings(infos)),
        ("bus", streams.replica_findings(infos, replies)),
        ("bus", await streams.write_findings(bus.bus) if options.thorough else ()),
        (
            "consumers",
            [
                consumers.consumer_finding(info, services.values(), jobs_wait=bool(waiting))
                for info in log
            ],
        ),
        ("checks", await controllers.check_controllers(bus)),
        ("checks", await controllers.capacity_classes(bus)),
        ("queues", await queues.queue_findings(bus)),
        ("timers", await schedules.timers_found(bus)),
        ("timers", await schedules.families_found(bus)),
        ("timers", await schedules.arrays_found(bus)),
        ("services", instances.service_findings(replies, services)),
        ("services", runners.runner_findings(replies, waiting, runner)),
        ("machines", runners.away_findings(announced, replies, log, runner)),
        ("machines", await machines.machine_findings(bus, announced)),
        ("leaders", await instances.leader_findings(bus.bus, replies)),
        ("services", permission_findings(replies, with_jwts=nc.has_jwt)),
        ("services", await admin_ports.admin_findings(options.admin_ports)),
        ("leaders", await history.domain_findings(bus.bus)),
        ("history", await history.checkpoint_findings(bus.bus)),
        ("history", await history.bucket_history_findings(bus.bus)),
        (
            "values",
            await set_aside_findings(bus.bus, _leader_readers(services), every=options.every)
            if options.thorough
            else (),
        ),
        ("history", await history.dead_letter_findings(bus.bus)),
    ]
    # Last, because each check may have been refused something.
    mine = login_findings(nc.role, nc.namespaces, nc.user, [*nc.denials], has_jwt=nc.has_jwt)
    parts.append(("services", mine))
    return Examined([(about, [*lines]) for about, lines in parts], replies, infos, log)


def _leader_readers(services: Mapping[str, Service]) -> frozenset[str]:
    """Services with leaders that create consumers of the log for themselves; the names of the
    consumers begin with the name of the service."""
    return frozenset(
        name for name, service in services.items() if service.consumers is LogConsumers.OF_LEADER
    )
