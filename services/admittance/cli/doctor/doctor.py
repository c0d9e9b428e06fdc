"""``admit doctor``: checks an installation from outside and lists what is wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec

from admittance.cli.doctor import findings
from admittance.cli.doctor.findings import NOTE, OK, WRONG, Finding, finding, permission_findings
from admittance.cli.doctor.set_aside import remedy, set_aside
from admittance.cli.support import output
from admittance.cli.support.errors import NotAllowed
from admittance.cli.support.link import link
from admittance.cli.support.options import Call, Output
from admittance.cli.support.output import UNKNOWN, Table, columns_of
from admittance.cli.support.services import SERVICES
from admittance.cli.up.readiness import health
from admittance.events import subjects
from admittance.events.names import BadToken, plain
from admittance.events.reader import BROKEN
from admittance.events.requests import HealthReply
from admittance.events.system import DeadLetter, Epoch
from admittance.runtime.bus import streams
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.durables import list_consumers
from admittance.runtime.bus.history import last, last_by_direct_get
from admittance.runtime.bus.opening import WITHOUT_ACCOUNTS, is_open
from admittance.runtime.errors import AccessDenied, Refused, Unavailable
from admittance.runtime.leader.leader_elector import LEADER, LEADER_SEEN, NO_LEADER
from admittance.workload_controller.checkpoints import checkpoints

LAG_MAX: Final = 10_000
"""The most unread facts of a service that are ok, about a second of work; with more, the service
does not keep up.
"""
HEALTH_SECONDS: Final = 1.0
SET_ASIDE_MAX: Final = 50
"""The most unreadable entries that get a line of their own in the table."""


async def doctor(call: Call) -> int:
    """Prints one line per finding; the exit status is 1 if a finding is wrong."""
    async with link(call) as bus:
        try:
            await bus.bus.api(f"STREAM.INFO.{subjects.TIMERS}")
        except AccessDenied as error:
            raise NotAllowed(
                f"{error}; `admit doctor` needs a login with the role viewer or admin"
            ) from None
        except (Refused, Unavailable):
            pass  # `_streams` reports it.
        lines = [
            *_server(bus.bus, call),
            *await _streams(bus.bus),
            *await findings.writes_found(bus.bus),
            *await _consumers(bus.bus),
            *await findings.check_controllers(bus),
            *await findings.capacity_classes(bus),
            *await findings.timers_found(bus.bus),
            *await findings.families_found(bus.bus),
            *_services(answers := await health(bus.bus, seconds=HEALTH_SECONDS)),
            *permission_findings(answers),
            *await _leads(bus.bus),
            *await _checkpoints(bus.bus),
            *await _set_aside(bus.bus, call),
            *await _dead_letters(bus.bus),
        ]
    wrong = [line for line in lines if line.state == WRONG]
    shown = {"healthy": not wrong, "checks": [one._asdict() for one in lines]}
    if not output.show_value(shown, call.output):
        columns = columns_of("STATE", "WHAT", "FOUND")
        output.show_table(Table(columns, lines))
    if wrong:
        output.error(f"{len(wrong)} of {len(lines)} checks are wrong")
    return 1 if wrong else 0


def _server(bus: Bus, call: Call) -> list[Finding]:
    info: Mapping[str, Any] = bus.nc._server_info
    name = info.get("server_name") or info.get("server_id", "?")
    cluster = info.get("cluster")
    where = f"{call.shown_url}, {name}" + (f", cluster {cluster}" if cluster else ", no cluster")
    disks = "the disks of a majority" if cluster else "disk"
    durability = (
        f"acknowledged writes are on {disks} after sync_interval, which the server "
        "does not report: set sync_interval: always if a power cut must lose nothing"
    )
    return [
        Finding(OK, "server", f"nats-server {info.get('version', '?')} at {where}"),
        *([Finding(NOTE, "credentials", WITHOUT_ACCOUNTS)] if is_open(bus.nc) else []),
        Finding(NOTE, "durability", durability),
    ]


async def _streams(bus: Bus) -> list[Finding]:
    try:
        problems = await streams.check(bus)
    except (Refused, Unavailable) as error:
        return [Finding(WRONG, "streams", str(error))]
    lines = [Finding(WRONG, "streams", problem) for problem in problems]
    for name in (stream.name for stream in streams.all_streams()):
        try:
            info = await bus.api(f"STREAM.INFO.{name}")
        except (Refused, Unavailable):
            continue  # An earlier line already reports the missing stream.
        state, config = info["state"], info["config"]
        size = f"{state['messages']:,} messages, {_bytes(state['bytes'])}"
        copies = f"{config.get('num_replicas', 1)} replica(s), {config.get('storage', '?')}"
        lines.append(Finding(OK, f"stream {name}", f"{size}, {copies}"))
        lines += _replicas(name, info.get("cluster") or {})
    return lines


def _replicas(name: str, cluster: Mapping[str, Any]) -> list[Finding]:
    behind = [
        one.get("name", "?")
        for one in cluster.get("replicas") or []
        if not one.get("current") or one.get("offline")
    ]
    if not behind:
        return []
    return [Finding(WRONG, f"stream {name}", f"replicas behind or offline: {', '.join(behind)}")]


async def _consumers(bus: Bus) -> list[Finding]:
    lines = []
    consumers: list[dict[str, Any]] = []
    with suppress(Refused, Unavailable):
        consumers = await list_consumers(bus, subjects.STREAM)
    for info in consumers:
        name = info["config"].get("durable_name") or subjects.CHECK_DURABLE
        if name.startswith((subjects.CHECK_DURABLE, subjects.PROVIDER_DURABLE)):
            continue  # Check controllers and providers have lines of their own.
        unread, text = findings.backlog(info)
        lines.append(finding(unread <= LAG_MAX, f"consumer {info['name']}", text))
    return lines


def _services(answers: list[HealthReply]) -> list[Finding]:
    lines = []
    for name, service in SERVICES.items():
        mine = [one for one in answers if one.service == name]
        if not mine and service.together:
            missing = f"no instance answers: start `admit up`, or `admit serve {name}`"
            # Some services may be absent: jobs may run elsewhere, and only the provider of the
            # installation's own cloud is needed.
            lines.append(Finding(WRONG if service.wanted else NOTE, name, missing))
        for one in mine:
            lines.append(_service(one))
    for one in answers:
        if one.service not in SERVICES:
            lines.append(_service(one))
    return lines


def _service(one: HealthReply) -> Finding:
    leads = f", leads {', '.join(one.leads)}" if one.leads else ""
    leader, seen = one.details.get(LEADER), one.details.get(LEADER_SEEN, "never")
    if leader == NO_LEADER:
        found = f"{one.instance} alive, does not lead, sees no leader (last seen: {seen})"
        return Finding(WRONG, one.service, found)
    if leader is not None:
        leads = f", stands by for {leader} (last seen: {seen})"
    details = "".join(
        f", {key} {value}" for key, value in one.details.items() if key not in (LEADER, LEADER_SEEN)
    )
    ready = "ready" if one.ready else "not ready"
    text = f"{one.instance} {ready}, {one.lag:,} behind{leads}{details}"
    return finding(one.ready and one.lag <= LAG_MAX, one.service, text)


async def _leads(bus: Bus) -> list[Finding]:
    """The owner of each domain: the owner in the domain's last epoch on the log."""
    try:
        info = await bus.api(
            f"STREAM.INFO.{subjects.STREAM}", {"subjects_filter": f"{subjects.EPOCH}>"}
        )
    except (Refused, Unavailable):
        return []

    async def line(subject: str) -> Finding:
        domain = subject.removeprefix(subjects.EPOCH)
        with suppress(BadToken):
            domain = plain(domain)
        owner = UNKNOWN
        sequence = 0
        with suppress(Refused, Unavailable, *BROKEN):
            message = await last_by_direct_get(bus, subject)
            if message is not None:
                sequence = message.sequence
                owner = msgspec.json.decode(message.data, type=Epoch).owner
        return Finding(OK, f"domain {domain}", f"led by {owner} since epoch {sequence}")

    found = sorted(info["state"].get("subjects") or {})
    return list(await asyncio.gather(*(line(subject) for subject in found)))


