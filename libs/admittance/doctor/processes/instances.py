"""Checks of `admit doctor`: whether services answer, keep up, and have one leader."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from admittance.client.health import health
from admittance.doctor.finding import Finding, finding, note, wrong
from admittance.doctor.processes.consumers import LAG_MAX
from admittance.events.requests.services import HealthReply
from admittance.runtime.bus.bus import Bus
from admittance.runtime.leader.leader_elector import LEADER, LEADER_SEEN, NO_LEADER
from admittance.runtime.process.service import Service, WithUp

DOWN = "docs/operations.md#a-service-is-down"
AGAIN_SECONDS = 1.0
"""Two leaders of one domain are reported only if both still lead after this time: during a takeover
the earlier leader learns a moment later that it does not lead any more."""


def service_findings(
    replies: Sequence[HealthReply], services: Mapping[str, Service]
) -> list[Finding]:
    """A finding for each instance that answers, and for each missing service but those that run
    jobs, about which `runners.runner_findings` reports."""
    lines = []
    for name, service in services.items():
        mine = [reply for reply in replies if reply.service == name]
        if not mine and service.with_up is WithUp.ALWAYS and not service.runs_jobs:
            absent = service.if_missing
            lines.append(note(name, absent) if absent else _missing(name))
        lines += map(instance_finding, mine)
    lines += [instance_finding(reply) for reply in replies if reply.service not in services]
    return lines


def _missing(name: str) -> Finding:
    todo = (
        f"start `admit up`, or `admit serve {name}`; if its process runs, it hangs or is paused: "
        f"restart it: {DOWN}"
    )
    return wrong(name, "no instance answers", todo)


def instance_finding(reply: HealthReply) -> Finding:
    """The finding about one instance of a service."""
    leads = f", leads {', '.join(reply.leads)}" if reply.leads else ""
    leader, seen = reply.details.get(LEADER), reply.details.get(LEADER_SEEN, "never")
    if leader == NO_LEADER:
        situation = f"{reply.instance} alive, does not lead, sees no leader (last seen: {seen})"
        todo = (
            "correct other findings first; if none explains it after ADMIT_LEASE_SECONDS (5), "
            f"restart this instance and report it: {DOWN}"
        )
        return wrong(reply.service, situation, todo)
    if leader is not None:
        leads = f", stands by for {leader} (last seen: {seen})"
    details = "".join(
        f", {key} {value}"
        for key, value in reply.details.items()
        if key not in (LEADER, LEADER_SEEN)
    )
    ready = "ready" if reply.ready else "not ready"
    text = f"{reply.instance} {ready}, {reply.lag:,} behind{leads}{details}"
    todo = f"look at its log: {DOWN}"
    if reply.ready and reply.lag > LAG_MAX:
        todo = "look at its log and at the load: docs/operations.md#the-log-is-not-applied"
    return finding(reply.ready and reply.lag <= LAG_MAX, reply.service, text, todo=todo)


async def leader_findings(bus: Bus, replies: Sequence[HealthReply]) -> list[Finding]:
    """The domains with several leaders, and instance names of several processes."""
    if not double_findings(replies):
        return []
    await asyncio.sleep(AGAIN_SECONDS)
    return double_findings(await health(bus))


def double_findings(replies: Iterable[HealthReply]) -> list[Finding]:
    """Findings about the domains that several of the instances that replied lead, and about
    instance names that replied more than once.
    """
    leaders: dict[str, set[str]] = {}
    names: Counter[tuple[str, str]] = Counter()
    for reply in replies:
        names[reply.service, reply.instance] += 1
        for domain in reply.leads:
            leaders.setdefault(domain, set()).add(reply.instance)
    return [
        *(
            wrong(
                f"domain {domain}",
                f"{len(instances)} instances say that they lead it: {', '.join(sorted(instances))}",
                "restart the instance that the last epoch does not name; the server refuses its "
                f"decisions: {DOWN}",
            )
            for domain, instances in leaders.items()
            if len(instances) > 1
        ),
        *(
            wrong(
                service,
                f"{count} processes have the instance name {instance}",
                "give each process a name of its own (ADMIT_INSTANCE)",
            )
            for (service, instance), count in names.items()
            if count > 1
        ),
    ]
