"""The verdicts of the check `admittance.dev/budget`, as a state machine: changes in, verdicts out.

An account has used the runs that ended in the window (the sums), and the time for which workloads
hold quota now. What its jobs may still use counts, too: those that are admitted, those with a Ready
row, and those that this instance has approved although the bucket does not show it yet. So of two
workloads that are asked together the second one is charged with the first.

Every run is counted once, whatever is read first. The sums and the bucket are read separately: a
workload that has left its quota in the bucket counts until the report of its end is read; a
workload counts no more once its end is reported, although the bucket shows its quota for a moment.

Nothing here is stored: a new instance derives the same from the sums and from stored workloads.
`AccountSums` keeps the accounts of a check up to date, so that a change costs the same whatever
else holds quota.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from admittance.api.budgets import BUDGET_CONTROLLER, Budget
from admittance.api.checks import AdmissionCheck
from admittance.budgets.account_sums import AccountSums
from admittance.budgets.holders import Holder, delays_of, holder_of
from admittance.budgets.rules import BudgetRules, window_of
from admittance.budgets.verdicts import Account, Answer, answer
from admittance.events.facts import CheckReported
from admittance.events.subjects import WorkloadName
from admittance.usage.periods import Period
from admittance.usage.runs import Run
from admittance.usage.summary import Summary, SummaryKey
from admittance.workload.stored import StoredWorkload

REPEAT_AFTER: Final = timedelta(seconds=30)
"""When a verdict without effect is sent again: it may have been refused."""
LEFT_KEPT: Final = timedelta(minutes=10)
"""How long a run that has ended is counted at most while its report is missing."""
RELEASED_MAX: Final = 20_000
"""How many reported ends are remembered."""


class BudgetVerdict(NamedTuple):
    """A verdict to be published."""

    holder: Holder
    check: str
    answer: Answer

    def fact(self, time: datetime) -> CheckReported:
        """The fact that publishes the verdict."""
        return CheckReported(
            namespace=self.holder.namespace,
            name=self.holder.name,
            uid=self.holder.run.uid,
            time=time,
            controller=BUDGET_CONTROLLER,
            check=self.check,
            cycle=self.holder.cycle,
            state=self.answer.state,
            message=self.answer.message,
            requeue_after_seconds=self.answer.delay,
        )


class _Sent(NamedTuple):
    reserved_at: datetime
    cycle: int
    answer: Answer
    at: datetime


class _Left(NamedTuple):
    run: Run
    at: datetime


class BudgetDecisions:
    """Decides for all workloads with a check of the budget controller. The caller applies changes
    in any order; before `decide` it applies the sums up to the end of the log, with every run of
    them passed to `apply_run`. ``longest``: the longest delay of a check."""

    def __init__(self, longest: timedelta) -> None:
        self._longest = int(longest.total_seconds())
        self._checks: dict[str, str] = {}
        """The budget that each of our checks names."""
        self._rules: dict[str, BudgetRules] = {}
        self._holders: dict[WorkloadName, Holder] = {}
        self._asked: dict[str, set[WorkloadName]] = {}
        """The workloads that wait for a verdict of each check, our own and others."""
        self._open: dict[tuple[str, int], WorkloadName] = {}
        """The holder of each run that is open in the bucket."""
        self._delayed: dict[WorkloadName, tuple[frozenset[str], datetime]] = {}
        """The checks that delay a workload without quota, and until when."""
        self._left: dict[tuple[str, int], _Left] = {}
        """Runs that have ended in the bucket, without a report of their end."""
        self._released: dict[tuple[str, int], None] = {}
        """Runs with a report of their end that may still be open in the bucket."""
        self._sent: dict[tuple[str, str, str], _Sent] = {}
        """The last verdict of this instance, by workload and check."""
        self._summaries: Mapping[SummaryKey, Summary] = {}
        self._summed: frozenset[Period] = frozenset()
        self._sums: dict[str, AccountSums] = {}
        """Of the checks that have judged a workload in this window."""

    # Changes. ---------------------------------------------------------------------------

    def apply_check(self, name: str, check: AdmissionCheck | None) -> None:
        """An AdmissionCheck was stored, or deleted (None)."""
        self._checks.pop(name, None)
        self._sums.pop(name, None)
        if check is not None and check.spec.controller_name == BUDGET_CONTROLLER:
            named = check.spec.parameters
            self._checks[name] = named.name if named is not None else ""
        else:
            self._sent = {about: sent for about, sent in self._sent.items() if about[2] != name}

    def apply_budget(self, name: str, budget: Budget | None) -> None:
        """A Budget was stored, or deleted (None). Raises ValueError for one that is not valid."""
        self._rules.pop(name, None)
        if budget is not None:
            self._rules[name] = BudgetRules(budget)
        for check, named in self._checks.items():
            if named == name:
                self._sums.pop(check, None)
        # What was approved stays charged.
        self._sent = {
            about: sent
            for about, sent in self._sent.items()
            if sent.answer.state == "Ready" or self._checks.get(about[2]) != name
        }

    def apply_workload(
        self, namespace: str, name: str, workload: StoredWorkload | None, now: datetime
    ) -> None:
        """A workload was stored, or deleted (None). Raises ValueError for an amount that is no
        quantity."""
        about = WorkloadName(namespace, name)
        holder = holder_of(workload) if workload is not None else None
        before = self._holders.pop(about, None)
        if before is not None:
            self._open.pop(before.key, None)
            self._set_asked(about, before, waits=False)
            if holder is None or holder.reserved_at != before.reserved_at:
                # The bucket shows the end, so another reservation in the same second is another
                # run.
                if before.key in self._released:
                    del self._released[before.key]
                else:
                    until = max(before.run.since, int(now.timestamp()))
                    left = _Left(before.run._replace(until=until), now)
                    self._set_left(before.key, left)
        self._delayed.pop(about, None)
        if holder is not None:
            self._holders[about] = holder
            self._open[holder.key] = about
            self._set_asked(about, holder, waits=holder.waits)
        elif workload is not None:
            checks, requeue_at = delays_of(workload)
            if checks and requeue_at is not None:
                self._delayed[about] = checks, requeue_at
        for check in self._checks:
            sent = self._sent.get((*about, check))
            if sent is not None and not _may_count(sent, holder, check):
                del self._sent[*about, check]
        self._count(about)

    def _set_asked(self, about: WorkloadName, holder: Holder, *, waits: bool) -> None:
        for check, row in holder.rows.items():
            if waits and row.state == "Pending":
                self._asked.setdefault(check, set()).add(about)
            elif check in self._asked:
                self._asked[check].discard(about)

    def _set_left(self, key: tuple[str, int], left: _Left | None) -> None:
        """Counts a run that has ended in the bucket; None: it counts no more."""
        before = self._left.pop(key, None)
        if left is not None:
            self._left[key] = left
        for sums in self._sums.values():
            if before is not None:
                sums.add_run(before.run, -1)
            if left is not None:
                sums.add_run(left.run)

    def apply_run(self, run: Run) -> None:
        """The end of a run is reported on the log."""
        if run.key in self._left:
            self._set_left(run.key, None)
            return
        self._released[run.key] = None
        self._count(self._open.get(run.key))
        if len(self._released) > RELEASED_MAX:
            oldest = next(iter(self._released))
            del self._released[oldest]
            self._count(self._open.get(oldest))

    def apply_sums(
        self,
        summaries: Mapping[SummaryKey, Summary],
        periods: frozenset[Period],
        changed: Collection[SummaryKey] | None = None,
    ) -> None:
        """The sums of these periods were read, up to the end of the log. ``changed``: the summaries
        that are other ones than before; None: all of them."""
        self._summaries, self._summed = summaries, periods
        for sums in self._sums.values():
            sums.apply_sums(summaries, changed)

    # Verdicts. --------------------------------------------------------------------------

    @property
    def serves(self) -> bool:
        """Whether there is a check to answer."""
        return bool(self._checks)

    def periods(self, now: datetime) -> frozenset[Period]:
        """The periods of which sums are needed."""
        return frozenset(
            period
            for rules in self._needed().values()
            for period in window_of(rules.window, now).periods
        )

    def _needed(self) -> dict[str, BudgetRules]:
        """The rules of each check with a budget."""
        return {
            check: self._rules[name] for check, name in self._checks.items() if name in self._rules
        }

    def waiting(self) -> list[tuple[Holder, str]]:
        """Workloads with a Pending row of one of our checks, and the check, in the order in
        which they are judged."""
        waits = [
            (self._holders[about], check)
            for check in self._needed()
            for about in self._asked.get(check, ())
        ]
        return sorted(waits, key=lambda each: (each[0].run.since, *each[0][:2], each[1]))

    def due(self, now: datetime) -> datetime | None:
        """When `decide` must be called even without a change; None: not before one."""
        times = [
            now if sent is None or sent.answer.state == "Pending" else sent.at + REPEAT_AFTER
            for sent in (self._sent_to(holder, check) for holder, check in self.waiting())
        ]
        return min(times, default=None)

    def decide(self, now: datetime) -> list[BudgetVerdict]:
        """The verdicts that are due, of checks that have their sums."""
        self._forget_left(now)
        verdicts: list[BudgetVerdict] = []
        waiting = self.waiting()
        judging = {
            check: _Judging(sums, now.timestamp(), self._longest)
            for check in {check for _, check in waiting}
            if (sums := self._sums_of(check, now)) is not None
        }
        for holder, check in waiting:
            sent = self._sent_to(holder, check)
            if sent is not None and sent.answer.state != "Pending" and _is_young(sent, now):
                continue
            if sent is not None and sent.answer.state == "Ready":
                found = sent.answer  # It is charged, and may have been refused.
            elif check in judging:
                found = judging[check].judge(holder)
            else:
                continue
            verdicts.append(self._noted(holder, check, found, now))
        return verdicts

    def accounts(self, check: str, now: datetime) -> dict[str, Account] | None:
        """What each account of a check with a budget has used and may still use; None: its sums
        are not read."""
        self._forget_left(now)
        sums = self._sums_of(check, now)
        return None if sums is None else {name: sums.account(name) for name in sums.names()}

    def budgets(self) -> list[str]:
        """The names of the stored budgets, in order."""
        return sorted(self._rules)

    def rules_of(self, budget: str) -> BudgetRules | None:
        """The rules of a stored budget."""
        return self._rules.get(budget)

    def checks_of(self, budget: str) -> list[str]:
        """Our checks that name the budget, in order."""
        return sorted(check for check, name in self._checks.items() if name == budget)

    def waits_for(self, check: str, now: datetime) -> dict[WorkloadName, datetime | None]:
        """The workloads that wait for the check, and when each asks again; None: it waits for a
        verdict."""
        waits: dict[WorkloadName, datetime | None] = {
            about: until
            for about, (checks, until) in self._delayed.items()
            if check in checks and until > now
        }
        return waits | dict.fromkeys(self._asked.get(check, ()))

    def undecided(self, now: datetime, why: str) -> list[BudgetVerdict]:
        """A Pending verdict with the sentence for each workload without a verdict, because the sums
        are not known up to the end of the log."""
        return [
            self._noted(holder, check, Answer("Pending", why), now)
            for holder, check in self.waiting()
            if holder.rows[check].message != why
            and (
                (sent := self._sent_to(holder, check)) is None
                or (sent.answer.state == "Pending" and not _is_young(sent, now))
            )
        ]

    def _sent_to(self, holder: Holder, check: str) -> _Sent | None:
        return self._sent.get((holder.namespace, holder.name, check))

    def _noted(self, holder: Holder, check: str, found: Answer, now: datetime) -> BudgetVerdict:
        about = (holder.namespace, holder.name, check)
        self._sent[about] = _Sent(holder.reserved_at, holder.cycle, found, now)
        self._count(WorkloadName(holder.namespace, holder.name))
        return BudgetVerdict(holder, check, found)

    def _forget_left(self, now: datetime) -> None:
        for key, left in list(self._left.items()):
            if now - left.at > LEFT_KEPT:
                self._set_left(key, None)

    def _sums_of(self, check: str, now: datetime) -> AccountSums | None:
        """The accounts of a check at this time; None: the sums of its window are not read."""
        rules, second = self._needed()[check], int(now.timestamp())
        window = window_of(rules.window, now)
        if not self._summed.issuperset(window.periods):
            return None
        sums = self._sums.get(check)
        if sums is not None and sums.window == window and sums.now <= second:
            sums.advance(second)
            return sums
        sums = self._sums[check] = AccountSums(rules, window, second)
        sums.apply_sums(self._summaries, None)
        for left in self._left.values():
            sums.add_run(left.run)
        for about, holder in self._holders.items():
            if self._counts(holder, check):
                sums.set_holder(about, holder)
        return sums

    def _count(self, about: WorkloadName | None) -> None:
        """Counts what the workload holds now, after a change."""
        holder = self._holders.get(about) if about is not None else None
        for check, sums in self._sums.items():
            if about is not None:
                counts = holder is not None and self._counts(holder, check)
                sums.set_holder(about, holder if counts else None)

    def _counts(self, holder: Holder, check: str) -> bool:
        """Whether an account of the check has the run of the holder, beside the sums."""
        return holder.key not in self._released and self._may_run(holder, check)

    def _may_run(self, holder: Holder, check: str) -> bool:
        """Whether the job of the holder runs, or may start. A holder that waits for this check may
        not, and counts for nothing until then."""
        row = holder.rows.get(check)
        if not holder.waits or row is None or row.state == "Ready":
            return True
        sent = self._sent_to(holder, check)
        return sent is not None and sent.answer.state == "Ready"


def _is_young(sent: _Sent, now: datetime) -> bool:
    return now < sent.at + REPEAT_AFTER


def _may_count(sent: _Sent, holder: Holder | None, check: str) -> bool:
    """Whether a verdict may still have an effect on the stored workload."""
    if holder is None or (holder.reserved_at, holder.cycle) != (sent.reserved_at, sent.cycle):
        return False
    row = holder.rows.get(check)
    return row is not None and row.state == "Pending"


class _Judging:
    """The accounts of one budget while `BudgetDecisions.decide` judges workloads."""

    def __init__(self, sums: AccountSums, now: float, longest: int) -> None:
        self._sums = sums
        self._now = now
        self._longest = longest
        self._charged: dict[str, Account] = {}

    def judge(self, holder: Holder) -> Answer:
        """The verdict on a workload that waits; a Ready one is charged at once."""
        rules = self._sums.rules
        name = rules.account_of(holder.run)
        if name not in self._charged:
            self._charged[name] = self._sums.account(name)
        account, rate = self._charged[name], rules.rate(holder.run.amounts)
        verdict = answer(
            rules,
            self._sums.window,
            account,
            rate=rate,
            seconds=holder.remaining,
            now=self._now,
            longest=self._longest,
        )
        if verdict.state == "Ready":
            charge = rate * (holder.remaining or 0)
            self._charged[name] = account._replace(ahead=account.ahead + charge)
        return verdict
