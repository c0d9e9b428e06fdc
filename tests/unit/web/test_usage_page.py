"""The view of the page of usage."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from admittance.api.fields.usage_units import unit_named
from admittance.events.requests.budgets import BudgetAccount, BudgetState, BudgetWait
from admittance.events.requests.reading import UsageReply, UsageSum
from admittance.web.views.accounts.usage import (
    ROWS_MAX,
    UsageChoice,
    UsageView,
    budget_states,
    build,
)
from admittance.web.views.merging import merged_usage
from admittance.web.views.words import Link
from support.builders import NOON

HOURS = unit_named("gpu-hours")


def a_sum(*group: str, used: str = "0", **fields: Any) -> UsageSum:
    return UsageSum(group=group, used=used, **fields)


def view_of(*sums: UsageSum, by: tuple[str, ...] = ("cluster-queue",), **fields: Any) -> UsageView:
    reply = UsageReply(since="2026-02-01", until="2026-02-07", sums=sums)
    return build(replace(reply, **fields), UsageChoice(unit="gpu-hours"), by, HOURS, NOON)


def test_a_bar_has_the_use_within_and_above_the_entitlement() -> None:
    above = a_sum("a", used="30", share=0.75, entitled=0.5, runs=2, wait_seconds=90, running=1)
    below = a_sum("b", used="10", share=0.25, entitled=0.5)
    view = view_of(below, above)
    first, second = view.rows
    assert (first.own, first.over, first.entitled_at) == (66.67, 33.33, 66.67)
    assert (second.own, second.over, second.entitled_at) == (33.33, 0.0, 66.67)
    assert first.link == Link("a", "/queues/a")
    assert first.label == "a: 30.00 gpu-hours, 75.0% of all, entitled to 50.0%"
    assert (first.runs, first.running, first.waited) == ("2", "1", "45 s")
    assert view.say == (
        "40.00 gpu-hours were used: 2026-02-01 to 2026-02-07. 2 runs ended; 1 still hold quota."
    )
    assert view.title == "40.00 gpu-hours · Usage"
    assert view.has_entitled


@pytest.mark.parametrize(
    ("by", "group", "name"),
    [
        (("user",), ("",), "no user"),
        (("label:team", "flavor"), ("", "spot"), "no team, spot"),
        (("namespace",), ("<b>",), "<b>"),
        ((), (), "all"),
    ],
)
def test_a_row_is_named_by_the_values_of_its_words(
    by: tuple[str, ...], group: tuple[str, ...], name: str
) -> None:
    [row] = view_of(a_sum(*group, used="0.001"), by=by).rows
    assert (row.name, row.link, row.used) == (name, None, "<0.01 gpu-hours")
    assert (row.own, row.entitled_at) == (0.0, None)


def test_days_stay_in_their_order() -> None:
    sums = [a_sum("2026-02-01", used="1"), a_sum("2026-02-02", used="2")]
    assert [row.name for row in view_of(*sums, by=("day",)).rows] == ["2026-02-01", "2026-02-02"]
    assert [row.name for row in view_of(*sums).rows] == ["2026-02-02", "2026-02-01"]


def test_many_sums_are_cut_and_none_is_said() -> None:
    view = view_of(*(a_sum(f"q{number}") for number in range(ROWS_MAX + 3)))
    assert (len(view.rows), view.more) == (ROWS_MAX, 3)
    empty = view_of(until="2026-02-01")
    assert empty.say == "Nothing was used: 2026-02-01."
    assert view_of(a_sum("a"), begins="2026-02-05").say.endswith(" Sums begin in 2026-02-05.")


def test_windows_keep_the_other_choices() -> None:
    windows = {link.text: link.href for link in view_of().windows}
    assert windows["Last month"] == "/usage?unit=gpu-hours&since=2025-12-01&until=2025-12-31"
    assert windows["7 days"] == "/usage?unit=gpu-hours&since=6d"
    assert view_of().csv.href == "/usage?unit=gpu-hours&format=csv"


def test_a_budget_has_a_bar_for_each_account() -> None:
    state = BudgetState(
        budget="month",
        checks=("month",),
        window_end=NOON + timedelta(hours=1),
        accounts=(
            BudgetAccount(name="a", used=60, ahead=35, limit=100),
            BudgetAccount(name="", used=5),
        ),
        accounts_total=3,
        waiting=(BudgetWait(namespace="ns", name="w"),),
        waiting_total=1,
    )
    [budget] = build(UsageReply(), UsageChoice(), (), HOURS, NOON, [(state, "gpu-hours")]).budgets
    near, free = budget.accounts
    assert (near.used, near.ahead, near.short) == (60.0, 35.0, True)
    assert (near.text, near.left) == ("60 of 100 gpu-hours, 35 ahead", "5 left")
    assert (free.name, free.used, free.left) == ("jobs without a user", 100.0, "no limit")
    assert budget.say == "The next window begins 13:00. 1 workload waits for it."
    assert (budget.more, budget.waits) == (1, (Link("ns/w", "/workloads/ns/w"),))


def test_budgets_without_a_state_are_left_out() -> None:
    stored = {"metadata": {"name": "month"}, "spec": {"unit": "gpu-hours"}}
    assert budget_states([stored]) == []
    status = {"windowEnd": "2026-03-01T00:00:00Z", "accounts": [{"name": "a", "used": 1}]}
    [(state, unit)] = budget_states([{**stored, "status": status}])
    assert (state.budget, state.accounts[0].name, unit) == ("month", "a", "gpu-hours")


def test_the_sums_of_several_namespaces_are_one_list_with_shares() -> None:
    def hours(group: str, count: int) -> UsageSum:
        return a_sum(group, runs=1, resource_seconds={"nvidia.com/gpu": str(count * 3600)})

    first = UsageReply(since="2026-02-01", until="2026-02-07", sums=(hours("ada", 1),))
    other = replace(first, sums=(hours("ada", 2), hours("bob", 1)))
    merged = merged_usage([first, other], HOURS)
    shown = [(each.group[0], each.runs, each.used, each.share) for each in merged.sums]
    assert shown == [("ada", 2, "3", 0.75), ("bob", 1, "1", 0.25)]
    assert (merged.since, merged.until) == ("2026-02-01", "2026-02-07")
