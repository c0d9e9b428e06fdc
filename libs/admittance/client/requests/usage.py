"""What was used: sums by the leader, by label from the facts on the log, with shares and costs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing, suppress
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Final

from msgspec.structs import replace

from admittance.api.fields.usage_units import Unit, unit_named
from admittance.client.errors import BadInput, RequestFailed
from admittance.client.requests.link import Link
from admittance.client.requests.past import RELEASED, is_release, release_pages
from admittance.client.requests.queues import questions
from admittance.events.reader import Unreadable
from admittance.events.requests.history import Events, EventsReply, LogEntry
from admittance.events.requests.queues import Queues
from admittance.events.requests.reading import Usage, UsageCheck, UsageReply, UsageSum
from admittance.usage.costs import Prices, prices_of
from admittance.usage.fold import UsageFold
from admittance.usage.report import UsageReport, added, grouping, label_keys, periods_of, sum_of
from admittance.usage.runs import Run, run_of
from admittance.usage.shares import (
    entitlements,
    plain,
    quota_parts,
    with_shares,
)
from admittance.usage.summary import Summary

USAGE_SECONDS: Final = 30.0
"""How long a service has for its answer: it reads the summaries of all months that are asked for.
"""


def check_by(by: Sequence[str], spelled: str = "by") -> None:
    """Raises BadInput for a word by which no sums are made, or that is named twice. ``spelled``:
    how the program names the argument."""
    try:
        grouping(by)
    except ValueError as error:
        raise BadInput(f"{spelled} {error}") from None


def checked_unit(name: str, spelled: str = "unit") -> Unit:
    """The unit. Raises BadInput. ``spelled``: as for `check_by`."""
    try:
        return unit_named(name)
    except ValueError as error:
        raise BadInput(f"{spelled} {error}") from None


def checked_prices(value: object, spelled: str) -> Prices:
    """The price list. Raises BadInput. ``spelled``: as for `check_by`."""
    try:
        return prices_of(value)
    except ValueError as error:
        raise BadInput(f"{spelled}: {error}") from None


async def usage(
    link: Link,
    by: Sequence[str],
    since: date | None,
    until: date | None,
    namespace: str | None,
    *,
    unit: Unit | None = None,
    prices: Prices | None = None,
) -> UsageReply:
    """The sums of the quota that was used. ``since``, ``until``: the first and the last day;
    ``namespace``: None is all namespaces. ``unit``: the sums have shares of this unit; with
    ``prices`` they have costs, and without a unit shares of the costs. Raises RequestFailed."""
    asked = Usage(
        by=tuple(by),
        since=since.isoformat() if since is not None else "",
        until=until.isoformat() if until is not None else "",
    )
    reply = await _sums(link, asked, namespace)
    sums = list(reply.sums)
    if prices is not None:
        costs = await _costs(link, replace(asked, since=reply.since), namespace, prices)
        used = [costs.get(each.group, Decimal(0)) for each in sums]
        if unit is None:
            sums = with_shares(sums, used)
        sums = [
            replace(each, cost=plain(cost), used=each.used if unit is not None else "")
            for each, cost in zip(sums, used, strict=True)
        ]
    if unit is not None:
        sums = with_shares(sums, [unit.used(each.resource_seconds) for each in sums])
        if namespace is None:
            sums = await _with_entitlements(link, asked.by, sums, unit)
    return replace(reply, sums=tuple(sums))


async def _with_entitlements(
    link: Link, by: Sequence[str], sums: Sequence[UsageSum], unit: Unit
) -> list[UsageSum]:
    status = await questions.queues(link, Queues(), None)
    entitled = entitlements(by, quota_parts(unit, status.cluster_queues, status.local_queues))
    if entitled is None:
        return list(sums)
    return [replace(each, entitled=entitled.get(each.group)) for each in sums]


async def _costs(
    link: Link, asked: Usage, namespace: str | None, prices: Prices
) -> dict[tuple[str, ...], Decimal]:
    """The cost of each group: a flavor may have a price of its own, so its sums are needed."""
    place = asked.by.index("flavor") if "flavor" in asked.by else len(asked.by)
    by = asked.by if "flavor" in asked.by else (*asked.by, "flavor")
    costs: dict[tuple[str, ...], Decimal] = {}
    for each in (await _sums(link, replace(asked, by=by), namespace)).sums:
        flavor = each.group[place]
        group = each.group if by == asked.by else each.group[:-1]
        costs[group] = costs.get(group, Decimal(0)) + prices.cost(flavor, each.resource_seconds)
    return costs


async def _sums(link: Link, asked: Usage, namespace: str | None) -> UsageReply:
    if label_keys(asked.by):
        return await _sums_by_label(link, asked, namespace)
    return await _answer(link, asked, namespace)


async def _answer(
    link: Link, asked: Usage, namespace: str | None, *, whole: bool = True
) -> UsageReply:
    """The answer of the leader, read part by part; its first part, if not ``whole``."""
    sums: list[UsageSum] = []
    while True:
        part = replace(asked, after=len(sums))
        reply = await link.ask(
            "usage", part, UsageReply, namespace=namespace, timeout=USAGE_SECONDS
        )
        if reply.error:
            raise RequestFailed(reply.error)
        sums += reply.sums
        if not (reply.more and reply.sums and whole):
            return replace(reply, sums=tuple(sums))


CHECK_SECONDS: Final = 120.0
"""How long a service has to read all runs of the log."""


async def check(link: Link) -> UsageCheck:
    """Has the stored sums compared with the log, and corrected where they differ. Raises
    RequestFailed."""
    reply = await link.ask(
        "usage", Usage(check=True), UsageReply, namespace=None, timeout=CHECK_SECONDS
    )
    if reply.error:
        raise RequestFailed(reply.error)
    if reply.checked is None:
        raise RequestFailed("the workload-controller is of a version that compares no sums")
    return reply.checked


# By label. --------------------------------------------------------------------------------------


async def _sums_by_label(link: Link, asked: Usage, namespace: str | None) -> UsageReply:
    """Stored sums have no labels: runs that ended are summed from the log, as far as it reaches,
    and the leader has what runs now. It is asked last, so that no run counts as both."""
    now = replace(asked, running_only=True)
    days = await _answer(link, replace(now, limit=1), namespace, whole=False)
    first, last = date.fromisoformat(days.since), date.fromisoformat(days.until)
    begin = datetime.combine(first, time(), UTC)
    report, keys = UsageReport(asked.by), label_keys(asked.by)
    fold, periods = UsageFold(), {*periods_of(asked.by, first, last)}
    async with aclosing(release_pages(link, namespace, begin)) as pages:
        async for page in pages:
            runs = _runs(page.entries, keys)
            fold.summaries |= {about: Summary() for about in fold.needed(runs)}
            fold.fold(runs)
    for about, summary in fold.summaries.items():
        if about.period in periods:
            report.add(about, summary.rows.items())
    ended = [sum_of(group, counts) for group, counts in report.result()]
    running = await _answer(link, now, namespace)
    return replace(
        running,
        begins=await _begins(link, namespace),
        sums=tuple(added(ended, running.sums)),
    )


def _runs(entries: Sequence[LogEntry], keys: Sequence[str]) -> list[Run]:
    runs: list[Run] = []
    for entry in entries:
        # The leader reports a fact that cannot be read.
        with suppress(Unreadable):
            if is_release(entry):
                runs.append(run_of(bytes(entry.data), entry.sequence, keys))
    return runs


async def _begins(link: Link, namespace: str | None) -> str:
    """The day of the first run that is on the log; "": there is none."""
    query = Events(only=(RELEASED,), limit=1)
    reply = await link.ask("events", query, EventsReply, namespace=namespace)
    return reply.entries[0].time.date().isoformat() if reply.entries else ""
