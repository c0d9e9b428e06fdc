"""What programs may ask about queues: what waits, what runs, and their counters.

`tools/sync_client.py` makes methods of `SyncClient` from the signatures and docstrings.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from admittance.client import opening
from admittance.client.arguments.checked import at_least, checked_methods
from admittance.client.calls import Calls, Stream
from admittance.client.errors import BadInput
from admittance.client.requests import forecasts, then
from admittance.client.requests.queues import overview, questions
from admittance.client.requests.queues.notices import changed_domains
from admittance.client.requests.queues.overview import QueueOverview
from admittance.events.requests.forecast import ForecastReply
from admittance.events.requests.past import Moment
from admittance.events.requests.queues import (
    LastDay,
    LastDayQuery,
    PendingReply,
    Queues,
    QueuesReply,
)


@checked_methods
class QueueMethods:
    """The methods of `Client` about queues."""

    _calls: Calls

    async def pending(
        self,
        queue: str | None = None,
        *,
        cluster_queue: str = "",
        limit: int | None = None,
        skip: int = 0,
        states: Sequence[str] = (),
        reasons: Sequence[str] = (),
        counts: bool = False,
        namespace: str | None = None,
        all_namespaces: bool = False,
        at: int | datetime | None = None,
    ) -> PendingReply:
        """The pending workloads in the order of their queues. ``queue``: a LocalQueue of the
        namespace, or a ClusterQueue; ``cluster_queue``: only a ClusterQueue. ``limit``: the most
        rows; None: all. ``skip``: leaves out the first so many.

        ``states``: of ``Pending``, ``QuotaReserved`` (waits for checks) and ``Held``; empty:
        Pending. ``reasons``: only workloads with one of these reasons; empty: all. ``counts``: the
        reply also says how many there are of each state and reason, whatever was chosen. ``at``:
        those of that moment of the past, as `moment` takes it, at most 1,000, with the reasons that
        were stored then; goes without ``states``, ``reasons`` and ``counts``.
        """
        async with self._calls.call() as link:
            at_least(1, limit=limit)
            at_least(0, skip=skip)
            space = opening.scope_of(namespace, link.namespace, all_namespaces=all_namespaces)
            if at is not None:
                if states or reasons or counts:
                    raise BadInput("at goes without states, reasons and counts")
                of = then.OfQueue(queue or "", cluster_queue)
                return await then.pending_at(link, of, space, at, limit=limit, skip=skip)
            if cluster_queue:
                query, where = questions.cluster_queue_query(link, cluster_queue, namespace)
            else:
                query, where = await questions.pending_query(link, queue, space)
            query = replace(query, states=tuple(states), reasons=tuple(reasons), counts=counts)
            return await questions.pending_rows(link, query, where, limit, skip=skip)

    async def queue(
        self,
        queue: str | None = None,
        *,
        mine: bool = False,
        limit: int = 50,
        brief: bool = False,
        namespace: str | None = None,
        all_namespaces: bool = False,
    ) -> QueueOverview:
        """One look at the queues of the namespace, or at one queue: their use, what holds quota,
        and what waits in the order in which it is tried; an array is one row.

        ``queue``: a LocalQueue of the namespace, or a ClusterQueue. ``mine``: only workloads that
        the user of the connection submitted. ``limit``: the most rows of what runs, and of what
        waits, up to 200. ``brief``: only these rows, without the use of the queues and expected
        starts, which costs less where there are many queues.
        """
        async with self._calls.call() as link:
            at_least(1, limit=limit)
            space = opening.scope_of(namespace, link.namespace, all_namespaces=all_namespaces)
            return await overview.overview(link, queue, space, mine=mine, limit=limit, brief=brief)

    async def forecast(
        self, workloads: Sequence[str], *, namespace: str | None = None
    ) -> ForecastReply:
        """When waiting workloads are expected to start, at most 1,000 at once: ``starts`` has each
        workload that waits. If ``starting`` is set, some of them have no forecast yet: ask again
        after some seconds. Raises NoResponder if the system has no forecast service."""
        async with self._calls.call() as link:
            return await forecasts.forecast(link, workloads, namespace or link.namespace)

    async def moment(self, at: int | datetime, *, namespace: str | None = None) -> Moment:
        """A moment of the past: its sequence on the log, its time, and its revision of the bucket.
        ``at``: the sequence of a fact, after which it is, or a time with a zone. Raises
        RequestFailed with the first moment that is known for an earlier one."""
        async with self._calls.call() as link:
            return await then.moment(link, at, namespace)

    async def queues(
        self,
        cluster_queue: str = "",
        *,
        cohort: str = "",
        local_queues: bool = True,
        namespace: str | None = None,
        at: int | datetime | None = None,
    ) -> QueuesReply:
        """Counters, usage and activity of the queues; with ``cohort``, of every queue in its tree,
        and the sums of its cohorts; with ``namespace``, of its LocalQueues. ``local_queues`` False:
        only of ClusterQueues, which costs less where many workloads wait. ``at``: as they were at
        that moment of the past, as `moment` takes it."""
        async with self._calls.call() as link:
            query = Queues(cluster_queue=cluster_queue, cohort=cohort, local_queues=local_queues)
            if at is not None:
                return await then.queues_then(link, query, namespace, at)
            return await questions.queues_that_exist(link, query, namespace)

    async def last_day(
        self,
        resource: str,
        cluster_queues: Sequence[str] = (),
        *,
        cohorts: Sequence[str] = (),
        namespace: str | None = None,
    ) -> LastDay:
        """The last 24 hours of ClusterQueues and cohorts in half hours, together at most 500: how
        many workloads waited, and how much of ``resource`` was held, as the scheduler that answers
        has counted since its start. Names that do not exist are left out. ``namespace``: asks as a
        user of this namespace, which may ask about ClusterQueues."""
        async with self._calls.call() as link:
            query = LastDayQuery(
                resource=resource, cluster_queues=tuple(cluster_queues), cohorts=tuple(cohorts)
            )
            reply = await questions.queues(link, Queues(last_day=query), namespace)
            return reply.last_day or LastDay()

    def quota_changes(self) -> Stream[frozenset[str]]:
        """The names of domains (cohort trees, and ClusterQueues without a cohort) in which quota or
        queues just changed, also by workloads of other namespaces: at most four times a second for
        each domain. What changed while the connection was lost does not come later, so ask for the
        numbers first, and again after each item."""

        return self._calls.stream(changed_domains)
