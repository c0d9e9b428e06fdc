"""The page of usage: what was used of a unit by each queue, namespace, user or flavor, beside what
its queues are entitled to, and the budgets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import msgspec

from admittance.api.fields.usage_units import Unit
from admittance.events.requests.budgets import BudgetAccount, BudgetState
from admittance.events.requests.reading import UsageReply, UsageSum
from admittance.usage.report import BY
from admittance.usage.rows import percent
from admittance.web.paths import queue_path, usage_path, workload_path
from admittance.web.views.words import Link, clock_time, took

ROWS_MAX: Final = 200
"""The most rows of the page; CSV and JSON have all."""
UNITS: Final = ("gpu-hours", "cpu-hours", "gib-hours")
"""The units that the page offers; others may stand in the URL."""
IN_ORDER: Final = frozenset({"day", "month"})
"""Words of which the rows stay in the order of time."""
NEARLY: Final = 0.9
"""From which part of its limit an account is marked."""


class UsageChoice(msgspec.Struct, frozen=True, kw_only=True):
    """What the URL of the page chooses, as it was written; "": the default."""

    by: str = ""
    unit: str = ""
    since: str = ""
    until: str = ""
    namespace: str = ""

    def path(self, **changed: str) -> str:
        """The page with these choices."""
        return usage_path(**{**msgspec.structs.asdict(self), **changed})


class UsedRow(msgspec.Struct, frozen=True, kw_only=True):
    """A sum. ``own``, ``over``: the widths of the bar in percent, for the use within and above what
    the group is entitled to; ``entitled_at``: where the entitlement stands, None: it has none."""

    id: str
    name: str
    link: Link | None
    own: float
    over: float
    entitled_at: float | None
    used: str
    share: str
    entitled: str
    runs: str
    running: str
    waited: str
    label: str


class AccountRow(msgspec.Struct, frozen=True, kw_only=True):
    """An account of a budget. ``used``, ``ahead``: the widths in percent of the limit, or of what
    is used without one; ``short``: little is left of the limit."""

    id: str
    name: str
    used: float
    ahead: float
    short: bool
    text: str
    left: str
    label: str


class BudgetRows(msgspec.Struct, frozen=True, kw_only=True):
    """A budget. ``say``: its window, its checks and what waits for it; ``waits``: the workloads."""

    name: str
    unit: str
    say: str
    accounts: tuple[AccountRow, ...]
    more: int
    waits: tuple[Link, ...]


class UsageView(msgspec.Struct, frozen=True, kw_only=True):
    """``words``, ``units``: what the fields offer. ``windows``: links to other spans of time.
    ``more``: how many rows only CSV and JSON have."""

    title: str
    say: str
    chosen: UsageChoice
    by: str
    unit: str
    words: tuple[str, ...]
    units: tuple[str, ...]
    windows: tuple[Link, ...]
    csv: Link
    has_entitled: bool
    rows: tuple[UsedRow, ...]
    more: int
    budgets: tuple[BudgetRows, ...]


def build(
    reply: UsageReply,
    chosen: UsageChoice,
    by: Sequence[str],
    unit: Unit,
    now: datetime,
    budgets: Sequence[tuple[BudgetState, str]] = (),
) -> UsageView:
    """The view of an answer. ``budgets``: the budgets that the user may see, with their units."""
    sums = list(reply.sums)
    if not IN_ORDER.issuperset(by[:1]):
        sums.sort(key=lambda each: (-_used(each), each.group))
    largest = max((max(each.share or 0.0, each.entitled or 0.0) for each in sums), default=0.0)
    rows = tuple(_row(each, by, unit, largest) for each in sums[:ROWS_MAX])
    total = sum((_used(each) for each in sums), Decimal(0))
    span = reply.since if reply.since == reply.until else f"{reply.since} to {reply.until}"
    amount = f"{_amount(total)} {unit.name}"
    return UsageView(
        title=f"{amount} · Usage",
        say=_say(amount, span, reply, sums, by),
        chosen=chosen,
        by=",".join(by),
        unit=unit.name,
        words=BY,
        units=UNITS if unit.name in UNITS else (*UNITS, unit.name),
        windows=_windows(chosen, now.date()),
        csv=Link("CSV", chosen.path(format="csv")),
        has_entitled=any(each.entitled is not None for each in sums),
        rows=rows,
        more=max(0, len(sums) - ROWS_MAX),
        budgets=tuple(_budget(state, name, now) for state, name in budgets),
    )


def _say(
    amount: str, span: str, reply: UsageReply, sums: Sequence[UsageSum], by: Sequence[str]
) -> str:
    if not sums:
        return f"Nothing was used: {span}."
    begins = ""
    if reply.begins > reply.since[: len(reply.begins)]:
        begins = f" Sums begin in {reply.begins}."
    running = sum(each.running for each in sums)
    still = f"; {running:,} still hold quota" if running else ""
    runs = sum(each.runs for each in sums)
    ended = f"{runs:,} run{'s' if runs != 1 else ''} ended{still}"
    # A run on several flavors counts for each of them.
    counted = "" if "flavor" in by else f" {ended[0].upper()}{ended[1:]}."
    return f"{amount} were used: {span}.{counted}{begins}"


def _windows(chosen: UsageChoice, today: date) -> tuple[Link, ...]:
    month = today.replace(day=1)
    before = month - timedelta(days=1)
    spans = (
        ("Today", today.isoformat(), ""),
        ("7 days", "6d", ""),
        ("This month", month.isoformat(), ""),
        ("Last month", before.replace(day=1).isoformat(), before.isoformat()),
    )
    return tuple(Link(name, chosen.path(since=since, until=until)) for name, since, until in spans)


def _used(each: UsageSum) -> Decimal:
    return Decimal(each.used or "0")


def _amount(used: Decimal) -> str:
    return f"{used:,.2f}" if not used or used >= Decimal("0.005") else "<0.01"


def _row(each: UsageSum, by: Sequence[str], unit: Unit, largest: float) -> UsedRow:
    share, entitled = each.share or 0.0, each.entitled
    own = share if entitled is None else min(share, entitled)

    def width(part: float) -> float:
        return round(100 * part / largest, 2) if largest else 0.0

    name = ", ".join(_value(word, value) for word, value in zip(by, each.group, strict=True))
    used = f"{_amount(_used(each))} {unit.name}"
    beside = "" if entitled is None else f", entitled to {percent(entitled)}"
    return UsedRow(
        id="/".join(each.group),
        name=name or "all",
        link=Link(name, queue_path(each.group[0])) if tuple(by) == ("cluster-queue",) else None,
        own=width(own),
        over=width(share - own),
        entitled_at=None if entitled is None else width(entitled),
        used=used,
        share=percent(each.share),
        entitled="" if entitled is None else percent(entitled),
        runs=f"{each.runs:,}",
        running=f"{each.running:,}",
        waited=took(each.wait_seconds / each.runs) if each.runs else "",
        label=f"{name or 'all'}: {used}, {percent(each.share)} of all{beside}",
    )


def _value(word: str, value: str) -> str:
    if value:
        return value
    return "no user" if word == "user" else f"no {word.removeprefix('label:')}"


def _budget(state: BudgetState, unit: str, now: datetime) -> BudgetRows:
    parts: list[str] = []
    if not state.checks:
        parts.append("No AdmissionCheck names it, so it limits nothing.")
    if state.window_end is not None:
        parts.append(f"The next window begins {clock_time(state.window_end, now, seconds=False)}.")
    if state.waiting_total:
        verb = "workload waits" if state.waiting_total == 1 else "workloads wait"
        parts.append(f"{state.waiting_total:,} {verb} for it.")
    return BudgetRows(
        name=state.budget,
        unit=unit,
        say=" ".join(parts),
        accounts=tuple(_account(state.budget, account, unit) for account in state.accounts),
        more=max(0, state.accounts_total - len(state.accounts)),
        waits=tuple(
            Link(f"{wait.namespace}/{wait.name}", workload_path(wait.namespace, wait.name))
            for wait in state.waiting
        ),
    )


def _account(budget: str, account: BudgetAccount, unit: str) -> AccountRow:
    used, ahead, limit = account.used, account.ahead, account.limit
    whole = max(limit or 0.0, used + ahead)
    left = None if limit is None else max(0.0, limit - used - ahead)
    text = f"{used:,.12g}" + ("" if limit is None else f" of {limit:,.12g}") + f" {unit}"
    name = account.name or "jobs without a user"
    charged = f", {ahead:,.12g} ahead" if ahead else ""
    return AccountRow(
        id=f"{budget}/{account.name}",
        name=name,
        used=round(100 * used / whole, 2) if whole else 0.0,
        ahead=round(100 * ahead / whole, 2) if whole else 0.0,
        short=limit is not None and used + ahead >= NEARLY * limit,
        text=text + charged,
        left="no limit" if left is None else f"{left:,.12g} left",
        label=f"{name}: {text}{charged}",
    )


def budget_states(stored: Sequence[Mapping[str, Any]]) -> list[tuple[BudgetState, str]]:
    """The budgets of these objects that have a state, each with its unit."""
    known = []
    for value in stored:
        status, spec = value.get("status"), value.get("spec")
        if isinstance(status, dict) and isinstance(spec, dict):
            name = value["metadata"]["name"]
            state = msgspec.convert({**status, "budget": name}, BudgetState, strict=False)
            known.append((state, str(spec.get("unit", ""))))
    return known
