"""A restart turns the gate ConcurrentAdmission off in any state of a family: running jobs continue,
stops are completed, and jobs without quota compete as regular workloads.
"""

from __future__ import annotations

import pytest

from admittance.api.configuration import Configuration
from admittance.scheduling.state.config import config_of
from admittance.workload.limits import limits_of
from admittance.workload.stored import head
from support.cores.families.family_cores import FamilyCores, cores_with_families

TWO = {"reservation": 4, "on-demand": 4}
WORSE = "j-variant-on-demand"


def switch(cores: FamilyCores, *, on: bool = False) -> None:
    """Restarts all cores with the feature gate ConcurrentAdmission on or off."""
    configuration = Configuration(feature_gates={"ConcurrentAdmission": on})
    cores.config, cores.limits = config_of(configuration), limits_of(configuration)
    cores.restart()
    cores.go()


def role(cores: FamilyCores) -> str:
    return head(cores.stored("j")).role


def runs_worse() -> FamilyCores:
    """``j`` runs on demand, as ``r1`` has the reservation."""
    cores = cores_with_families(TWO, foreign={"r1": "reservation"})
    cores.job()
    cores.at(100)
    return cores


def test_a_running_variant_continues_without_migration() -> None:
    cores = runs_worse()
    switch(cores)
    assert (role(cores), list(cores.variants())) == ("parent", ["on-demand"])
    cores.done("r1")
    cores.at(3600)
    assert (cores.on(), cores.used()) == ("on-demand", "0/4")
    assert cores.lived() == [("started", 0)]
    cores.done("j")
    assert cores.used() == "0/0"


def test_a_job_evicted_later_competes_as_a_regular_workload() -> None:
    cores = runs_worse()
    switch(cores)
    cores.submit_regular("p", "on-demand", priority=1000)
    cores.edit_queue(preemption={"withinClusterQueue": "LowerPriority"})
    cores.at(200)
    assert (role(cores), list(cores.variants()), cores.phase("j")) == ("regular", [], "Pending")
    cores.done("r1")
    assert (cores.on(), cores.phases("j", "p")) == ("reservation", ["Admitted", "Admitted"])


def test_a_waiting_parent_without_variants_becomes_a_regular_workload() -> None:
    cores = cores_with_families(TWO)
    cores.job(step_by_step=True)
    assert (role(cores), cores.variants()) == ("parent", {})
    switch(cores)
    assert role(cores) == "regular"
    assert (cores.on(), cores.used()) == ("reservation", "4/0")


@pytest.mark.parametrize("checks", [False, True], ids=["promised", "reserved and judged"])
def test_a_swap_ends_when_the_gate_closes_and_the_job_gets_quota(checks: bool) -> None:
    cores = cores_with_families(TWO, checks={"reservation": ["slow"]} if checks else {})
    cores.edit_queue(concurrentAdmission=None)
    cores.job("r1", allowed=["reservation"])
    if checks:
        cores.report("r1", "slow", "Ready")
    cores.policy()
    cores.job()
    cores.slow_jobs.add("j")
    cores.at(100)
    cores.done("r1")
    if checks:
        cores.report("j-variant-reservation", "slow", "Ready")
    assert cores.phase("j") == "Evicting"
    switch(cores)
    assert cores.phase("j") == "Evicting"
    cores.at(130)
    cores.stop("j")
    cores.go()
    assert (role(cores), cores.variants()) == ("regular", {})
    if checks:
        cores.report("j", "slow", "Ready")
    assert (cores.on(), cores.used()) == ("reservation", "4/0")


def test_waiting_workloads_get_variants_after_the_gate_opens_again() -> None:
    cores = cores_with_families(TWO, foreign={"r1": "reservation", "o1": "on-demand"})
    cores.job()
    switch(cores)
    switch(cores, on=True)
    assert role(cores) == "regular"
    cores.policy("UpgradeOnly")
    cores.go()
    assert (role(cores), list(cores.variants())) == ("parent", ["reservation", "on-demand"])
    cores.done("o1")
    assert (cores.on(), cores.phase(WORSE)) == ("on-demand", "Admitted")
