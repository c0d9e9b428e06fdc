"""The verdicts of the check `admittance.dev/budget`, as a state machine: changes in, verdicts out.

An account has used the runs that ended in the window (the sums), and the time for which workloads
hold quota now. What its jobs may still use counts, too: those that are admitted, those with a Ready
row, and those that this instance has approved although the bucket does not show it yet. So of two
workloads that are asked together the second one is charged with the first.

Every run is counted once, whatever is read first. The sums and the bucket are read separately: a
workload that has left its quota in the bucket counts until the report of its end is read; a
workload counts no more once its end is reported, although the bucket shows its quota for a moment.

Nothing here is stored: a new instance derives the same from the sums and from stored workloads.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Final, NamedTuple

from admittance.api.budgets import BUDGET_CONTROLLER, Budget
from admittance.api.checks import AdmissionCheck
from admittance.budgets.holders import Holder, holder_of
from admittance.budgets.rules import BudgetRules, BudgetWindow, window_of
from admittance.budgets.verdicts import Account, Answer, answer
from admittance.events.facts import CheckReported
from admittance.usage.periods import Period
from admittance.usage.runs import Amounts, Run
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
    in any order; `decide` needs the sums up to the end of the log, with every run of them passed to
    `apply_run`. ``longest``: the longest delay of a check."""

    def __init__(self, longest: timedelta) -> None:
        self._longest = int(longest.total_seconds())
        self._checks: dict[str, str] = {}
        """The budget that each of our checks names."""
        self._rules: dict[str, BudgetRules] = {}
        self._holders: dict[tuple[str, str], Holder] = {}
        self._waits: set[tuple[str, str]] = set()
        self._left: dict[tuple[str, int], _Left] = {}
        """Runs that have ended in the bucket, without a report of their end."""
        self._released: dict[tuple[str, int], None] = {}
        """Runs with a report of their end that may still be open in the bucket."""
        self._sent: dict[tuple[str, str, str], _Sent] = {}
        """The last verdict of this instance, by workload and check."""

    # Changes. ---------------------------------------------------------------------------

    def apply_check(self, name: str, check: AdmissionCheck | None) -> None:
        """An AdmissionCheck was stored, or deleted (None)."""
        self._checks.pop(name, None)
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
        about = namespace, name
        before = self._holders.pop(about, None)
        holder = holder_of(workload) if workload is not None else None
        if before is not None and (holder is None or holder.reserved_at != before.reserved_at):
            # The bucket shows the end, so another reservation in the same second is another run.
            if before.key in self._released:
                del self._released[before.key]
            else:
                until = max(before.run.since, int(now.timestamp()))
                self._left[before.key] = _Left(before.run._replace(until=until), now)
        if holder is not None:
            self._holders[about] = holder
        if holder is not None and holder.waits:
            self._waits.add(about)
        else:
            self._waits.discard(about)
        for check in self._checks:
            sent = self._sent.get((*about, check))
            if sent is not None and not _may_count(sent, holder, check):
                del self._sent[*about, check]

    def apply_run(self, run: Run) -> None:
        """The end of a run is reported on the log."""
        if self._left.pop(run.key, None) is not None:
            return
        self._released[run.key] = None
        if len(self._released) > RELEASED_MAX:
            del self._released[next(iter(self._released))]

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
        needed = self._needed()
        waits = [
            (holder, check)
            for holder in map(self._holders.__getitem__, self._waits)
            for check in needed
            if (row := holder.rows.get(check)) is not None and row.state == "Pending"
        ]
        return sorted(waits, key=lambda each: (each[0].run.since, *each[0][:2], each[1]))

    def due(self, now: datetime) -> datetime | None:
        """When `decide` must be called even without a change; None: not before one."""
        times = [
            now if sent is None or sent.answer.state == "Pending" else sent.at + REPEAT_AFTER
            for sent in (self._sent_to(holder, check) for holder, check in self.waiting())
        ]
        return min(times, default=None)

    def decide(self, now: datetime, summaries: Mapping[SummaryKey, Summary]) -> list[BudgetVerdict]:
        """The verdicts that are due. ``summaries``: of `periods`, up to the end of the log."""
        self._forget_left(now)
        verdicts: list[BudgetVerdict] = []
        accounts: dict[str, _Accounts] = {}
        for holder, check in self.waiting():
            sent = self._sent_to(holder, check)
            if sent is not None and sent.answer.state != "Pending" and _is_young(sent, now):
                continue
            if sent is not None and sent.answer.state == "Ready":
                found = sent.answer  # It is charged, and may have been refused.
            else:
                if check not in accounts:
                    accounts[check] = self._accounts(check, now, summaries)
                found = accounts[check].judge(holder, self._longest)
            verdicts.append(self._noted(holder, check, found, now))
        return verdicts

    def undecided(self, now: datetime, why: str) -> list[BudgetVerdict]:
        """A Pending verdict with the sentence for each workload without a verdict, because the sums
        are not known up to the end of the log."""
        return [
            self._noted(holder, check, Answer("Pending", why), now)
            for holder, check in self.waiting()
            if holder.rows[check].message != why
            and ((sent := self._sent_to(holder, check)) is None or not _is_young(sent, now))
        ]

    def _sent_to(self, holder: Holder, check: str) -> _Sent | None:
        return self._sent.get((holder.namespace, holder.name, check))

    def _noted(self, holder: Holder, check: str, found: Answer, now: datetime) -> BudgetVerdict:
        about = (holder.namespace, holder.name, check)
        self._sent[about] = _Sent(holder.reserved_at, holder.cycle, found, now)
        return BudgetVerdict(holder, check, found)

    def _forget_left(self, now: datetime) -> None:
        for key, left in list(self._left.items()):
            if now - left.at > LEFT_KEPT:
                del self._left[key]

    def _accounts(
        self, check: str, now: datetime, summaries: Mapping[SummaryKey, Summary]
    ) -> _Accounts:
        rules = self._needed()[check]
        window = window_of(rules.window, now)
        used = rules.used(summaries, window)
        accounts = _Accounts(rules, window, now.timestamp(), used)
        for left in self._left.values():
            accounts.add_run(left.run)
        for holder in self._holders.values():
            if holder.key not in self._released and self._may_run(holder, check):
                accounts.add_holder(holder)
        return accounts

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


