"""One sibling preempts, and not several for one job; the better place is worth it.
docs/spec/lifecycle.md#4.8, #7.4.
"""

from __future__ import annotations

from typing import Any

import pytest

from admittance.api.workload import FAMILY_GATE
from admittance.events import facts
from support.cores.families.family_cores import LOWER, FamilyCores, Row, cores_with_families

scenario = pytest.mark.scenario
TWO = {"reservation": 4, "on-demand": 4}
FULL = {"r1": "reservation", "o1": "on-demand"}
BETTER, WORSE = "j-variant-reservation", "j-variant-on-demand"
LATER = "AfterCheckPassedOrOnDemand"


def gates(cores: FamilyCores) -> dict[str, str]:
    """Tag of a variant to the position of its family gate."""
    return {
        tag: next(
            (gate.position for gate in row.status.preemption_gates if gate.name == FAMILY_GATE),
            "Closed",
        )
        for tag, row in cores.variants().items()
    }


def variant(tag: str, *flavors: str) -> dict[str, Any]:
    return {"name": tag, "allowedResourceFlavors": list(flavors) or [tag]}


@scenario("D4")
def test_only_the_better_one_preempts() -> None:
    cores = cores_with_families(TWO, foreign=FULL, preemption=LOWER)
    cores.slow_jobs.add("r1")
    cores.job(priority=100)
    assert cores.preempted() == [("r1", BETTER)]
    assert gates(cores) == {"reservation": "Open", "on-demand": "Closed"}
    cores.at(30)
    cores.stop("r1")
    cores.go()
    assert cores.row() == Row("reservation", "reservation", 0, 1, "4/4")
    assert cores.phases("r1", "o1") == ["Pending", "Admitted"]
    cores.at(3600)
    assert cores.preempted() == [("r1", BETTER)]


@scenario("D4", "D17")
def test_an_evicted_variant_waits_for_its_preemption_gate_again() -> None:
    cores = cores_with_families(TWO, foreign=FULL, preemption=LOWER)
    cores.job(priority=100)
    assert cores.on() == "reservation"
    holder = cores.stored("j").status.preemption_gate
    assert holder is not None
    assert (holder.holder, holder.since) == (BETTER, cores.now)
    cores.at(100)
    cores.submit_regular("p", "reservation", priority=1000)
    assert cores.reason(BETTER, "Evicted") == "True: Preempted"
    # It has no possible victim there, so its sibling's gate opens.
    assert gates(cores) == {"reservation": "Closed", "on-demand": "Open"}
    assert cores.on() == "on-demand"
    holder = cores.stored("j").status.preemption_gate
    assert holder is not None
    assert (holder.holder, holder.since) == (WORSE, cores.now)


@scenario("D28")
@pytest.mark.parametrize("slow", [False, True], ids=["gates open at once", "gates open late"])
@pytest.mark.parametrize("mode", ["UpgradeOnly", "NoMigration"])
def test_the_better_one_is_worth_a_victim_though_the_worse_one_is_free(
    mode: str, slow: bool
) -> None:
    cores = cores_with_families(
        TWO, mode, foreign={"r1": "reservation"}, preemption=LOWER, slow_variants=slow
    )
    cores.slow_jobs.add("r1")
    cores.job(priority=100)
    assert cores.preempted() == [("r1", BETTER)]
    assert cores.on() == ""
    cores.at(30)
    cores.stop("r1")
    cores.go()
    assert cores.row() == Row("reservation", "reservation", 0, 1, "4/0")
    assert cores.lived() == [("started", 30)]
    assert "j-variant-on-demand" not in [
        decision.name for decision in cores.decided if isinstance(decision, facts.Assigned)
    ]


def judged_slowly(cores: FamilyCores, policy: str = "Anytime") -> FamilyCores:
    """The reservation has a slow check; both flavors are used by workloads of lower priority."""
    cores.check("slow", preemptionPolicy=policy)
    cores.offer(TWO, checks={"reservation": ["slow"]}, preemption=LOWER)
    cores.job("r1", allowed=["reservation"])
    cores.report("r1", "slow", "Ready")
    cores.job("o1", allowed=["on-demand"])
    assert cores.used() == "4/4"
    cores.policy()
    cores.job(priority=100)
    return cores


@scenario("D27")
@pytest.mark.parametrize("ends", ["Rejected", "Ready"])
def test_a_preempting_variant_in_checks_keeps_siblings_from_preempting(ends: str) -> None:
    cores = judged_slowly(FamilyCores())
    assert cores.preempted() == [("r1", BETTER)]
    assert cores.reserved() == "reservation"
    for moment in (1, 299, 301, 599):
        cores.at(moment)
        assert cores.preempted() == [("r1", BETTER)]
        assert gates(cores) == {"reservation": "Open", "on-demand": "Closed"}
        assert cores.phases("r1", "o1") == ["Pending", "Admitted"]
    cores.at(600)
    cores.report(BETTER, "slow", ends)
    if ends == "Ready":
        assert cores.row() == Row("reservation", "reservation", 0, 1, "4/4")
        assert cores.phase("o1") == "Admitted"
    else:
        assert cores.preempted() == [("r1", BETTER), ("o1", WORSE)]
        assert cores.on() == "on-demand"


@scenario("D21")
def test_a_variant_without_victims_holds_the_gate_for_five_minutes() -> None:
    cores = cores_with_families(TWO, foreign=FULL, preemption=LOWER)
    cores.job(priority=100, step_by_step=True)
    while not cores.has(BETTER) or not cores.reason(BETTER, "BlockedOnPreemptionGates"):
        cores.one_step()
    # Before its gate opens, the priority of its planned victim has become too high.
    cores.publish(facts.Reprioritized, "r1", priority=1000)
    cores.go()
    assert gates(cores) == {"reservation": "Open", "on-demand": "Closed"}
    assert cores.reason(WORSE, "BlockedOnPreemptionGates") == "True: PreemptionGated"
    cores.at(299)
    assert gates(cores) == {"reservation": "Open", "on-demand": "Closed"}
    assert cores.preempted() == []
    cores.at(300)
    assert cores.preempted() == [("o1", WORSE)]
    assert cores.on() == "on-demand"
    assert cores.phase("r1") == "Admitted"


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
    cores = judged_slowly(FamilyCores(), LATER)
    cores.at(100)
    assert cores.preempted() == []
    match how:
        case "gone":
            cores.offer({"on-demand": 4})
        case "off":
            cores.publish(facts.Deactivated, BETTER)
        case _:
            cores.answer(BETTER, "slow", "Rejected")
    cores.go()
    assert cores.preempted() == [("o1", WORSE)]
    assert cores.on() == "on-demand"


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
    cores = cores_with_families(
        flavors,
        explicit=[variant("any", "a", "b")],
        foreign={"x": "a"},
        preemption=LOWER,
        flavorFungibility=fungibility,
    )
    cores.job(priority=100)
    assert cores.on() == ends
    assert cores.phase("x") == ("Admitted" if ends == "b" else "Pending")
