"""Quota that planners share with their victims, compared with every possible end of the plans."""

from __future__ import annotations

from itertools import chain, combinations
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from admittance.scheduling.state.held.plan_quota import (
    Plan,
    PlanLevel,
    PlanQuota,
    most_given,
    shared_by_plans,
)

Plans = dict[str, list[str]]


def most_held(amounts: dict[str, int], plans: Plans) -> int:
    """The most that workloads may hold of which none is a victim of another one."""
    names = list(amounts)
    subsets = chain.from_iterable(combinations(names, size) for size in range(len(names) + 1))
    return max(
        sum(amounts[name] for name in some)
        for some in subsets
        if not any(set(plans.get(name, ())) & set(some) for name in some)
    )


def counted_twice(amounts: dict[str, int], plans: Plans) -> int:
    return shared_by_plans(
        {plan: amounts[plan] for plan in plans},
        {name: {victim: amounts[victim] for victim in victims} for name, victims in plans.items()},
    )


@st.composite
def some_plans(draw: st.DrawFn) -> tuple[dict[str, int], Plans]:
    names = [f"w{number}" for number in range(draw(st.integers(2, 8)))]
    amounts = {name: draw(st.integers(1, 6)) for name in names}
    # A planner comes after its victims.
    plans = {
        name: draw(st.lists(st.sampled_from(names[:place]), min_size=1, unique=True))
        for place, name in enumerate(names)
        if place and draw(st.booleans())
    }
    planned = {member for name, victims in plans.items() for member in (name, *victims)}
    return {name: amounts[name] for name in names if name in planned}, plans


@given(some_plans())
def test_what_counts_is_the_most_that_may_come_to_be_held(
    case: tuple[dict[str, int], Plans],
) -> None:
    amounts, plans = case
    assert sum(amounts.values()) - counted_twice(amounts, plans) == most_held(amounts, plans)


class Root:
    """The cell of a cohort."""

    parent = None

    def __init__(self, usage: int) -> None:
        self.usage = usage

    def charge(self, amount: int) -> None:
        self.usage += amount


@given(some_plans().filter(lambda case: bool(case[1])), st.data())
def test_excluded_workloads_do_not_count(
    case: tuple[dict[str, int], Plans], data: st.DataObject
) -> None:
    amounts, plans = case
    root: Any = Root(sum(amounts.values()))
    shared = PlanQuota(
        [
            Plan(name, victims, [PlanLevel(root, amounts[name], {v: amounts[v] for v in victims})])
            for name, victims in plans.items()
        ]
    )
    assert root.usage == most_held(amounts, plans)
    out = data.draw(
        st.lists(st.sampled_from(sorted(amounts)), unique=True) if amounts else st.just([])
    )
    for name in out:
        root.charge(-amounts[name])
        shared.exclude(name)
    left = {name: much for name, much in amounts.items() if name not in out}
    assert root.usage == most_held(left, plans)
    for name in out:
        root.charge(amounts[name])
        shared.include(name)
    assert root.usage == most_held(amounts, plans)


def test_with_many_planners_that_are_victims_no_less_counts_than_may_be_held() -> None:
    names = [f"w{number}" for number in range(10)]
    amounts = {name: 1 + number % 4 for number, name in enumerate(names)}
    plans = {name: names[max(0, place - 3) : place] for place, name in enumerate(names) if place}
    counts = sum(amounts.values()) - counted_twice(amounts, plans)
    assert most_held(amounts, plans) <= counts < sum(amounts.values())


def test_hundreds_of_common_victims_are_counted() -> None:
    victims = [f"v{number}" for number in range(600)]
    amounts = dict.fromkeys(victims, 1) | {"a": 500, "b": 500}
    assert counted_twice(amounts, {"a": victims[:400], "b": victims[200:]}) == 600


def test_hundreds_of_plans_with_one_victim_are_counted() -> None:
    planners = [f"p{number}" for number in range(600)]
    amounts = dict.fromkeys(planners, 1) | {"v": 400}
    assert counted_twice(amounts, {planner: ["v"] for planner in planners}) == 400


amounts = st.integers(0, 4)


@given(
    wants=st.lists(amounts, min_size=3, max_size=3),
    gives=st.lists(amounts, min_size=3, max_size=3),
    ways=st.lists(st.lists(amounts, min_size=3, max_size=3), min_size=3, max_size=3),
)
# A taker that got quota passes on only what it got.
@example(wants=[2, 3, 3], gives=[2, 2, 2], ways=[[3, 2, 1], [1, 0, 0], [3, 0, 1]])
def test_takers_get_as_much_as_the_narrowest_cut_lets_through(
    wants: list[int], gives: list[int], ways: list[list[int]]
) -> None:
    places = range(3)
    cuts = chain.from_iterable(combinations(places, size) for size in range(4))
    narrowest = min(
        sum(wants[taker] for taker in places if taker not in cut)
        + sum(min(gives[giver], sum(ways[taker][giver] for taker in cut)) for giver in places)
        for cut in cuts
    )
    given_at_most = most_given(
        dict(enumerate(wants)),
        {str(giver): much for giver, much in enumerate(gives)},
        {taker: {str(g): most for g, most in enumerate(row)} for taker, row in enumerate(ways)},
    )
    assert given_at_most == narrowest
