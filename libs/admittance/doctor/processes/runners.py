"""Checks of `admit doctor`: admitted workloads that no runner starts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import islice
from typing import Any, Final

from msgspec import structs

from admittance.client import kinds
from admittance.client.errors import RequestFailed
from admittance.client.requests.link import Link
from admittance.client.requests.objects import lookup_all
from admittance.doctor.finding import Finding, note, wrong
from admittance.doctor.processes.consumers import (
    delete_command,
    is_of_absent_runner,
    runner_of,
)
from admittance.events import facts
from admittance.events.codec import Undecodable, decode
from admittance.events.requests.queues import Queues, QueuesReply
from admittance.events.requests.reading import Announced, AnnouncedReply, AnnouncedRunner
from admittance.events.requests.services import HealthReply
from admittance.events.subjects import subject_of
from admittance.runtime import clock
from admittance.runtime.bus.history import StoredMessage, last_of_each
from admittance.runtime.errors import BusRefused, BusUnavailable
from admittance.runtime.process.service import Service
from admittance.workload.conditions import Type, find
from admittance.workload.phase import Phase, phase
from admittance.workload.stored import PARENT, StoredWorkload, head

START_SECONDS: Final = 30.0
"""An admitted workload that has not started for so long waits for a runner."""
LOOKED_AT_MAX: Final = 1_000
"""The greatest number of workloads of which the log is asked whether they started."""
NAMED_MAX: Final = 3
TODO: Final = (
    "start `admit serve runner`, or the runner that starts these jobs; if its process runs, look "
    "at its log: docs/operations.md#nothing-is-admitted"
)


async def waiting_jobs(
    bus: Link,
    replies: Iterable[HealthReply],
    consumers: Iterable[Mapping[str, Any]],
    runner: Service,
) -> list[str]:
    """The admitted workloads that have not started, each as namespace and name, if a runner is
    away: none answers, or none reads one of the consumers of the log."""
    if _answers(replies, runner) and not any(map(is_of_absent_runner, consumers)):
        return []
    with suppress(RequestFailed, BusRefused, BusUnavailable):
        return await _waiting(bus)
    return []  # Another finding reports the service or server that does not answer.


def runner_findings(
    replies: Iterable[HealthReply], waiting: Sequence[str], runner: Service
) -> list[Finding]:
    """The finding about missing runners; empty if a runner answers, which has a line of its own."""
    return [] if _answers(replies, runner) else [runner_finding(waiting, runner)]


async def announced_runners(bus: Link) -> tuple[AnnouncedRunner, ...]:
    """The runners that have announced themselves in the last two days; empty if the
    workload-controller does not say, which another finding reports."""
    with suppress(RequestFailed, BusRefused, BusUnavailable):
        return (await bus.ask("runners", Announced(), AnnouncedReply)).runners
    return ()


def away_findings(
    announced: Iterable[AnnouncedRunner],
    replies: Iterable[HealthReply],
    consumers: Iterable[Mapping[str, Any]],
    service: Service,
) -> list[Finding]:
    """A finding for each announced runner that does not answer, unless the finding about its
    consumer says so."""
    answering = {
        reply.details.get("runner", "") for reply in replies if reply.service == service.name
    }
    reported = {runner_of(info) for info in consumers if is_of_absent_runner(info)}
    announced = tuple(announced)
    taken = {runner.consumer for runner in announced if runner.runner in answering} - {""}
    return [
        _taken_over(runner) if runner.consumer in taken else _away(runner)
        for runner in announced
        if runner.runner not in answering and not reported & {runner.runner, runner.consumer}
    ]


def _away(runner: AnnouncedRunner) -> Finding:
    found = note(
        f"runner {runner.consumer or runner.runner}",
        f"it announced itself{_when(runner)}, and does not answer",
        "start the runner on its data folder; if the runner is gone for good, "
        f"{delete_command(runner.consumer or runner.runner)} removes this line",
    )
    return structs.replace(found, since=runner.since)


def _taken_over(runner: AnnouncedRunner) -> Finding:
    """The finding about an earlier runner, when another one has its name now. The name cannot be
    deleted, since the present runner uses it."""
    return note(
        f"runner {runner.consumer}",
        f"the runner with the data folder {runner.runner} announced itself{_when(runner)} by this "
        "name, which another data folder has now, and does not answer",
        "if the data folder was lost, do nothing: its jobs are placed again, and this line goes "
        "two days after that; else start a runner on it with another ADMIT_RUNNER: "
        "docs/machines.md#jobs-on-machines",
    )


def _when(runner: AnnouncedRunner) -> str:
    return f" at {runner.since:%Y-%m-%d %H:%M}" if runner.since else ""


def _answers(replies: Iterable[HealthReply], runner: Service) -> bool:
    return any(reply.service == runner.name for reply in replies)


def runner_finding(waiting: Sequence[str], runner: Service) -> Finding:
    """The finding if no runner answers. ``waiting``: the admitted workloads that have not
    started."""
    if not waiting:
        return note(runner.name, runner.if_missing)
    named = ", ".join(waiting[:NAMED_MAX]) + (", …" if len(waiting) > NAMED_MAX else "")
    what = "workload waits" if len(waiting) == 1 else "workloads wait"
    return wrong(
        runner.name,
        f"no instance answers, and {len(waiting):,} admitted {what} for one: {named}",
        TODO,
    )


async def _waiting(bus: Link) -> list[str]:
    """The admitted workloads that have not started, each as namespace and name."""
    queues = await bus.ask("queues", Queues(), QueuesReply)
    if not any(queue.admitted for queue in queues.cluster_queues):
        return []
    now = clock.now()
    admissions = {
        (stored.namespace, stored.name): stored.workload().status.admitted_revision
        or stored.revision
        for stored in await lookup_all(bus, kinds.WORKLOAD.patterns(None)[0])
        if stored.is_workload() and is_overdue(stored.workload(), now)
    }
    # A runner of another vendor answers no question, but publishes that the job started.
    subjects = [
        subject_of(facts.Started(namespace=namespace, name=name, revision=0))
        for namespace, name in islice(admissions, LOOKED_AT_MAX)
    ]
    return not_started(admissions, await last_of_each(bus.bus, subjects))


def not_started(
    admissions: Mapping[tuple[str, str], int], starts: Iterable[StoredMessage]
) -> list[str]:
    """The admitted workloads, each as ``namespace/name``, without a start of their admission.
    ``admissions``: the revision of each workload's admission. ``starts``: the last start of
    each workload on the log."""
    waiting = dict(admissions)
    for message in starts:
        with suppress(Undecodable):
            fact = decode(message.subject, message.data)
            name = fact.namespace, fact.name
            if isinstance(fact, facts.Started) and fact.revision >= waiting.get(name, 0):
                waiting.pop(name, None)
    return ["/".join(name) for name in waiting]


def is_overdue(workload: StoredWorkload, now: datetime) -> bool:
    """Whether the workload has been admitted for `START_SECONDS` and its pods are not ready. A
    parent has no job of its own."""
    if phase(workload, now) is not Phase.ADMITTED or head(workload).role == PARENT:
        return False
    admitted = find(workload, Type.ADMITTED)
    since = admitted.last_transition_time if admitted is not None else None
    return since is None or (now - since).total_seconds() > START_SECONDS
