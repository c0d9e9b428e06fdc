"""The budget check as a state machine: what is charged, what is repeated, and that no budget is
passed, whatever is read first."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from admittance.budgets.decisions import LEFT_KEPT, REPEAT_AFTER, BudgetVerdict
from admittance.usage.runs import Run
from admittance.workload.stored import StoredWorkload
from support.builders import NOON
from support.examples import examples
from unit.budgets.budgeted import HOUR, a_budget, a_check, a_holder
from unit.budgets.leader import Leader, ended

SECOND = timedelta(seconds=1)


def test_two_workloads_asked_together_do_not_pass_a_budget_with_room_for_one() -> None:
    leader = Leader(limit=1)
    leader.sees(a_holder("late", reserved=NOON + SECOND), a_holder("early"))
    assert leader.says() == [("early", "Ready"), ("late", "Retry")]
    assert leader.says() == []
    # The verdict is stored, and another one asks.
    leader.sees(a_holder("early", row="Ready"), a_holder("more"))
    assert leader.says() == [("more", "Retry")]


def test_a_new_leader_decides_as_the_first_one() -> None:
    for row in ("Ready", ""):
        leader = Leader(limit=2)
        leader.sees(a_holder("a", row=row), a_holder("b"), a_holder("c"))
        assert leader.says() == [("b", "Ready"), ("c", "Retry")]


@pytest.mark.parametrize(
    ("holders", "runs", "room"),
    [
        pytest.param([], [], 4, id="nothing"),
        pytest.param([{"admitted": NOON - HOUR, "reserved": NOON - HOUR}], [], 3,
                     id="a job at its limit counts as used"),
        pytest.param([{"admitted": NOON, "reserved": NOON - HOUR}], [], 2,
                     id="quota counts from its reservation"),
        pytest.param([{"admitted": NOON, "limit": None}], [], 4, id="no limit, nothing ahead"),
        pytest.param([{"namespace": "other", "admitted": NOON}], [], 4, id="another namespace"),
        pytest.param([{"check": "else"}], [], 3, id="a workload that this check does not judge"),
        pytest.param([{"row": "Retry"}], [], 4, id="a workload that must wait"),
        pytest.param([{"reserved": NOON - 24 * HOUR, "admitted": NOON - HOUR,
                       "amounts": {"cpu": "250m"}}], [],
                     1, id="of the twelve hours since midnight a quarter"),
        pytest.param([], [(NOON - 2 * HOUR, NOON)], 2, id="a run that ended"),
        pytest.param([], [(NOON - 14 * HOUR, NOON - 11 * HOUR)], 3, id="over midnight"),
        pytest.param([], [(NOON - 14 * HOUR, NOON - 12 * HOUR)], 4, id="before midnight"),
    ],
)  # fmt: skip
def test_what_is_used_and_may_be_used_leaves_room_for_so_many_hours(
    holders: list[dict[str, Any]], runs: list[tuple[datetime, datetime]], room: int
) -> None:
    for hours, state in ((room, "Ready"), (room + 1, "Retry")):
        leader = Leader(limit=4)
        leader.sees(*(a_holder(f"h{n}", **dict(fields)) for n, fields in enumerate(holders)))
        for number, (since, until) in enumerate(runs, 1):
            leader.reads(ended(a_holder("ran", reserved=since), until, number))
        leader.sees(a_holder("asks", limit=hours * 3600))
        assert leader.says() == [("asks", state)]


def test_a_run_is_counted_once_whether_the_bucket_or_the_log_is_read_first() -> None:
    ran = a_holder("ran", reserved=NOON - HOUR, admitted=NOON - HOUR)
    over = a_holder("ran", reserved=None, row="")
    report = ended(ran, NOON)
    asks = a_holder("asks", limit=4 * 3600)

    def message(leader: Leader) -> str:
        [verdict] = leader.decides()
        return verdict.answer.message.partition(";")[0]

    used = "ns has used 1 of 4 cpu-hours today"
    for steps in ("seen", "seen gone", "seen reported", "seen gone reported", "seen reported gone"):
        leader = Leader(limit=4)
        for step in steps.split():
            if step == "reported":
                leader.reads(report)
            else:
                leader.sees(ran if step == "seen" else over)
        leader.sees(asks)
        assert message(leader) == used, steps
    # A second reservation within the second of the first one is another run.
    for first in (report, over):
        leader = Leader(limit=4)
        leader.sees(ran)
        if first is over:
            leader.sees(over)
        leader.reads(report)
        leader.sees(over, ran, asks)
        assert message(leader) == "ns has used 2 of 4 cpu-hours today"


def test_a_run_without_a_report_is_forgotten_after_some_time() -> None:
    for wait, state in ((LEFT_KEPT, "Retry"), (LEFT_KEPT + SECOND, "Ready")):
        leader = Leader(limit=1)
        leader.sees(a_holder("ran", reserved=NOON - HOUR), a_holder("ran", reserved=None))
        leader.sees(a_holder("asks", reserved=NOON + wait))
        assert leader.says(NOON + wait) == [("asks", state)]


def test_a_verdict_without_effect_is_repeated_and_charged_once() -> None:
    leader = Leader(limit=1)
    leader.sees(a_holder("a"), a_holder("b"))
    assert leader.says() == [("a", "Ready"), ("b", "Retry")]
    assert leader.decisions.due(NOON) == NOON + REPEAT_AFTER
    assert leader.says(NOON + REPEAT_AFTER - SECOND) == []
    assert leader.says(NOON + REPEAT_AFTER) == [("a", "Ready"), ("b", "Retry")]
    # Another cycle is another question.
    leader.sees(a_holder("b", cycle=2))
    assert leader.decisions.due(NOON) == NOON
    assert leader.says(NOON + REPEAT_AFTER) == [("b", "Retry")]


def test_a_check_that_is_pending_again_in_the_same_cycle_is_judged_at_once() -> None:
    leader = Leader(limit=1)
    for row, answers in (
        ("Pending", True),
        ("Pending", False),
        ("Ready", False),
        ("Pending", True),
    ):
        leader.sees(a_holder("w", row=row))
        assert bool(leader.says()) is answers


def test_a_changed_budget_is_asked_anew_and_what_was_approved_stays_charged() -> None:
    leader = Leader(limit=1)
    leader.sees(a_holder("a"), a_holder("b"), a_holder("c"))
    assert leader.says() == [("a", "Ready"), ("b", "Retry"), ("c", "Retry")]
    leader.decisions.apply_budget("b", a_budget(limit=2))
    assert leader.says() == [("b", "Ready"), ("c", "Retry")]
    leader.decisions.apply_budget("b", None)
    assert leader.decisions.due(NOON) is None, "the check is inactive without its budget"


def test_only_checks_of_the_budget_controller_are_answered() -> None:
    leader = Leader()
    leader.sees(a_holder("a"))
    leader.decisions.apply_check("budget", a_check(controller="example.com/budget"))
    assert (leader.decisions.serves, leader.says()) == (False, [])
    assert leader.decisions.periods(NOON) == frozenset()
    leader.decisions.apply_check("budget", a_check())
    assert (leader.decisions.serves, leader.says()) == (True, [("a", "Ready")])
    assert {period.name for period in leader.decisions.periods(NOON)} == {"2026-01-01"}
    leader.decisions.apply_check("budget", None)
    assert not leader.decisions.serves


def test_without_sums_workloads_are_pending_and_decided_as_soon_as_there_are_some() -> None:
    leader = Leader()
    leader.sees(a_holder("a"), a_holder("told", row_fields={"message": "why"}))
    [verdict] = leader.decisions.undecided(NOON, "why")
    fact = verdict.fact(NOON)
    assert (fact.name, fact.state, fact.message, fact.cycle) == ("a", "Pending", "why", 1)
    assert leader.decisions.undecided(NOON, "why") == []
    assert len(leader.decisions.undecided(NOON + REPEAT_AFTER, "why")) == 1
    assert leader.decisions.due(NOON) == NOON
    assert leader.says() == [("a", "Ready"), ("told", "Ready")]
    assert leader.decisions.undecided(NOON, "why") == []


def test_a_budget_is_not_judged_by_sums_that_were_read_before_it() -> None:
    leader = Leader()
    leader.sees(a_holder("a"))
    leader.sums()
    # Until the sums of the year are read, what the namespace has used in it is not known.
    leader.decisions.apply_budget("b", a_budget(window="Year"))
    assert leader.decisions.decide(NOON) == []
    assert leader.decisions.due(NOON) == NOON
    assert leader.says() == [("a", "Ready")]


def test_an_approval_stays_charged_while_the_sums_cannot_be_read() -> None:
    leader = Leader(limit=1)
    leader.sees(a_holder("a"))
    assert leader.says() == [("a", "Ready")]
    later = NOON + REPEAT_AFTER
    assert leader.decisions.undecided(later, "why") == []
    leader.sees(a_holder("b"))
    assert leader.says(later) == [("a", "Ready"), ("b", "Retry")]


def test_a_retry_says_when_the_workload_is_asked_again() -> None:
    leader = Leader(limit=0)
    leader.sees(a_holder("a"))
    [verdict] = leader.decides()
    fact = verdict.fact(NOON)
    assert (fact.state, fact.requeue_after_seconds) == ("Retry", 12 * 3600)
    assert fact.message.endswith("asked again on 2026-01-02")


def test_each_day_in_utc_has_its_limit_over_a_month_and_a_change_of_the_clock() -> None:
    leader = Leader(limit=3)
    started: Counter[date] = Counter()
    running: StoredWorkload | None = None
    for hour in range(9 * 24):
        now = datetime(2026, 10, 24, hour % 24, tzinfo=UTC) + timedelta(days=hour // 24)
        summer = now < datetime(2026, 10, 25, 1, tzinfo=UTC)
        now = now.astimezone(timezone(2 * HOUR if summer else HOUR))
        if running is not None:
            leader.reads(ended(running, now, hour))
            leader.sees(a_holder(running.metadata.name, reserved=None), now=now)
            running = None
        leader.sees(a_holder(f"w{hour}", reserved=now), now=now)
        [(name, state)] = leader.says(now)
        if state == "Ready":
            started[now.astimezone(UTC).date()] += 1
            running = a_holder(name, reserved=now, admitted=now, row="Ready")
        leader.sees(running or a_holder(name, reserved=None), now=now)
    assert list(started.values()) == [3] * 9


# The property. ----------------------------------------------------------------------------------


class Deployment:
    """Workloads with one cpu and a time limit in minutes, a log, and a leader that reads both late.

    ``log``: what the leader reads next; ``read``: what it has read. ``stored``: the bucket.
    ``unseen``: workloads that the leader has not read again. ``reports``: ends of quota that are
    not on the log yet."""

    def __init__(self, minutes: int) -> None:
        self.minutes = minutes
        self.now = NOON
        self.stored: dict[str, dict[str, Any]] = {}
        self.unseen: dict[str, None] = {}
        self.reports: list[Run] = []
        self.in_flight: list[BudgetVerdict] = []
        self.log: list[Run] = []
        self.read: list[Run] = []
        self.leader = self.new_leader()
        self.count = 0
        self.used = 0
        """Seconds of jobs that have ended."""

    def new_leader(self) -> Leader:
        return Leader(unit="cpu-minutes", limit=self.minutes, window="Year")

    def workload(self, name: str) -> StoredWorkload:
        return a_holder(name, **self.stored[name])

    def put(self, name: str, **fields: Any) -> None:
        self.stored.setdefault(name, {}).update(fields)
        self.unseen[name] = None

    def submit(self, limit: int) -> None:
        self.put(f"w{len(self.stored)}", limit=60 * limit, reserved=self.now)

    def show(self) -> None:
        """The leader reads the oldest change of the bucket."""
        for name in list(self.unseen)[:1]:
            del self.unseen[name]
            self.leader.sees(self.workload(name), now=self.now)

    def report(self) -> None:
        for run in self.reports:
            self.count += 1
            self.log.append(run._replace(sequence=self.count))
        self.reports = []

    def decide(self) -> None:
        self.leader.reads(*self.log)
        self.read += self.log
        self.log = []
        self.in_flight += self.leader.decides(self.now)

    def apply(self) -> None:
        """The workload-controller applies the oldest verdict."""
        if not self.in_flight:
            return
        verdict = self.in_flight.pop(0)
        name = verdict.holder.name
        fields = self.stored[name]
        if fields.get("row", "Pending") != "Pending" or fields["reserved"] is None:
            return
        if verdict.answer.state == "Ready":
            self.put(name, row="Ready", admitted=self.now)
        else:
            self.release(name)

    def release(self, name: str) -> None:
        fields = self.stored[name]
        if fields.get("admitted") is not None:
            self.used += int((self.now - fields["admitted"]).total_seconds())
        self.reports.append(ended(self.workload(name), self.now))
        self.put(name, reserved=None, admitted=None, row="")

    def running(self) -> list[str]:
        return [name for name, fields in self.stored.items() if fields.get("admitted") is not None]

    def finish(self) -> None:
        for name in self.running()[:1]:
            self.release(name)

    def tick(self, minutes: int) -> None:
        for _ in range(minutes):
            self.now += timedelta(minutes=1)
            for name in self.running():
                fields = self.stored[name]
                if self.now - fields["admitted"] >= timedelta(seconds=fields["limit"]):
                    self.release(name)

    def restart(self) -> None:
        """All verdicts are applied before the next leader decides, by its barrier."""
        while self.in_flight:
            self.apply()
        self.report()
        self.leader = self.new_leader()
        self.leader.reads(*self.read, *self.log)
        self.read, self.log = [*self.read, *self.log], []
        self.unseen.clear()
        self.leader.sees(*map(self.workload, self.stored), now=self.now)

    def may_use(self) -> int:
        """The seconds that jobs have used, and may use by their time limits."""
        approved = {v.holder.name for v in self.in_flight if v.answer.state == "Ready"}
        approved = {n for n in approved if self.stored[n].get("row", "Pending") == "Pending"}
        open_limits = (self.stored[n]["limit"] for n in {*approved, *self.running()})
        return self.used + sum(open_limits)


STEPS = st.one_of(
    *[st.tuples(st.just("submit"), st.integers(1, 3))] * 3,
    st.tuples(st.just("tick"), st.integers(1, 3)),
    *(st.just((word,)) for word in ("show", "decide", "apply", "report", "finish", "restart")),
)


@settings(max_examples=examples(100))
@given(st.integers(1, 6), st.lists(STEPS, min_size=10, max_size=40))
def test_no_budget_is_passed_whatever_is_read_first(
    minutes: int, steps: list[tuple[Any, ...]]
) -> None:
    deployment = Deployment(minutes)
    for word, *arguments in steps:
        getattr(deployment, word)(*arguments)
        if word in ("submit", "tick"):
            deployment.show()
        # Amounts are compared in hundredths of a minute.
        assert deployment.may_use() < 60 * minutes + 1
    # Nothing waits for ever: once all is read, each workload has a verdict.
    deployment.restart()
    deployment.decide()
    waiting = [n for n, f in deployment.stored.items() if f.get("row", "Pending") == "Pending"]
    assert {v.holder.name for v in deployment.in_flight} == set(waiting)


def test_a_row_of_another_state_is_not_judged() -> None:
    leader = Leader()
    leader.sees(a_holder("r", row="Rejected"), a_holder("s", stopping=True))
    assert leader.says() == []
