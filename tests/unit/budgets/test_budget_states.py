"""The state of a budget as people, programs and metrics read it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from admittance.api.workload import RequeueState
from admittance.budget_controller.service import values_of
from admittance.budgets.states import WAITING_MAX, state_in, state_of
from admittance.events.requests.budgets import BudgetAccount, BudgetState, BudgetWait
from support.builders import NOON
from unit.budgets.budgeted import HOUR, a_holder
from unit.budgets.leader import Leader


def state(leader: Leader) -> BudgetState:
    leader.sums()
    return state_of(leader.decisions, "b", NOON)


def test_accounts_nearest_to_their_limits_come_first() -> None:
    leader = Leader(limit=10, limits={"small": 2, "idle": 1, "none": 0, "off": 0, "spent": 3})
    for name in ("big", "small", "none"):
        leader.sees(a_holder(name, namespace=name, reserved=NOON - HOUR, admitted=NOON - HOUR / 2))
    hours = {"reserved": NOON - 2 * HOUR, "admitted": NOON - 2 * HOUR, "limit": 7200}
    leader.sees(a_holder("spent", namespace="spent", **hours))  # type: ignore[arg-type]
    found = state(leader)
    assert (found.window_begin, found.window_end) == (NOON - 12 * HOUR, NOON + 12 * HOUR)
    assert [(a.name, a.used, a.ahead, a.limit) for a in found.accounts] == [
        ("none", 1, 0.5, 0),
        ("small", 1, 0.5, 2),
        ("spent", 2, 0, 3),
        ("big", 1, 0.5, 10),
        ("idle", 0, 0, 1),
        ("off", 0, 0, 0),
    ]
    assert (found.checks, found.accounts_total) == (("budget",), 6)


def test_an_account_without_a_limit_comes_last() -> None:
    leader = Leader(limits={"other": 1})
    leader.sees(a_holder("a", admitted=NOON))
    assert state(leader).accounts == (
        BudgetAccount(name="other", limit=1),
        BudgetAccount(name="ns", ahead=1),
    )


def test_what_waits_for_a_verdict_comes_before_what_asks_again_later() -> None:
    leader = Leader(limit=0)
    for name, hours in (("late", 3), ("soon", 2), ("past", -1)):
        back = RequeueState(requeue_at=NOON + hours * HOUR)
        leader.sees(a_holder(name, row="Retry", reserved=None, requeue_state=back))
    back = RequeueState(requeue_at=NOON + HOUR)
    leader.sees(a_holder("other", row="Retry", reserved=None, check="else", requeue_state=back))
    leader.sees(a_holder("asks"), a_holder("runs", admitted=NOON))
    leader.sees(a_holder("holds", row="Retry", requeue_state=back))
    assert state(leader).waiting == (
        BudgetWait(namespace="ns", name="asks"),
        BudgetWait(namespace="ns", name="soon", until=NOON + 2 * HOUR),
        BudgetWait(namespace="ns", name="late", until=NOON + 3 * HOUR),
    )
    leader.sees(*(a_holder(f"more-{n}") for n in range(WAITING_MAX)))
    found = state(leader)
    assert (len(found.waiting), found.waiting_total) == (WAITING_MAX, WAITING_MAX + 3)


def test_a_budget_that_no_check_names_has_no_numbers() -> None:
    leader = Leader()
    leader.decisions.apply_check("budget", None)
    found = state(leader)
    assert (found.budget, found.checks, found.accounts) == ("b", (), ())
    assert state_in(leader.decisions, "b", "ns", NOON) is None


@pytest.mark.parametrize(
    ("per", "own"),
    [
        pytest.param("Namespace", ["mine"], id="its account"),
        pytest.param("LocalQueue", ["mine/lq"], id="those of its LocalQueues"),
        pytest.param("ClusterQueue", [], id="none that counts others"),
        pytest.param("User", [], id="no user"),
    ],
)
def test_a_namespace_has_what_is_its_own(per: str, own: list[str]) -> None:
    leader = Leader(limit=4, per=per)
    for space in ("mine", "other", "mine2"):
        leader.sees(a_holder("runs", namespace=space, admitted=NOON))
        leader.sees(a_holder("asks", namespace=space))
    leader.sums()
    found = state_in(leader.decisions, "b", "mine", NOON)
    assert found is not None
    assert (found.per, [account.name for account in found.accounts]) == (per, own)
    assert (found.accounts_total, found.waiting_total) == (len(own), 1)
    assert found.waiting == (BudgetWait(namespace="mine", name="asks"),)


def test_a_namespace_that_has_used_nothing_has_its_limit() -> None:
    leader = Leader(limit=4)
    leader.sums()
    found = state_in(leader.decisions, "b", "mine", NOON)
    assert found is not None and found.accounts == (BudgetAccount(name="mine", limit=4),)
    other = Leader(limits={"other": 4})
    other.sums()
    assert state_in(other.decisions, "b", "mine", NOON) is None


@pytest.mark.parametrize("limit", [None, 4])
def test_the_metrics_have_what_is_used_of_each_account(limit: Any) -> None:
    account = BudgetAccount(name="a", used=1.5, ahead=0.5, limit=limit)
    until = NOON + timedelta(hours=1)
    wait = BudgetWait(namespace="ns", name="w", until=until)
    states = {"b": BudgetState(budget="b", accounts=(account,), waiting=(wait,), waiting_total=1)}
    assert values_of(states) == {
        "budget_used": {("b", "a"): 1.5},
        "budget_ahead": {("b", "a"): 0.5},
        "budget_limit": {} if limit is None else {("b", "a"): 4},
        "budget_workloads_delayed": {("b",): 1},
        "budget_workloads_waiting": {},
    }
