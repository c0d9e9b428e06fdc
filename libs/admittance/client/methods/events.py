"""What programs may ask about the past of workloads: the facts of the log.

`tools/sync_client.py` makes methods of `SyncClient` from the signatures and docstrings.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from datetime import datetime

from admittance.client import opening
from admittance.client.arguments.checked import at_least, checked_methods, words
from admittance.client.calls import Calls, Stream
from admittance.client.errors import BadInput
from admittance.client.requests.link import Link
from admittance.client.requests.workloads import facts, history, news
from admittance.events.requests.history import EventsReply, LogEntry


@checked_methods
class EventMethods:
    """The methods of `Client` about facts of the log."""

    _calls: Calls

    def events(
        self,
        name: str | None = None,
        *,
        follow: bool = False,
        since: datetime | None = None,
        until: datetime | None = None,
        after: int = 0,
        types: str | Sequence[str] = (),
        queue: str | None = None,
        at: int | datetime | None = None,
        namespace: str | None = None,
        all_namespaces: bool = False,
    ) -> Stream[LogEntry]:
        """The facts of the log about a workload and its variants, or about all workloads, oldest
        first; with ``follow`` also new ones, as they come.

        ``since``, ``until``: only facts from this time on, and before this time; ``after``: only
        facts after this sequence of the log; ``types``: only facts of these types, such as
        ``admitted`` or ``check_reported``; ``queue``: only facts about workloads of this LocalQueue
        or ClusterQueue, of deleted workloads only those that name it. ``at``: only facts up to this
        sequence or time. Each fact comes once, also after a lost connection; a later call with
        ``after`` misses none.
        """

        def entries(link: Link) -> AsyncGenerator[LogEntry]:
            at_least(0, after=after)
            if follow and (until is not None or at is not None):
                raise BadInput(f"{'at' if until is None else 'until'} does not go with follow")
            space = opening.scope_of(
                namespace, link.namespace, all_namespaces=all_namespaces, name=name
            )
            return history.facts_of(
                link,
                space,
                name,
                since=since,
                after=after,
                narrowed=facts.narrowing(types, queue, until, at),
                follow=follow,
            )

        return self._calls.stream(entries)

    async def last_answers(self, controllers: Sequence[str]) -> dict[str, datetime]:
        """When each of these check controllers last reported a verdict on any workload; one of
        which the log has none is left out. Raises NotAllowed for logins of single namespaces."""
        async with self._calls.call() as link:
            return await facts.last_answers(link, words(controllers))

    async def newest_events(
        self,
        name: str | None = None,
        *,
        limit: int = 100,
        before: int = 0,
        since: datetime | None = None,
        until: datetime | None = None,
        types: str | Sequence[str] = (),
        queue: str | None = None,
        namespace: str | None = None,
        all_namespaces: bool = False,
    ) -> EventsReply:
        """The newest facts of the log in ``entries``, the newest first, however long the log is.

        ``limit``: at most this many, up to 500. ``before``: only facts before this sequence of the
        log; with the ``before`` of an answer the next call goes on where it ends, until an answer
        is ``complete``. An answer that is not may have fewer facts than ``limit``, or none, where
        few facts match. The other arguments are as those of `events`.
        """
        at_least(1, limit=limit)
        at_least(0, before=before)
        narrowed = facts.narrowing(types, queue, until)
        async with self._calls.call() as link:
            space = opening.scope_of(
                namespace, link.namespace, all_namespaces=all_namespaces, name=name
            )
            return await facts.newest_facts(
                link, space, name, before=before, since=since, narrowed=narrowed, limit=limit
            )

    def newest_sequences(
        self, *, after: int = 0, namespace: str | None = None, all_namespaces: bool = False
    ) -> Stream[int]:
        """The sequence of the newest fact of the log: the first item says which it is now (0: there
        is none), each further one that there are newer facts. Programs that ask for something else
        after a change take this in place of `events`: each step costs one request, however many
        facts there are, and nothing is received between two steps.

        ``after``: facts up to this sequence are not looked for, as if it were the newest.
        """

        def sequences(link: Link) -> AsyncGenerator[int]:
            at_least(0, after=after)
            space = opening.scope_of(namespace, link.namespace, all_namespaces=all_namespaces)
            return news.newest_sequences(link, space, after=after)

        return self._calls.stream(sequences)
