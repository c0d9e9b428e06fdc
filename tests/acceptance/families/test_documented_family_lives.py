"""The page about concurrent admission, played: what ends a run, and what mistakes come to."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from admittance.events import facts
from admittance.workload.limits import Limits, PodsReadyLimits
from support.cores.families.family_cores import LOWER, FamilyCores, cores_with_families
from support.documents import marked_table

PAGE = Path(__file__).parents[3] / "docs" / "concurrent-admission.md"
ONE = {"reservation": 4, "on-demand": 4, "spot": 8}
TWO = {"reservation": 4, "on-demand": 4}
BOTH = {"r1": "reservation", "o1": "on-demand"}
ALL_VARIANTS = "reservation on-demand spot"
CHECKS = {"on-demand": ["od"], "spot": ["sp"]}
HOUR = 3600


def first_cells(mark: str) -> list[str]:
    """The first column of the table under that mark."""
    return [row[0] for row in marked_table(PAGE, mark)[1:]]


def on_spot(**more: Any) -> FamilyCores:
    """A job that runs on spot: the better flavors are taken."""
    cores = cores_with_families(ONE, foreign=BOTH, **more)
    cores.job()
    return cores


def variant(tag: str, **delays: int) -> dict[str, Any]:
    return {"name": tag, "allowedResourceFlavors": [tag], **delays}


# What ends a run. ---------------------------------------------------------------------------


def replaced() -> None:
    cores = on_spot()
    start = cores.stored("j").status.family_start
    cores.at(100)
    cores.done("o1")
    assert (cores.on(), cores.stored("j").status.family_start) == ("on-demand", start)


def preempted() -> None:
    explicit = [variant("reservation"), variant("on-demand", createDelaySeconds=HOUR)]
    explicit += [variant("spot")]
    cores = on_spot(explicit=explicit, preemption=LOWER)
    cores.at(HOUR)
    assert cores.active() == ALL_VARIANTS
    cores.job("p", 8, allowed=["spot"], priority=100)
    assert (cores.on(), cores.active()) == ("", "reservation spot")
    cores.at(2 * HOUR)
    assert cores.active() == ALL_VARIANTS


def put_off() -> None:
    cores = on_spot(checks=CHECKS)
    cores.report("j-variant-spot", "sp", "Ready")
    assert cores.on() == "spot"
    cores.report("j-variant-spot", "sp", "Retry", after=60)
    assert (cores.on(), cores.active()) == ("", ALL_VARIANTS)
    assert cores.phase("j-variant-spot") == "Backoff"
    cores.done("o1")
    cores.report("j-variant-on-demand", "od", "Ready")
    assert cores.on() == "on-demand", "no variant waits for the other's delay"


def rejected() -> None:
    cores = on_spot(checks={"spot": ["sp"]})
    cores.report("j-variant-spot", "sp", "Ready")
    cores.report("j-variant-spot", "sp", "Rejected")
    assert (cores.on(), cores.active()) == ("", "reservation on-demand")
    cores.done("o1")
    assert cores.on() == "on-demand"


def not_ready() -> None:
    timeout = timedelta(seconds=60)
    cores = on_spot(limits=Limits(pods_ready=PodsReadyLimits(timeout=timeout)))
    cores.advance(60)
    assert (cores.on(), cores.phase("j"), cores.count("j")) == ("", "Backoff", 1)
    wait = cores.wait("j")
    assert wait is not None
    cores.done("r1")
    assert cores.on() == ""
    cores.advance(wait)
    assert cores.on() == "reservation"


def drained() -> None:
    cores = on_spot()
    cores.edit_queue(stopPolicy="HoldAndDrain")
    cores.go()
    assert (cores.on(), cores.used()) == ("", "0/0/0")
    cores.edit_queue(stopPolicy="None")
    cores.go()
    assert cores.on() != ""


def no_more_offered() -> None:
    cores = on_spot()
    cores.done("o1")
    assert cores.on() == "on-demand"
    cores.offer({"reservation": 4, "spot": 8})
    cores.go()
    assert (cores.on(), cores.active()) == ("spot", "reservation spot")


def stopped_by_its_user() -> None:
    cores = on_spot()
    cores.publish(facts.Deactivated, "j")
    cores.go()
    assert (cores.on(), cores.active()) == ("", "")
    cores.publish(facts.Activated, "j")
    cores.go()
    assert (cores.on(), cores.active()) == ("spot", ALL_VARIANTS)


def finished() -> None:
    cores = on_spot()
    cores.done("j")
    for name in ("j", *(f"j-variant-{tag}" for tag in ONE)):
        assert cores.phase(name) == "Finished"


ENDS: dict[str, Callable[[], None]] = {
    "is replaced by a better variant": replaced,
    "is preempted by a workload outside the family": preempted,
    "gets the verdict Retry from one of its checks": put_off,
    "gets the verdict Rejected from one of its checks": rejected,
    "has pods that are not ready in time": not_ready,
    "is in a queue that is drained": drained,
    "has a flavor that the queue offers no more": no_more_offered,
    "is stopped by its user": stopped_by_its_user,
    "finishes": finished,
}


@pytest.mark.scenario("D5", "D6", "D17", "D22", "D23", "D31")
@pytest.mark.parametrize("what", first_cells("ends"))
def test_each_end_of_a_run_has_its_documented_consequence(what: str) -> None:
    ENDS[what]()


# Mistakes. ----------------------------------------------------------------------------------


def too_small() -> None:
    cores = cores_with_families({"reservation": 2, "on-demand": 4})
    cores.job()
    assert (cores.on(), cores.active()) == ("on-demand", "reservation on-demand")
    cores.advance(HOUR)
    assert cores.message("j-variant-reservation", "QuotaReserved")
    assert cores.on() == "on-demand"


def a_delay_on_every_one() -> None:
    delays = (
        variant("reservation", createDelaySeconds=600),
        variant("on-demand", createDelaySeconds=60),
    )
    cores = cores_with_families(TWO, explicit=delays)
    cores.job()
    cores.at(59)
    assert cores.on() == ""
    cores.at(60)
    assert cores.on() == "on-demand"


def over_before_it_begins() -> None:
    best = variant("reservation", createDelaySeconds=600, deleteDelaySeconds=60)
    cores = cores_with_families(TWO, explicit=[best, variant("on-demand")])
    cores.job()
    cores.at(HOUR)
    assert (cores.on(), cores.active()) == ("on-demand", "on-demand")
    # It starts jobs all the same.
    cores = cores_with_families(TWO, explicit=[best])
    cores.job()
    cores.at(600)
    assert cores.on() == "reservation"


def an_end_for_the_worst() -> None:
    worst = variant("on-demand", deleteDelaySeconds=60)
    cores = cores_with_families(
        TWO, explicit=[variant("reservation"), worst], foreign={"r1": "reservation"}
    )
    cores.job()
    cores.at(HOUR)
    assert (cores.on(), cores.active()) == ("on-demand", "reservation on-demand")


def a_delay_on_the_best() -> None:
    best = variant("reservation", createDelaySeconds=60)
    cores = cores_with_families(TWO, explicit=[best, variant("on-demand")])
    cores.job()
    assert cores.on() == "on-demand"
    cores.at(60)
    assert (cores.on(), cores.starts("j")) == ("reservation", 2)


def the_worst_as_minimum() -> None:
    cores = on_spot(floor="spot")
    assert cores.active() == ALL_VARIANTS
    cores.done("o1")
    assert cores.on() == "on-demand"


def the_wrong_order() -> None:
    cores = cores_with_families({"spot": 4, "reservation": 4}, foreign={"s1": "spot"})
    cores.job()
    assert cores.on() == "reservation"
    cores.done("s1")
    assert cores.on() == "spot"


def fewer_pods_will_do() -> None:
    cores = cores_with_families(TWO)
    cores.job(pods=[partial_pods()])
    assert cores.variants() == {}
    assert cores.on() == "reservation"
    assert cores.noted("j")


def partial_pods() -> dict[str, Any]:
    container = {"name": "main", "image": "x", "resources": {"requests": {"gpu": "1"}}}
    spec = {"restartPolicy": "Never", "containers": [container]}
    return {"name": "main", "count": 4, "minCount": 2, "template": {"spec": spec}}


def less_important_ones_on_the_best() -> None:
    cores = cores_with_families(TWO, foreign={"r1": "reservation"}, preemption=LOWER)
    cores.job(priority=100)
    assert cores.on() == "reservation"
    assert cores.evicted_for("r1")
    assert cores.used() == "4/0"


def a_check_that_is_silent() -> None:
    cores = cores_with_families(TWO, checks={"reservation": ["silent"]})
    cores.job()
    cores.advance(24 * HOUR)
    assert (cores.on(), cores.reserved(), cores.used()) == ("on-demand", "reservation", "4/4")


SURPRISING: dict[str, Callable[[], None]] = {
    "a variant that can never fit": too_small,
    "`createDelaySeconds` on every variant": a_delay_on_every_one,
    "`deleteDelaySeconds` shorter than": over_before_it_begins,
    "`deleteDelaySeconds` on the worst variant": an_end_for_the_worst,
    "`createDelaySeconds` on the best variant": a_delay_on_the_best,
    "`minFlavor` naming the worst flavor": the_worst_as_minimum,
    "flavors in the wrong order": the_wrong_order,
    "a job with `minCount`": fewer_pods_will_do,
    "`preemption` in the queue": less_important_ones_on_the_best,
    "a check on the best flavor that never answers": a_check_that_is_silent,
}


@pytest.mark.parametrize("wrote", first_cells("surprising"))
def test_surprising_but_legal_settings_work_as_documented(wrote: str) -> None:
    [play] = [play for name, play in SURPRISING.items() if wrote.startswith(name)]
    play()
