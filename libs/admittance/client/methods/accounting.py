"""What programs may ask about the past: single workloads, and sums of what was used.

`tools/sync_client.py` makes methods of `SyncClient` from the signatures and docstrings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any

from admittance.client import opening
from admittance.client.arguments.checked import at_least, checked_methods, words
from admittance.client.calls import Calls
from admittance.client.requests import errands, past
from admittance.client.requests import usage as used
from admittance.client.requests.past import History
from admittance.events.requests.reading import UsageCheck, UsageReply
from admittance.events.requests.replays import ReplayReply


@checked_methods
class AccountingMethods:
    """The methods of `Client` about what ran, and what was used."""

    _calls: Calls

    async def history(
        self,
        *,
        user: str | None = None,
        queue: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        states: str | Sequence[str] = (),
        sort: str = "ended",
        namespace: str | None = None,
        all_namespaces: bool = False,
    ) -> History:
        """The workloads of which runs ended in a time, each with its runs and evictions, as far
        back as the log reaches.

        ``since``, ``until``: from the first time on and before the second, by default in the last
        day. ``user``: submitted by this user. ``queue``: a LocalQueue or ClusterQueue. ``states``:
        succeeded, failed, evicted. ``sort``: ended, submitted, name, user and queue, the first one
        first; waited, ran, cpu, gpu and evictions, the greatest first.
        """
        async with self._calls.call() as link:
            space = opening.scope_of(namespace, link.namespace, all_namespaces=all_namespaces)
            return await past.history(
                link,
                space,
                user=user or "",
                queue=queue or "",
                since=since,
                until=until,
                states=words(states),
                sort=sort,
            )

    async def replay(self, sequence: int, *, namespace: str | None = None) -> ReplayReply:
        """The scheduler's decision at a sequence of the log, decided again from the inputs that it
        had: whether it is the same, and where it differs.

        ``impossible`` has the reason if there is no such decision, or its inputs are gone.
        ``namespace``: of the decision, for a user that may ask only about some namespaces. Takes
        seconds.
        """
        async with self._calls.call() as link:
            at_least(1, sequence=sequence)
            return await errands.replay(link, sequence, namespace or "")

    async def usage(
        self,
        by: str | Sequence[str] = (),
        *,
        since: date | None = None,
        until: date | None = None,
        unit: str | None = None,
        prices: Mapping[str, Any] | None = None,
        namespace: str | None = None,
        all_namespaces: bool = False,
    ) -> UsageReply:
        """How much quota workloads held, for how long, and what came of them: a sum for each value
        of the words ``by``, or one of all.

        ``by``: cluster-queue, namespace, queue, user, flavor, day, month, and labels such as
        ``label:team``.
        ``since``, ``until``: the first and the last day, in UTC; by default the first of the month
        of the last day, and today. ``unit``: such as ``gpu-hours``; each sum has what it used and
        its share, and with ``all_namespaces`` what its queues are entitled to. ``prices``: the
        content of a price list (docs/usage.md); each sum has its cost.
        """
        async with self._calls.call() as link:
            used.check_by(words(by))
            chosen = None if unit is None else used.checked_unit(unit)
            costs = None if prices is None else used.checked_prices(prices, "prices")
            space = opening.scope_of(namespace, link.namespace, all_namespaces=all_namespaces)
            return await used.usage(link, words(by), since, until, space, unit=chosen, prices=costs)

    async def check_usage(self) -> UsageCheck:
        """Compares the sums of used quota with the single runs on the log, as far as the log
        reaches, and corrects those that differ. Only logins that may read all namespaces may ask.
        """
        async with self._calls.call() as link:
            return await used.check(link)