class _Accounts:
    """What the accounts of one budget have used and may still use. ``used``: by the sums."""

    def __init__(
        self, rules: BudgetRules, window: BudgetWindow, now: float, used: Mapping[str, Fraction]
    ) -> None:
        self._rules = rules
        self._window = window
        self._now = now
        self._known = {name: Account(name, amount) for name, amount in used.items()}
        self._seconds: dict[tuple[str, Amounts], tuple[int, int]] = {}
        """The seconds used and ahead of runs of an account with the same amounts, not yet in
        ``_known``. There are many runs and few amounts, and fractions are slow."""

    def add_run(self, run: Run) -> None:
        """Counts a run that has ended."""
        self._add(run, run.until, 0)

    def add_holder(self, holder: Holder) -> None:
        """Counts a workload that holds quota: until now, and what is left of its time limit."""
        now = int(self._now)
        self._add(holder.run, now, holder.seconds_ahead(now))

    def _add(self, run: Run, until: int, ahead: int) -> None:
        used = min(until, self._window.end) - max(run.since, self._window.begin)
        if used > 0 or ahead:
            about = self._rules.account_of(run), run.amounts
            before = self._seconds.get(about, (0, 0))
            self._seconds[about] = before[0] + max(0, used), before[1] + ahead

    def judge(self, holder: Holder, longest: int) -> Answer:
        """The verdict on a workload that waits; a Ready one is charged at once."""
        self._weigh()
        name = self._rules.account_of(holder.run)
        rate = self._rules.rate(holder.run.amounts)
        account = self._known.get(name, Account(name))
        verdict = answer(
            self._rules,
            self._window,
            account,
            rate=rate,
            seconds=holder.remaining,
            now=self._now,
            longest=longest,
        )
        if verdict.state == "Ready":
            charge = rate * (holder.remaining or 0)
            self._known[name] = account._replace(ahead=account.ahead + charge)
        return verdict

    def _weigh(self) -> None:
        for (name, amounts), (used, ahead) in self._seconds.items():
            rate, known = self._rules.rate(amounts), self._known.get(name, Account(name))
            self._known[name] = Account(name, known.used + rate * used, known.ahead + rate * ahead)
        self._seconds.clear()
