"""One sibling preempts, and not several for one job; the better place is worth it. LIFECYCLE 4.8,
7.4.
"""

from __future__ import annotations

from typing import Any

import pytest

from admittance.api.workload import FAMILY_GATE
from admittance.events import facts
from admittance.family.gates import Sibling, to_open
from support.builders import NOON

from family_living import LOWER, FamilyLife, Row, a_family_life

scenario = pytest.mark.scenario
TWO = {"reservation": 4, "on-demand": 4}
FULL = {"r1": "reservation", "o1": "on-demand"}
BETTER, WORSE = "j-variant-reservation", "j-variant-on-demand"
LATER = "AfterCheckPassedOrOnDemand"


def gates(life: FamilyLife) -> dict[str, str]:
    """Tag to where its family gate stands."""
    return {
        tag: next(
            (one.position for one in row.status.preemption_gates if one.name == FAMILY_GATE),
            "Closed",
        )
        for tag, row in life.variants().items()
    }


def variant(tag: str, *flavors: str) -> dict[str, Any]:
    return {"name": tag, "allowedResourceFlavors": list(flavors) or [tag]}


@scenario("D4")
def test_only_the_better_one_preempts() -> None:
    life = a_family_life(TWO, foreign=FULL, preemption=LOWER)
    life.stubborn.add("r1")
    life.job(priority=100)
    assert life.preempted() == [("r1", BETTER)]
    assert gates(life) == {"reservation": "Open", "on-demand": "Closed"}
    life.at(30)
    life.stop("r1")
    life.go()
    assert life.row() == Row("reservation", "reservation", 0, 1, "4/4")
    assert life.phases("r1", "o1") == ["Pending", "Admitted"]
    life.at(3600)
    assert life.preempted() == [("r1", BETTER)]


@scenario("D4")
def test_where_the_better_one_finds_no_victims_the_worse_one_may_look() -> None:
    life = a_family_life(TWO, preemption=LOWER)
    life.says(concurrentAdmission=None)
    life.job("r1", allowed=["reservation"], priority=1000)
    life.job("o1", allowed=["on-demand"])
    life.policy()
    life.job(priority=100)
    life.go()
    assert life.preempted() == [("o1", WORSE)]
    assert life.row() == Row("on-demand", "reservation on-demand", 0, 1, "4/4")


@scenario("D4", "D17")
def test_an_evicted_variant_waits_for_its_preemption_gate_again() -> None:
    life = a_family_life(TWO, foreign=FULL, preemption=LOWER)
    life.job(priority=100)
    assert life.on() == "reservation"
    holder = life.stored("j").status.preemption_gate
    assert holder is not None
    assert (holder.holder, holder.since) == (BETTER, life.now)
    life.at(100)
    life.foreigner("p", "reservation", priority=1000)
    assert life.reason(BETTER, "Evicted") == "True: Preempted"
    # It has no possible victim there, so its sibling's gate opens.
    assert gates(life) == {"reservation": "Closed", "on-demand": "Open"}
    assert life.on() == "on-demand"
    holder = life.stored("j").status.preemption_gate
    assert holder is not None
    assert (holder.holder, holder.since) == (WORSE, life.now)


@scenario("D28")
@pytest.mark.parametrize("slow", [False, True], ids=["gates open at once", "gates open late"])
@pytest.mark.parametrize("mode", ["UpgradeOnly", "NoMigration"])
def test_the_better_one_is_worth_a_victim_though_the_worse_one_is_free(
    mode: str, slow: bool
) -> None:
    life = a_family_life(TWO, mode, foreign={"r1": "reservation"}, preemption=LOWER, belated=slow)
    life.stubborn.add("r1")
    life.job(priority=100)
    assert life.preempted() == [("r1", BETTER)]
    assert life.on() == ""
    life.at(30)
    life.stop("r1")
    life.go()
    assert life.row() == Row("reservation", "reservation", 0, 1, "4/0")
    assert life.lived() == [("started", 30)]
    assert "j-variant-on-demand" not in [
        one.name for one in life.decided if isinstance(one, facts.Assigned)
    ]


def judged_slowly(life: FamilyLife, policy: str = "Anytime") -> FamilyLife:
    """The reservation has a slow check; both flavors are used by workloads of lower priority."""
    life.check("slow", preemptionPolicy=policy)
    life.offer(TWO, checks={"reservation": ["slow"]}, preemption=LOWER)
    life.job("r1", allowed=["reservation"])
    life.judge("r1", "slow", "Ready")
    life.job("o1", allowed=["on-demand"])
    assert life.used() == "4/4"
    life.policy()
    life.job(priority=100)
    return life


@scenario("D27")
@pytest.mark.parametrize("ends", ["Rejected", "Ready"])
def test_a_preempting_variant_in_checks_keeps_siblings_from_preempting(ends: str) -> None:
    life = judged_slowly(FamilyLife())
    assert life.preempted() == [("r1", BETTER)]
    assert life.reserved() == "reservation"
    for moment in (1, 299, 301, 599):
        life.at(moment)
        assert life.preempted() == [("r1", BETTER)]
        assert gates(life) == {"reservation": "Open", "on-demand": "Closed"}
        assert life.phases("r1", "o1") == ["Pending", "Admitted"]
    life.at(600)
    life.judge(BETTER, "slow", ends)
    if ends == "Ready":
        assert life.row() == Row("reservation", "reservation", 0, 1, "4/4")
        assert life.phase("o1") == "Admitted"
    else:
        assert life.preempted() == [("r1", BETTER), ("o1", WORSE)]
        assert life.on() == "on-demand"


