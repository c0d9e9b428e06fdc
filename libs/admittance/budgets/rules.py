"""The rules of one Budget: its window, the limit of each account, and what an amount counts."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Final, NamedTuple

from admittance.api.budgets import COST, Budget
from admittance.api.fields.units import parse
from admittance.api.fields.usage_units import Unit, unit_named
from admittance.usage.costs import HOUR, Price, Prices
from admittance.usage.periods import Period, day_of, first_second, periods_between
from admittance.usage.report import UsageReport
from admittance.usage.runs import Amounts, Run
from admittance.usage.shares import plain
from admittance.usage.summary import Summary, SummaryKey

_BY: Final = {
    "ClusterQueue": "cluster-queue",
    "LocalQueue": "queue",
    "Namespace": "namespace",
    "User": "user",
}
"""The word of `UsageReport` for the accounts of a budget."""


class BudgetWindow(NamedTuple):
    """A window from ``begin`` to ``end``, in seconds since 1970. ``name``: for people."""

    begin: int
    end: int
    name: str
    periods: tuple[Period, ...]


def window_of(kind: str, now: datetime) -> BudgetWindow:
    """The window of a budget that has the time ``now``. ``kind``: one of
    `admittance.api.budgets.WINDOWS`."""
    today = day_of(now)
    match kind:
        case "Day":
            first, following, name = today, today + timedelta(days=1), "today"
        case "Week":
            first = today - timedelta(days=today.weekday())
            following, name = first + timedelta(days=7), "this week"
        case "Month":
            first = today.replace(day=1)
            following, name = (first + timedelta(days=32)).replace(day=1), "this month"
        case _:
            first = date(today.year, 1, 1)
            following, name = date(today.year + 1, 1, 1), "this year"
    periods = periods_between(first, following - timedelta(days=1))
    return BudgetWindow(first_second(first), first_second(following), name, tuple(periods))


class BudgetRules:
    """The rules of a stored Budget. ``name``: its name; ``longest``: the longest wait until a
    workload over its budget asks again; None: until the next window."""

    def __init__(self, budget: Budget) -> None:
        spec = budget.spec
        self.name = budget.metadata.name
        self.window = spec.window
        self.longest = spec.max_delay_seconds
        self.unit = f"{spec.currency or COST}" if spec.unit == COST else spec.unit
        self.per = spec.per
        self._by = _BY[spec.per]
        self._limit = None if spec.limit is None else parse(spec.limit)
        self._limits = {name: parse(limit) for name, limit in spec.limits.items()}
        self._unit: Unit | None = None
        self._prices = Prices("", {})
        if spec.unit == COST:
            prices = [
                Price(p.resource, p.flavor, _decimal(p.per_hour), _decimal(p.per))
                for p in spec.prices
            ]
            self._prices = Prices("", {(p.resource, p.flavor): p for p in prices})
        else:
            self._unit = unit_named(spec.unit)

    def account_of(self, run: Run) -> str:
        """The queue, namespace or user that the run counts for."""
        match self._by:
            case "cluster-queue":
                return run.cluster_queue
            case "queue":
                return f"{run.namespace}/{run.queue}"
            case "namespace":
                return run.namespace
            case _:
                return run.user

    def limit_of(self, account: str) -> Fraction | None:
        """The limit of an account in a window; None: it has none."""
        return self._limits.get(account, self._limit)

    def named_limits(self) -> frozenset[str]:
        """The accounts with a limit of their own."""
        return frozenset(self._limits)

    def weight(self, flavor: str, resource: str) -> Fraction:
        """What a second of one accounting unit of the resource counts."""
        milli = 1000 if resource == "cpu" else 1
        if self._unit is not None:
            if not self._unit.counts(resource):
                return Fraction(0)
            return Fraction(1, self._unit.divisor * milli)
        price = self._prices.of(resource, flavor)
        if price is None:
            return Fraction(0)
        return Fraction(price.per_hour) / (Fraction(price.amount) * HOUR * milli)

    def rate(self, amounts: Amounts) -> Fraction:
        """What a second of a run with these amounts counts."""
        weights = (amount * self.weight(flavor, name) for flavor, name, amount in amounts)
        return sum(weights, Fraction(0))

    def used(
        self, summaries: Mapping[SummaryKey, Summary], window: BudgetWindow
    ) -> dict[str, Fraction]:
        """What each account has used in the window, by the sums of runs that have ended."""
        periods = set(window.periods)
        report = UsageReport((self._by, "flavor"))
        for about, summary in summaries.items():
            if about.period in periods:
                report.add(about, summary.rows.items())
        used: dict[str, Fraction] = {}
        for (account, flavor), counts in report.sums.items():
            count = sum(
                (amount * self.weight(flavor, name) for name, amount in counts.amounts.items()),
                Fraction(0),
            )
            used[account] = used.get(account, Fraction(0)) + count
        return used


def _decimal(quantity: str | int | float) -> Decimal:
    exact = parse(quantity)
    return Decimal(exact.numerator) / Decimal(exact.denominator)


def hundredths(amount: Fraction) -> Fraction:
    """The amount, rounded to two decimals."""
    return Fraction(round(amount * 100), 100)


def number(amount: Fraction) -> str:
    """The amount for people: at most two decimals."""
    return plain(Decimal(round(amount * 100)) / 100)


def moment(second: int) -> str:
    """The time for people: a day if it is the begin of one."""
    time = datetime.fromtimestamp(second, UTC)
    if second % 86_400 == 0:
        return f"on {time:%Y-%m-%d}"
    return f"at {time:%Y-%m-%dT%H:%M:%SZ}"
