"""The sums of accounts that are kept up to date are those that a plain fold makes anew."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from admittance.budgets.decisions import LEFT_KEPT, BudgetVerdict
from admittance.budgets.holders import Holder, holder_of
from admittance.budgets.rules import window_of
from admittance.budgets.verdicts import Account
from admittance.usage.runs import Run
from admittance.workload.stored import StoredWorkload
from support.builders import NOON
from support.examples import examples
from unit.budgets.budgeted import a_budget, a_holder, rules
from unit.budgets.leader import Leader, ended

Approval = tuple[str, datetime, int]


class PlainFold:
    """The accounts by docs/spec/budgets.md, from all that a leader has read."""

    def __init__(self, **spec: Any) -> None:
        self.spec = spec
        self.holders: dict[str, Holder] = {}
        self.left: dict[tuple[str, int], tuple[Run, datetime]] = {}
        self.reported: dict[tuple[str, int], Run] = {}
        self.approved: set[Approval] = set()

    def sees(self, workload: StoredWorkload, now: datetime) -> None:
        name, holder = workload.metadata.name, holder_of(workload)
        before = self.holders.pop(name, None)
        if holder is not None:
            self.holders[name] = holder
        if before is not None and (holder is None or holder.key != before.key):
            run = before.run._replace(until=max(before.run.since, int(now.timestamp())))
            self.left[run.key] = run, now

    def reads(self, run: Run) -> None:
        self.reported[run.key] = run

    def approves(self, verdicts: list[BudgetVerdict]) -> None:
        for holder, _, answer in verdicts:
            if answer.state == "Ready":
                self.approved.add((holder.name, holder.reserved_at, holder.cycle))

    def accounts(self, now: datetime) -> dict[str, Account]:
        budget, second = rules(**self.spec), int(now.timestamp())
        window = window_of(budget.window, now)
        found: dict[str, Account] = {}

        def add(run: Run, until: int, ahead: int = 0) -> None:
            name, rate = budget.account_of(run), budget.rate(run.amounts)
            seconds = min(until, window.end) - max(run.since, window.begin)
            known = found.get(name, Account(name))
            used = known.used + rate * max(0, seconds)
            found[name] = Account(name, used, known.ahead + rate * ahead)

        for key, (_, at) in list(self.left.items()):
            if now - at > LEFT_KEPT:
                del self.left[key]
        for run in self.reported.values():
            add(run, run.until)
        for key, (run, _) in self.left.items():
            if key not in self.reported:
                add(run, run.until)
        for holder in self.holders.values():
            row = holder.rows.get("budget")
            asks = holder.waits and row is not None and row.state != "Ready"
            approved = (holder.name, holder.reserved_at, holder.cycle) in self.approved
            if holder.key not in self.reported and (not asks or approved):
                add(holder.run, second, holder.seconds_ahead(second))
        return {name: account for name, account in found.items() if any(account[1:])}


class Story:
    """A leader, and a plain fold that reads the same."""

    def __init__(self, window: str) -> None:
        self.spec: dict[str, Any] = {"window": window, "limit": 30}
        self.leader, self.plain = Leader(**self.spec), PlainFold(**self.spec)
        self.now = NOON
        self.stored: dict[str, dict[str, Any]] = {}
        self.ends: list[Run] = []
        """Runs that have ended in the bucket or not, which the log may report."""
        self.log: list[Run] = []

    def holds(self) -> None:
        self.leader.sums(self.now)
        accounts = self.leader.decisions.accounts("budget", self.now)
        assert accounts is not None
        found = {name: account for name, account in accounts.items() if any(account[1:])}
        assert found == self.plain.accounts(self.now)

    def put(self, name: str, **fields: Any) -> None:
        self.stored[name].update(fields)
        workload = a_holder(name, **self.stored[name])
        self.leader.sees(workload, now=self.now)
        self.plain.sees(workload, self.now)

    def named(self, number: int) -> str | None:
        names = list(self.stored)
        return names[number % len(names)] if names else None

    # Steps. -----------------------------------------------------------------------------

    def submit(self, fields: dict[str, Any], offset: int) -> None:
        name = f"w{len(self.stored)}"
        self.stored[name] = dict(fields)
        self.put(name, reserved=self.now + timedelta(seconds=offset))

    def admit(self, number: int) -> None:
        name = self.named(number)
        if name is not None and self.stored[name]["reserved"] is not None:
            self.put(name, row="Ready", admitted=self.now)

    def stop(self, number: int) -> None:
        name = self.named(number)
        if name is not None and self.stored[name].get("admitted") is not None:
            self.put(name, stopping=True)

    def end(self, number: int, *, reported: bool) -> None:
        """The workload loses its quota; the report of it may be read first."""
        name = self.named(number)
        if name is None or self.stored[name]["reserved"] is None:
            return
        run = ended(a_holder(name, **self.stored[name]), self.now)
        run = run._replace(until=max(run.since, run.until))
        if reported:
            self.read(run)
        else:
            self.ends.append(run)
        cycle = self.stored[name].get("cycle", 1) + 1
        self.put(name, reserved=None, admitted=None, stopping=False, row="", cycle=cycle)

    def again(self, number: int) -> None:
        name = self.named(number)
        if name is not None and self.stored[name]["reserved"] is None:
            self.tick(6)
            self.put(name, reserved=self.now, row="Pending")

    def report(self) -> None:
        if self.ends:
            self.read(self.ends.pop(0))

    def early(self, number: int) -> None:
        """The log reports an end that the bucket does not show yet."""
        name = self.named(number)
        if name is not None and self.stored[name]["reserved"] is not None:
            run = ended(a_holder(name, **self.stored[name]), self.now)
            self.read(run._replace(until=max(run.since, run.until)))

    def repeat(self, number: int) -> None:
        """A second report of a run, with another end."""
        if self.log:
            run = self.log[number % len(self.log)]
            self.read(run._replace(until=run.until + 7))

    def read(self, run: Run) -> None:
        run = run._replace(sequence=len(self.log) + 1, cause=len(self.log) + 1)
        self.log.append(run)
        self.leader.reads(run)
        self.plain.reads(run)

    def decide(self) -> None:
        self.plain.approves(self.leader.decides(self.now))

    def tick(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    def change(self, unit: str) -> None:
        self.spec["unit"] = unit
        self.plain.spec = self.spec
        self.leader.decisions.apply_budget("b", a_budget(**self.spec))

    def replay(self) -> None:
        """The stored sums are read again, and the facts after them."""
        self.leader.fold, self.leader.changed = type(self.leader.fold)(), None
        self.leader.reads(*self.log)

    def takeover(self) -> None:
        """Another leader reads the log and the bucket."""
        self.leader, self.plain = Leader(**self.spec), PlainFold(**self.spec)
        self.leader.reads(*self.log)
        for run in self.log:
            self.plain.reads(run)
        for name in self.stored:
            self.put(name)


NUMBERS = st.integers(0, 5)
FIELDS = st.fixed_dictionaries(
    {
        "namespace": st.sampled_from(["ns", "other"]),
        "limit": st.sampled_from([None, 60, 3600, 200_000]),
        "amounts": st.sampled_from([{"cpu": "1"}, {"cpu": "250m", "memory": "3Gi"}]),
        "row": st.sampled_from(["Pending", "Ready", "", "Retry"]),
    }
)
STEPS = st.one_of(
    *[st.tuples(st.just("submit"), FIELDS, st.sampled_from([0, 0, 5, -9_000]))] * 3,
    *[st.tuples(st.just("tick"), st.sampled_from([1, 61, 700, 40_000, 86_400, 40 * 86_400]))] * 3,
    *(st.tuples(st.just(word), NUMBERS) for word in ("admit", "stop", "again", "early", "repeat")),
    *[st.tuples(st.just("end"), NUMBERS, st.booleans())] * 2,
    *(st.tuples(st.just(word)) for word in ("report", "decide", "decide", "replay", "takeover")),
    st.tuples(st.just("tick"), st.just(-90)),
    st.tuples(st.just("change"), st.sampled_from(["cpu-hours", "gib-minutes"])),
)


@settings(max_examples=examples(100))
@given(st.sampled_from(["Day", "Month"]), st.lists(STEPS, min_size=30, max_size=50))
def test_kept_sums_are_those_of_a_plain_fold(window: str, steps: list[tuple[Any, ...]]) -> None:
    story = Story(window)
    for word, *arguments in steps:
        step = getattr(story, word)
        step(arguments[0], reported=arguments[1]) if word == "end" else step(*arguments)
        story.holds()