@scenario("D21")
def test_a_variant_without_victims_holds_the_gate_for_five_minutes() -> None:
    life = a_family_life(TWO, foreign=FULL, preemption=LOWER)
    life.job(priority=100, step_by_step=True)
    while not life.has(BETTER) or not life.says_of(BETTER, "BlockedOnPreemptionGates"):
        life.one_step()
    # Before its gate opens, the priority of its planned victim has become too high.
    life.say(facts.Reprioritized, "r1", priority=1000)
    life.go()
    assert gates(life) == {"reservation": "Open", "on-demand": "Closed"}
    assert life.reason(WORSE, "BlockedOnPreemptionGates") == "True: PreemptionGated"
    life.at(299)
    assert gates(life) == {"reservation": "Open", "on-demand": "Closed"}
    assert life.preempted() == []
    life.at(300)
    assert life.preempted() == [("o1", WORSE)]
    assert life.on() == "on-demand"
    assert life.phase("r1") == "Admitted"


@scenario("D21")
@pytest.mark.parametrize(
    "how",
    [
        pytest.param("gone", id="its flavor is taken away"),
        pytest.param("off", id="a user turns it off"),
        pytest.param("rejected", id="its check rejects it"),
    ],
)
def test_the_next_gate_opens_when_its_holder_is_out(how: str) -> None:
    life = judged_slowly(FamilyLife(), LATER)
    life.at(100)
    assert life.preempted() == []
    match how:
        case "gone":
            life.offer({"on-demand": 4})
        case "off":
            life.say(facts.Deactivated, BETTER)
        case _:
            life.answer(BETTER, "slow", "Rejected")
    life.go()
    assert life.preempted() == [("o1", WORSE)]
    assert life.on() == "on-demand"


@scenario("D21")
def test_no_gate_opens_while_a_better_one_has_not_been_looked_at() -> None:
    new = Sibling("new", 0, evaluated=False)
    blocked = Sibling("blocked", 1, evaluated=True, blocked=True)
    assert to_open([new, blocked], None, NOON) == ""
    assert to_open([blocked, new._replace(place=2)], None, NOON) == "blocked"


@scenario("D21")
def test_a_better_one_that_is_new_is_looked_at_before_any_gate_opens() -> None:
    life = a_family_life(TWO, foreign=FULL, preemption=LOWER)
    life.job("h", allowed=["reservation"], priority=1000)
    # Both are new to the queue: which the scheduler looks at first is not left to chance.
    life.job(priority=100)
    opened = [
        (name, one.status.preemption_gates)
        for name, one in life.revisions
        if one is not None and name in (BETTER, WORSE) and one.status.preemption_gates
    ]
    assert opened
    assert {name for name, _ in opened} == {WORSE}
    assert life.on() == "on-demand"


@scenario("D29")
@pytest.mark.parametrize(
    ("fungibility", "ends"),
    [
        pytest.param({"whenCanPreempt": "TryNextFlavor"}, "b", id="it tries the next flavor first"),
        pytest.param({"whenCanPreempt": "Preempt"}, "a", id="it preempts in the first"),
    ],
)
def test_inside_one_variant_the_queue_says_what_comes_before_what(
    fungibility: dict[str, str], ends: str
) -> None:
    flavors = {"a": 4, "b": 4}
    life = a_family_life(
        flavors,
        explicit=[variant("any", "a", "b")],
        foreign={"x": "a"},
        preemption=LOWER,
        flavorFungibility=fungibility,
    )
    life.job(priority=100)
    assert life.on() == ends
    assert life.phase("x") == ("Admitted" if ends == "b" else "Pending")


@scenario("D29")
@pytest.mark.parametrize("when", ["TryNextFlavor", "Preempt"])
def test_the_better_variant_preempts_first_despite_the_queue_s_policy(when: str) -> None:
    life = a_family_life(
        {"a": 4, "b": 4},
        foreign={"x": "a"},
        preemption=LOWER,
        flavorFungibility={"whenCanPreempt": when},
    )
    life.job(priority=100)
    assert life.on() == "a"
    assert life.preempted() == [("x", "j-variant-a")]


@scenario("D29")
@pytest.mark.parametrize("when", ["TryNextFlavor", "MayStopSearch"])
def test_between_variants_borrowing_is_not_weighed(when: str) -> None:
    life = FamilyLife()
    life.offer({"a": 8, "b": 8})
    life.queue("lender", cohort="all", resourceGroups=life.offered["resourceGroups"])
    fungibility = {"whenCanBorrow": when}
    life.offer({"a": 0, "b": 8}, cohortName="all", flavorFungibility=fungibility)
    life.policy()
    life.job()
    assert life.on() == "a"
