"""Whether a workload could ever start: the scheduler is asked, and a misfit is refused."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec

from admittance.api.reading.objects import encode
from admittance.api.workload import Workload
from admittance.backoff import Backoff
from admittance.client import kinds
from admittance.client.arguments.spelling import IN_PYTHON, Spelling
from admittance.client.errors import NotAllowed, NotFound, Refused, RequestFailed
from admittance.client.requests.link import Link
from admittance.client.requests.objects import field, lookup
from admittance.events import reasons
from admittance.events.requests.whatif import Fit, FitReply
from admittance.runtime import clock
from admittance.runtime.bus.bucket import Entry

if TYPE_CHECKING:
    pass


CURRENT_SECONDS: Final = 5.0
"""The scheduler's answer that a workload could never start counts once the scheduler has read the
newest manifests, or after this time.
"""


PAUSE_SECONDS: Final = 0.05


PAUSE_SECONDS_MAX: Final = 0.5
"""Seconds between two questions until the answer counts: the first time, and at most."""


_CONFIGURATION: Final = (kinds.CLUSTER_QUEUE, kinds.LOCAL_QUEUE, kinds.COHORT, kinds.FLAVOR)


async def fit_of(link: Link, workload: Workload) -> FitReply | None:
    """The scheduler's answer about the workload; None if the scheduler does not answer. An answer
    that the workload could not start, or not now, counts only if it is current.
    """
    namespace = workload.metadata.namespace
    request = Fit(workload=msgspec.Raw(encode(workload)))
    newest: int | None = None
    deadline = clock.monotonic() + CURRENT_SECONDS
    backoff = Backoff(PAUSE_SECONDS, PAUSE_SECONDS_MAX)
    while True:
        try:
            reply = await link.ask("fit", request, FitReply, namespace=namespace)
        except RequestFailed:
            return None
        if reply.error:
            return None
        if reply.fits and not reply.inactive and not reply.machines:
            return reply
        if newest is None:
            newest = await _newest(link, namespace)
        if reply.seen >= newest or clock.monotonic() >= deadline:
            return reply
        await asyncio.sleep(backoff.next())


def misfit(reply: FitReply) -> str:
    """Why the queue can never hold the workload, as a sentence."""
    if _has_no_queue(reply):
        return reply.message
    return (
        f"clusterqueue {reply.cluster_queue} can never hold it, even if empty "
        f"({reply.reason}): {reply.message}"
    )


def _has_no_queue(reply: FitReply) -> bool:
    return not reply.cluster_queue or reply.reason == reasons.NO_SUCH_QUEUE


def refusal(reply: FitReply, spelled: Spelling = IN_PYTHON) -> str:
    """The error for a command that is not submitted, with what its workload would wait for."""
    if _has_no_queue(reply):
        until = "the queue is created"
    elif reply.reason == reasons.NO_MATCHING_FLAVOR:
        until = "the queue offers a flavor for it"
    elif reply.reason == reasons.WAITING_FOR_USER_LIMIT:
        until = "the limit is raised"
    else:
        until = "the quota is raised"
    return (
        f"not submitted: {misfit(reply)}; {spelled.anyway} submits it, and it waits until {until}"
    )


async def _newest(link: Link, namespace: str) -> int:
    """The newest revision of the objects that define quota, and of the LocalQueues of the
    namespace, as far as this login may read them."""

    async def read(pattern: str) -> list[Entry]:
        try:
            return await link.read_all(pattern)
        except NotAllowed:
            return []

    patterns = [pattern for kind in _CONFIGURATION for pattern in kind.patterns(namespace)]
    each = await asyncio.gather(*map(read, patterns))
    return max((entry.revision for entries in each for entry in entries), default=0)


async def refuse_misfit(link: Link, workload: Workload, *, anyway: bool = False) -> FitReply | None:
    """Raises NotFound if the queue does not exist, and Refused if it can never hold the workload,
    unless ``anyway``. Returns the scheduler's answer; None if the scheduler does not answer."""
    if anyway:
        return await fit_of(link, workload)
    namespace, queue = workload.metadata.namespace, workload.spec.queue_name
    if await link.get(kinds.LOCAL_QUEUE.object_key(namespace, queue)) is None:
        raise NotFound(
            f"not submitted: LocalQueue {namespace}/{queue} does not exist; "
            f"{link.spelled.anyway} submits it, and it waits until the queue is created"
        )
    reply = await fit_of(link, workload)
    if reply is not None and not reply.fits:
        await _refuse_unknown_flavors(link, workload, reply.cluster_queue)
        raise Refused(refusal(reply, link.spelled), reason=reply.reason)
    return reply


async def _refuse_unknown_flavors(link: Link, workload: Workload, cluster_queue: str) -> None:
    """Raises Refused if the workload allows only flavors that the ClusterQueue does not have.
    ``cluster_queue``: "" if the scheduler does not know the LocalQueue."""
    allowed = workload.spec.admission_constraints
    wanted = allowed.allowed_resource_flavors if allowed is not None else None
    if not wanted or not cluster_queue:
        return
    stored = await lookup(link, kinds.CLUSTER_QUEUE.object_key("", cluster_queue))
    if stored is None:
        return
    groups = field(stored.plain(), "spec", "resourceGroups", default=[])
    offered = dict.fromkeys(
        flavor["name"] for group in groups for flavor in group.get("flavors") or ()
    )
    if offered.keys().isdisjoint(wanted):
        raise Refused(
            f"not submitted: clusterqueue {cluster_queue} has no flavor {' or '.join(wanted)}, "
            f"it has {', '.join(offered) or 'none'}; "
            f"{link.spelled.anyway} submits it, and it waits until the queue has that flavor",
            reason=reasons.NO_MATCHING_FLAVOR,
        )
