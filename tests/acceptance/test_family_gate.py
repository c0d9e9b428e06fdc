"""A restart turns the gate ConcurrentAdmission off in any state of a family: running jobs continue,
stops are completed, and jobs without quota compete as regular workloads.
"""

from __future__ import annotations

import pytest

from admittance.api.configuration import Configuration
from admittance.scheduling.state.config import config_of
from admittance.workload.limits import limits_of
from admittance.workload.stored import head

from family_living import FamilyLife, a_family_life

TWO = {"reservation": 4, "on-demand": 4}
WORSE = "j-variant-on-demand"


def switch(life: FamilyLife, *, on: bool = False) -> None:
    """All start anew with the gate like that."""
    configuration = Configuration(feature_gates={"ConcurrentAdmission": on})
    life.config, life._limits = config_of(configuration), limits_of(configuration)
    life.restart_all()
    life.go()


def role(life: FamilyLife) -> str:
    return head(life.stored("j")).role


def runs_worse() -> FamilyLife:
    """``j`` runs on demand, as ``r1`` has the reservation."""
    life = a_family_life(TWO, foreign={"r1": "reservation"})
    life.job()
    life.at(100)
    return life


def test_a_running_variant_continues_without_migration() -> None:
    life = runs_worse()
    switch(life)
    assert (role(life), list(life.variants())) == ("parent", ["on-demand"])
    life.done("r1")
    life.at(3600)
    assert (life.on(), life.used()) == ("on-demand", "0/4")
    assert life.lived() == [("started", 0)]
    life.done("j")
    assert life.used() == "0/0"


def test_a_job_evicted_later_competes_as_a_regular_workload() -> None:
    life = runs_worse()
    switch(life)
    life.foreigner("p", "on-demand", priority=1000)
    life.says(preemption={"withinClusterQueue": "LowerPriority"})
    life.at(200)
    assert (role(life), list(life.variants()), life.phase("j")) == ("regular", [], "Pending")
    life.done("r1")
    assert (life.on(), life.phases("j", "p")) == ("reservation", ["Admitted", "Admitted"])


def test_a_waiting_family_becomes_a_regular_workload() -> None:
    life = a_family_life(TWO, foreign={"r1": "reservation", "o1": "on-demand"})
    life.job()
    switch(life)
    assert (role(life), life.variants()) == ("regular", {})
    life.done("o1")
    assert (life.on(), life.used()) == ("on-demand", "4/4")


def test_a_waiting_parent_without_variants_becomes_a_regular_workload() -> None:
    life = a_family_life(TWO)
    life.job(step_by_step=True)
    assert (role(life), life.variants()) == ("parent", {})
    switch(life)
    assert role(life) == "regular"
    assert (life.on(), life.used()) == ("reservation", "4/0")


@pytest.mark.parametrize("checks", [False, True], ids=["promised", "reserved and judged"])
def test_a_swap_ends_when_the_gate_closes_and_the_job_gets_quota(checks: bool) -> None:
    life = a_family_life(TWO, checks={"reservation": ["slow"]} if checks else {})
    life.says(concurrentAdmission=None)
    life.job("r1", allowed=["reservation"])
    if checks:
        life.judge("r1", "slow", "Ready")
    life.policy()
    life.job()
    life.stubborn.add("j")
    life.at(100)
    life.done("r1")
    if checks:
        life.judge("j-variant-reservation", "slow", "Ready")
    assert life.phase("j") == "Evicting"
    switch(life)
    assert life.phase("j") == "Evicting"
    life.at(130)
    life.stop("j")
    life.go()
    assert (role(life), life.variants()) == ("regular", {})
    if checks:
        life.judge("j", "slow", "Ready")
    assert (life.on(), life.used()) == ("reservation", "4/0")


def test_waiting_workloads_get_variants_after_the_gate_opens_again() -> None:
    life = a_family_life(TWO, foreign={"r1": "reservation", "o1": "on-demand"})
    life.job()
    switch(life)
    switch(life, on=True)
    assert role(life) == "regular"
    life.policy("UpgradeOnly")
    life.go()
    assert (role(life), list(life.variants())) == ("parent", ["reservation", "on-demand"])
    life.done("o1")
    assert (life.on(), life.phase(WORSE)) == ("on-demand", "Admitted")
