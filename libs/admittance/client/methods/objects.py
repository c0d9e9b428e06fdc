"""What programs may do with objects: list, watch, apply and delete them, and ask what if.

`tools/sync_client.py` makes methods of `SyncClient` from the signatures and docstrings.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from admittance.client import opening
from admittance.client.arguments.checked import at_least, checked_methods, words
from admittance.client.calls import Calls, Stream
from admittance.client.errors import BadInput
from admittance.client.kinds import WORKLOAD, ObjectKind, kind_named
from admittance.client.requests import applying, budgets, machines, objects, selection, then
from admittance.client.requests.link import Link
from admittance.client.requests.objects import BucketObject, Change
from admittance.client.requests.queues import questions
from admittance.client.requests.submissions.manifests import Manifests
from admittance.events.requests.manifests import Applied, DeleteReply
from admittance.events.requests.whatif import SimulateReply
from admittance.runtime import clock


@checked_methods
class ObjectMethods:
    """The methods of `Client` about objects of any kind."""

    _calls: Calls

    async def get(
        self,
        kind: str,
        name: str,
        *,
        namespace: str | None = None,
        at: int | datetime | None = None,
    ) -> BucketObject:
        """The object of a kind, such as ``clusterqueue``. A runner has ``status.inUse`` and the
        condition Ready; a budget has in ``status`` what is used. ``at``: as it was stored at that
        moment of the past, as `moment` takes it. Raises NotFound."""
        async with self._calls.call() as link:
            wanted = kind_named(kind)
            if at is not None:
                return await then.find_then(link, wanted, name, namespace or "", at)
            stored = await objects.find(link, wanted, name, namespace or "")
            return (await _with_live(link, wanted, [stored]))[0]

    async def list(
        self,
        kind: str = "workloads",
        *,
        labels: str | Sequence[str] = (),
        states: str | Sequence[str] = (),
        since: datetime | None = None,
        queue: str | None = None,
        sort_by: str | None = None,
        limit: int | None = None,
        name: str | None = None,
        namespace: str | None = None,
        all_namespaces: bool = False,
    ) -> Sequence[BucketObject]:
        """The objects of a kind: running workloads first, then waiting, then finished ones, each
        with the newest first; other objects by name.

        ``labels``: selectors such as ``team=vision`` or ``!draft``; ``states``: phases, Succeeded
        or Failed; ``since``: created from this time on; ``queue``: a LocalQueue or a ClusterQueue;
        ``sort_by``: name, namespace, queue, priority, state, created, started or duration, with
        ``-`` before it in reverse; ``name``: only objects of this name, which reads no others.
        Objects that cannot be read are left out.
        """
        async with self._calls.call() as link:
            wanted = kind_named(kind)
            at_least(1, limit=limit)
            chosen = selection.selection(
                wanted,
                labels=words(labels),
                states=words(states),
                since=since,
                sort_by=sort_by,
                limit=limit,
            )
            space = opening.scope_of(namespace, link.namespace, all_namespaces=all_namespaces)
            if queue is not None:
                if wanted is not WORKLOAD:
                    raise BadInput("queue goes with workloads only")
                named = await questions.queues_named(link, queue, space)
                chosen = chosen._replace(queues=named)
            readable, _ = await objects.find_all(link, wanted, space, name)
            selected, _ = selection.select(wanted, readable, chosen, clock.now())
            return await _with_live(link, wanted, selected)

    def watch(
        self,
        kind: str = "workloads",
        name: str | None = None,
        *,
        namespace: str | None = None,
        all_namespaces: bool = False,
    ) -> Stream[Change]:
        """The present objects of a kind, then every change, by revision, until the iteration ends.

        After a lost connection it continues after the last revision that it returned, and misses no
        object and no deletion. Writes to one object that follow each other fast may come as one
        change.
        """

        def changes(link: Link) -> AsyncGenerator[Change]:
            space = opening.scope_of(
                namespace, link.namespace, all_namespaces=all_namespaces, name=name
            )
            return objects.watch(link, kind_named(kind), name, space)

        return self._calls.stream(changes)

    async def apply(
        self,
        manifests: Manifests,
        *,
        expected: Sequence[int | None] = (),
        namespace: str | None = None,
    ) -> Sequence[Applied]:
        """Creates or changes objects. For a Workload or Job, a new workload is submitted, after all
        other objects.

        ``expected``: for each manifest the revision that its object must still have, compared in
        the step that writes it; 0: it must not exist; None: any, and for workloads. Returns an
        outcome for each object: created, changed or unchanged. Raises BadInput with all problems of
        the manifests, and Refused, also if an object has not the expected revision.
        """
        async with self._calls.call() as link:
            space = opening.namespace_of(namespace, link.namespace)
            return await applying.apply_all(link, manifests, space, expected)

    async def delete(self, kind: str, name: str, *, namespace: str | None = None) -> DeleteReply:
        """Deletes an object. The outcome is ``deleted``, or ``deferred`` while its job stops, or
        while other objects, which ``error`` names, still need it. Raises NotFound and Refused."""
        async with self._calls.call() as link:
            wanted = kind_named(kind)
            if wanted is not WORKLOAD:
                return await applying.delete_object(link, wanted, name, namespace or "")
            stored = await objects.find(link, wanted, name, namespace or "")
            return await applying.delete_workload(link, stored)

    async def simulate(
        self,
        manifests: Manifests = (),
        *,
        deletes: Iterable[str] = (),
        changes: Iterable[Mapping[str, Any]] = (),
        limit: int = 0,
        namespace: str | None = None,
    ) -> SimulateReply:
        """What would start, wait or be evicted if the manifests were applied now, the workloads
        changed, and then the objects deleted. Nothing is changed.

        ``deletes``: objects as ``kind/name``. ``changes``: of existing workloads, such as
        ``{"workload": "train", "priority": 100}`` or ``{"workload": "train", "queue": "other"}``;
        with a queue the workload is submitted again there. ``limit``: the most rows of each list;
        0: all. Raises BadInput with the problems of the manifests.
        """
        async with self._calls.call() as link:
            space = opening.namespace_of(namespace, link.namespace)
            at_least(0, limit=limit)
            changed = applying.workload_changes(changes, space)
            return await applying.what_if(link, manifests, deletes, limit, space, changed)


async def _with_live(
    link: Link, kind: ObjectKind, stored: Sequence[BucketObject]
) -> list[BucketObject]:
    """Runners and budgets with what services answer about them; others unchanged."""
    runners = (await machines.with_states(link, kind, stored)).runners
    return (await budgets.with_states(link, kind, runners)).budgets
