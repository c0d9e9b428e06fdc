"""The page about concurrent admission, played: what ends a run, and what mistakes come to."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from admittance.events import facts
from admittance.workload.limits import Limits, PodsReadyLimits

from family_living import LOWER, FamilyLife, a_family_life

PAGE = Path(__file__).parents[2] / "docs" / "concurrent-admission.md"
ONE = {"reservation": 4, "on-demand": 4, "spot": 8}
TWO = {"reservation": 4, "on-demand": 4}
BOTH = {"r1": "reservation", "o1": "on-demand"}
ALL_VARIANTS = "reservation on-demand spot"
CHECKS = {"on-demand": ["od"], "spot": ["sp"]}
HOUR = 3600


def first_cells(mark: str) -> list[str]:
    """The first column of the table under that mark."""
    text = PAGE.read_text().partition(f"<!-- {mark}:")[2].partition("-->")[2].strip()
    lines = text.partition("\n\n")[0].splitlines()[2:]
    return [line.strip("|").split("|")[0].strip() for line in lines]


def on_spot(**more: Any) -> FamilyLife:
    """A job that runs on spot: what is better is taken."""
    life = a_family_life(ONE, foreign=BOTH, **more)
    life.job()
    return life


def variant(tag: str, **delays: int) -> dict[str, Any]:
    return {"name": tag, "allowedResourceFlavors": [tag], **delays}


# What ends a run. ---------------------------------------------------------------------------


def replaced() -> None:
    life = on_spot()
    start = life.stored("j").status.family_start
    life.at(100)
    life.done("o1")
    assert (life.on(), life.stored("j").status.family_start) == ("on-demand", start)


def preempted() -> None:
    explicit = [variant("reservation"), variant("on-demand", createDelaySeconds=HOUR)]
    explicit += [variant("spot")]
    life = on_spot(explicit=explicit, preemption=LOWER)
    life.at(HOUR)
    assert life.active() == ALL_VARIANTS
    life.job("p", 8, allowed=["spot"], priority=100)
    assert (life.on(), life.active()) == ("", "reservation spot")
    life.at(2 * HOUR)
    assert life.active() == ALL_VARIANTS


def put_off() -> None:
    life = on_spot(checks=CHECKS)
    life.judge("j-variant-spot", "sp", "Ready")
    assert life.on() == "spot"
    life.judge("j-variant-spot", "sp", "Retry", after=60)
    assert (life.on(), life.active()) == ("", ALL_VARIANTS)
    assert life.phase("j-variant-spot") == "Backoff"
    life.done("o1")
    life.judge("j-variant-on-demand", "od", "Ready")
    assert life.on() == "on-demand", "no variant waits for the other's delay"


def rejected() -> None:
    life = on_spot(checks={"spot": ["sp"]})
    life.judge("j-variant-spot", "sp", "Ready")
    life.judge("j-variant-spot", "sp", "Rejected")
    assert (life.on(), life.active()) == ("", "reservation on-demand")
    life.done("o1")
    assert life.on() == "on-demand"


def not_ready() -> None:
    timeout = timedelta(seconds=60)
    life = on_spot(limits=Limits(pods_ready=PodsReadyLimits(timeout=timeout)))
    life.advance(60)
    assert (life.on(), life.phase("j"), life.count("j")) == ("", "Backoff", 1)
    wait = life.wait("j")
    assert wait is not None
    life.done("r1")
    assert life.on() == ""
    life.advance(wait)
    assert life.on() == "reservation"


def drained() -> None:
    life = on_spot()
    life.says(stopPolicy="HoldAndDrain")
    life.go()
    assert (life.on(), life.used()) == ("", "0/0/0")
    life.says(stopPolicy="None")
    life.go()
    assert life.on() != ""


def no_more_offered() -> None:
    life = on_spot()
    life.done("o1")
    assert life.on() == "on-demand"
    life.offer({"reservation": 4, "spot": 8})
    life.go()
    assert (life.on(), life.active()) == ("spot", "reservation spot")


def stopped_by_its_user() -> None:
    life = on_spot()
    life.say(facts.Deactivated, "j")
    life.go()
    assert (life.on(), life.active()) == ("", "")
    life.say(facts.Activated, "j")
    life.go()
    assert (life.on(), life.active()) == ("spot", ALL_VARIANTS)


def finished() -> None:
    life = on_spot()
    life.done("j")
    for one in ("j", *(f"j-variant-{tag}" for tag in ONE)):
        assert life.phase(one) == "Finished"


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


@pytest.mark.parametrize("what", first_cells("ends"))
def test_each_end_of_a_run_has_its_documented_consequence(what: str) -> None:
    ENDS[what]()


# Mistakes. ----------------------------------------------------------------------------------


def too_small() -> None:
    life = a_family_life({"reservation": 2, "on-demand": 4})
    life.job()
    assert (life.on(), life.active()) == ("on-demand", "reservation on-demand")
    life.advance(HOUR)
    assert life.message("j-variant-reservation", "QuotaReserved")
    assert life.on() == "on-demand"


def a_delay_on_every_one() -> None:
    delays = (
        variant("reservation", createDelaySeconds=600),
        variant("on-demand", createDelaySeconds=60),
    )
    life = a_family_life(TWO, explicit=delays)
    life.job()
    life.at(59)
    assert life.on() == ""
    life.at(60)
    assert life.on() == "on-demand"


def over_before_it_begins() -> None:
    best = variant("reservation", createDelaySeconds=600, deleteDelaySeconds=60)
    life = a_family_life(TWO, explicit=[best, variant("on-demand")])
    life.job()
    life.at(HOUR)
    assert (life.on(), life.active()) == ("on-demand", "on-demand")
    # It starts jobs all the same.
    life = a_family_life(TWO, explicit=[best])
    life.job()
    life.at(600)
    assert life.on() == "reservation"


def an_end_for_the_worst() -> None:
    worst = variant("on-demand", deleteDelaySeconds=60)
    life = a_family_life(
        TWO, explicit=[variant("reservation"), worst], foreign={"r1": "reservation"}
    )
    life.job()
    life.at(HOUR)
    assert (life.on(), life.active()) == ("on-demand", "reservation on-demand")


def a_delay_on_the_best() -> None:
    best = variant("reservation", createDelaySeconds=60)
    life = a_family_life(TWO, explicit=[best, variant("on-demand")])
    life.job()
    assert life.on() == "on-demand"
    life.at(60)
    assert (life.on(), life.starts("j")) == ("reservation", 2)


def the_worst_as_minimum() -> None:
    life = on_spot(floor="spot")
    assert life.active() == ALL_VARIANTS
    life.done("o1")
    assert life.on() == "on-demand"


def the_wrong_order() -> None:
    life = a_family_life({"spot": 4, "reservation": 4}, foreign={"s1": "spot"})
    life.job()
    assert life.on() == "reservation"
    life.done("s1")
    assert life.on() == "spot"


def fewer_pods_will_do() -> None:
    life = a_family_life(TWO)
    life.job(pods=[partial_pods()])
    assert life.variants() == {}
    assert life.on() == "reservation"
    assert life.noted("j")


def partial_pods() -> dict[str, Any]:
    container = {"name": "main", "image": "x", "resources": {"requests": {"gpu": "1"}}}
    spec = {"restartPolicy": "Never", "containers": [container]}
    return {"name": "main", "count": 4, "minCount": 2, "template": {"spec": spec}}


def less_important_ones_on_the_best() -> None:
    life = a_family_life(TWO, foreign={"r1": "reservation"}, preemption=LOWER)
    life.job(priority=100)
    assert life.on() == "reservation"
    assert life.evicted_for("r1")
    assert life.used() == "4/0"


def a_check_that_is_silent() -> None:
    life = a_family_life(TWO, checks={"reservation": ["silent"]})
    life.job()
    life.advance(24 * HOUR)
    assert (life.on(), life.reserved(), life.used()) == ("on-demand", "reservation", "4/4")


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
