"""What the accounts of one budget have used and may still use, kept up to date by changes.

While nothing changes, the seconds of a workload with quota are a linear function of the time: it
uses one more in each second, and one less is left of its time limit. Of all workloads of an account
with the same amounts these functions are added, so that reading an account takes as many steps as
its workloads differ in their amounts. Fractions are slow, and are computed at that point only.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from fractions import Fraction
from typing import NamedTuple

from admittance.acts import LookTimes
from admittance.budgets.holders import Holder
from admittance.budgets.rules import BudgetRules, BudgetWindow
from admittance.budgets.verdicts import Account
from admittance.events.subjects import WorkloadName
from admittance.usage.runs import Amounts, Run
from admittance.usage.summary import Summary, SummaryKey


class _Seconds(NamedTuple):
    """Seconds as a function of the time t, in seconds since 1970: ``used`` + ``running`` * t are
    used, ``ahead`` - ``ending`` * t may still be used. ``members``: of how many runs."""

    used: int = 0
    running: int = 0
    ahead: int = 0
    ending: int = 0
    members: int = 1

    def plus(self, other: _Seconds, sign: int = 1) -> _Seconds:
        return _Seconds(
            self.used + sign * other.used,
            self.running + sign * other.running,
            self.ahead + sign * other.ahead,
            self.ending + sign * other.ending,
            self.members + sign * other.members,
        )


class _Counted(NamedTuple):
    holder: Holder
    seconds: _Seconds


class AccountSums:
    """The accounts of one budget in one window, at the second ``now``, which only moves forward."""

    def __init__(self, rules: BudgetRules, window: BudgetWindow, now: int) -> None:
        self.rules = rules
        self.window = window
        self.now = now
        self._open: dict[str, dict[Amounts, _Seconds]] = {}
        """Of runs that are not in the sums, by account and amounts."""
        self._counted: dict[WorkloadName, _Counted] = {}
        self._turns = LookTimes()
        """When the function of a workload is another one: its quota begins, or its limit is
        reached."""
        self._ended: dict[str, Fraction] = {}
        """What runs have used by the sums."""
        self._by_summary: dict[SummaryKey, dict[str, Fraction]] = {}

    # Changes. ---------------------------------------------------------------------------

    def set_holder(self, about: WorkloadName, holder: Holder | None) -> None:
        """Counts what the workload holds from now on; None: it does not count."""
        before = self._counted.pop(about, None)
        if before is not None:
            self._add(before.holder.run, before.seconds, -1)
        turn = None
        if holder is not None:
            seconds, turn = self._seconds_of(holder)
            self._counted[about] = _Counted(holder, seconds)
            self._add(holder.run, seconds)
        self._turns.set(about, None if turn is None else datetime.fromtimestamp(turn, UTC))

    def _seconds_of(self, holder: Holder) -> tuple[_Seconds, int | None]:
        """The function of the workload, and until when it holds; None: while nothing changes."""
        since, ends = holder.run.since, holder.ends
        seconds = _Seconds(ahead=(holder.remaining or 0) if ends is None else 0)
        if since <= self.now:
            seconds = seconds._replace(used=-max(since, self.window.begin), running=1)
        if ends is not None and ends > self.now:
            seconds = seconds._replace(ahead=ends, ending=1)
        turns = (turn for turn in (since, ends) if turn is not None and turn > self.now)
        return seconds, min(turns, default=None)

    def add_run(self, run: Run, sign: int = 1) -> None:
        """Counts a run that has ended; with ``sign`` -1 it counts no more."""
        used = min(run.until, self.window.end) - max(run.since, self.window.begin)
        self._add(run, _Seconds(used=max(0, used)), sign)

    def _add(self, run: Run, seconds: _Seconds, sign: int = 1) -> None:
        name = self.rules.account_of(run)
        by_amounts = self._open.setdefault(name, {})
        known = by_amounts.get(run.amounts, _Seconds(members=0)).plus(seconds, sign)
        if known.members:
            by_amounts[run.amounts] = known
            return
        by_amounts.pop(run.amounts, None)
        if not by_amounts:
            del self._open[name]

    def apply_sums(
        self, summaries: Mapping[SummaryKey, Summary], changed: Collection[SummaryKey] | None
    ) -> None:
        """The sums were read. ``changed``: the summaries that are other ones than before; None: all
        of them."""
        if changed is None:
            self._ended, self._by_summary = {}, {}
            changed = summaries.keys()
        for about in changed:
            used = self.rules.used({about: summaries[about]}, self.window)
            before = self._by_summary.pop(about, {})
            for name in used.keys() | before.keys():
                difference = used.get(name, Fraction(0)) - before.get(name, Fraction(0))
                self._ended[name] = self._ended.get(name, Fraction(0)) + difference
            if used:
                self._by_summary[about] = used

    def advance(self, now: int) -> None:
        """The time is ``now``, within the window."""
        self.now = now
        for about in list(self._turns.due(datetime.fromtimestamp(now, UTC))):
            self.set_holder(about, self._counted[about].holder)

    # Reading. ---------------------------------------------------------------------------

    def names(self) -> set[str]:
        """The accounts that have used something or may use something."""
        return self._open.keys() | {name for name, used in self._ended.items() if used}

    def account(self, name: str) -> Account:
        """What the account has used, and may still use."""
        used, ahead = self._ended.get(name, Fraction(0)), Fraction(0)
        for amounts, seconds in self._open.get(name, {}).items():
            rate = self.rules.rate(amounts)
            used += rate * (seconds.used + seconds.running * self.now)
            ahead += rate * (seconds.ahead - seconds.ending * self.now)
        return Account(name, used, ahead)