async def _checkpoints(bus: Bus) -> list[Finding]:
    """The checkpoints from which past decisions can be repeated."""
    try:
        made = await checkpoints(bus)
    except (Refused, Unavailable):
        return []
    if not made:
        return [Finding(OK, "checkpoints", "none yet")]
    newest = made[-1]
    found = f"{len(made)}, the newest of {newest.time:%Y-%m-%d %H:%M} UTC"
    return [Finding(OK, "checkpoints", f"{found}, {_bytes(newest.size)}, {newest.rows:,} rows")]


async def _set_aside(bus: Bus, call: Call) -> list[Finding]:
    """A finding for each unreadable entry of the log and the buckets. Only an unreadable workload
    or manifest is an error.
    """
    try:
        found = await set_aside(bus, await list_consumers(bus, subjects.STREAM))
    except AccessDenied:
        # Only services and the user of a backup may read whole streams.
        return [Finding(NOTE, "set aside", "not looked for: this login may not read whole streams")]
    except (Refused, Unavailable) as error:
        if isinstance(error, Refused) and error.code == streams.NO_STREAM:
            return []  # A stream is missing, and `_streams` reports it.
        return [Finding(WRONG, "set aside", str(error))]
    if not found:
        return [Finding(OK, "set aside", "none: all entries can be read")]
    lines = []
    shown = len(found) if call.output in (Output.JSON, Output.YAML) else SET_ASIDE_MAX
    for one in found[:shown]:
        where = f"{one.stream} {one.place}" + (f" ({one.sequence})" if one.sequence else "")
        state = WRONG if one.stream == f"KV_{subjects.BUCKET}" else NOTE
        lines.append(Finding(state, "set aside", f"{where}: {one.reason}; {remedy(one)}"))
    if len(found) > shown:
        lines.append(Finding(NOTE, "set aside", f"{len(found) - shown:,} more: see `-o json`"))
    return lines


async def _dead_letters(bus: Bus) -> list[Finding]:
    try:
        info = await bus.api(
            f"STREAM.INFO.{subjects.STREAM}", {"subjects_filter": f"{subjects.DEADLETTER}>"}
        )
    except (Refused, Unavailable):
        return []
    counts = info["state"].get("subjects") or {}
    total = sum(counts.values())
    if not total:
        return [Finding(OK, "dead letters", "none")]
    each = ", ".join(f"{n:,} of {s.removeprefix(subjects.DEADLETTER)}" for s, n in counts.items())
    lines = [Finding(NOTE, "dead letters", f"{each}: see `admit events -A`")]
    for subject in counts:
        with suppress(Refused, Unavailable, *BROKEN):
            newest = await last(bus, subject)
            if newest is not None:
                letter = msgspec.json.decode(newest.data, type=DeadLetter)
                found = f"on {letter.subject}: {letter.reason}"
                service = subject.removeprefix(subjects.DEADLETTER)
                lines.append(Finding(NOTE, f"newest of {service}", found[:300]))
    return lines


def _bytes(count: int) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
