"""Answers of the scheduler in full, for a few systems that differ: why each workload waits, the
list of what waits and of what holds quota, the counters of queues, the tree of cohorts, the gauges.

The right answers lie in `whole_answers.json` beside this module. After a change of an answer,
``python -m unit.scheduling.explain.test_whole_answers`` in folder ``tests`` writes the file anew:
read each changed line before you keep it."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from admittance.api.workload import CheckState, RequeueState
from admittance.events.requests.queues import PendingQuery, Queues
from admittance.events.shapes import ConsumedUsage
from admittance.scheduling.state.config import CohortFairSharing, Config, UsageFairSharing
from support.cores.families.family_scheduler import FamilyScheduler, full
from support.cores.stepped_scheduler import NOON, SteppedScheduler, groups, quota
from unit.scheduling.explain import test_explanations as waits
from unit.scheduling.explain.test_families_explained import DELAYED, blocked, lacks_four_cpus

ANSWERS: Final = Path(__file__).with_name("whole_answers.json")
WITHIN = {"withinClusterQueue": "LowerPriority"}
EVERY_WORKLOAD: Final = PendingQuery(holding=9)


def waiting(make: Callable[[SteppedScheduler], None]) -> Callable[[], SteppedScheduler]:
    """A system in which one workload waits, as `test_explanations` makes it."""

    def made() -> SteppedScheduler:
        scheduler = waits.a_scheduler()
        make(scheduler)
        return scheduler

    return made


def cohorts() -> SteppedScheduler:
    """Two cohorts below a root. Queue a borrows from b and lends nothing; workload next preempts
    low; large cannot fit; later competes; checked waits for its check, and gone is stopping."""
    scheduler = SteppedScheduler(Config(preemption=True))
    scheduler.put("Cohort", "team", {"parentName": "root"})
    scheduler.put("Cohort", "guests", {"parentName": "root"})
    scheduler.flavor("spot")
    scheduler.put("AdmissionCheck", "room", {"controllerName": "ctl"})
    spread = groups(default=quota("4", borrow="3", lend="0"), spot=quota("2", borrow="0"))
    scheduler.queue("a", "team", resourceGroups=spread, preemption=WITHIN)
    scheduler.queue("b", "team", resourceGroups=groups(default=quota("6", lend="5")))
    scheduler.queue("c", "guests", resourceGroups=groups(spot="3"), admissionChecks=["room"])
    scheduler.submit("low", "a", "5", priority=-1, age=90)
    scheduler.submit("spots", "a", "2", priority=2, age=80)
    scheduler.submit("gone", "b", "2", age=70)
    scheduler.settle()
    scheduler.admits = False
    scheduler.submit("checked", "c", "1", age=60)
    scheduler.settle()
    scheduler.change("checked", admission_checks=(CheckState(name="room"),))
    scheduler.change("gone", conditions={"Evicted": (True, "Preempted")})
    scheduler.submit("large", "a", "99", age=50)
    scheduler.settle()
    scheduler.submit("next", "a", "4", priority=1, age=40)
    scheduler.cycle(confirm=False)
    scheduler.submit("later", "a", "1", priority=-2, age=30)
    scheduler.submit("nowhere", "missing", "1", age=20)
    until = NOON + timedelta(minutes=5)
    scheduler.submit("backoff", "b", "1", age=10)
    scheduler.change("backoff", requeue_state=RequeueState(count=1, requeue_at=until))
    return scheduler


def shares() -> SteppedScheduler:
    """Cohorts share by weight, and local queues of one ClusterQueue by what they used."""
    usage = UsageFairSharing(usage_half_life_time=timedelta(hours=1))
    config = Config(preemption=True, fair_sharing=CohortFairSharing(), admission_fair_sharing=usage)
    scheduler = SteppedScheduler(config)
    scope = {"admissionMode": "UsageBasedAdmissionFairSharing"}
    any_other = {"reclaimWithinCohort": "Any"}
    fair = {"resourceGroups": groups(default="3"), "preemption": any_other}
    scheduler.queue("a", "co", admissionScope=scope, **fair)
    scheduler.put("LocalQueue", "second", {"clusterQueue": "a"}, namespace="ns")
    scheduler.queue("b", "co", fairSharing={"weight": "2"}, **fair)
    scheduler.queue("c", "co", **fair)
    used = ConsumedUsage(consumed_resources={"cpu": "3"}, last_update=scheduler.now)
    scheduler.core.apply_usage("ns", "a", used)
    scheduler.submit("x", "a", "3", age=90)
    scheduler.submit("y", "b", "4", age=80)
    scheduler.submit("z", "b", "1", age=70)
    scheduler.settle()
    scheduler.submit("w", "a", "2", age=60)
    scheduler.submit("v", "second", "2", age=50)
    scheduler.settle()
    scheduler.submit("u", "a", "1", age=40)
    return scheduler


def a_family(**taken: str) -> Callable[[], FamilyScheduler]:
    """Family f beside workloads that fill its flavors as ``taken`` says."""

    def made() -> FamilyScheduler:
        scheduler = FamilyScheduler()
        scheduler.check("slow")
        scheduler.family_queue(checks={"worst": ["slow"]})
        full(scheduler, **taken)
        scheduler.family("f", age=9)
        scheduler.settle()
        scheduler.family("g", age=3, priority=-1)
        scheduler.settle()
        return scheduler

    return made


def migrating() -> FamilyScheduler:
    """Family f moves from mid to best."""
    scheduler = a_family(best="4")()
    scheduler.finish("r-best")
    scheduler.settle()
    return scheduler


def stopped_variants() -> FamilyScheduler:
    """A user stopped one variant of f, a check rejected another, and the third is in backoff."""
    scheduler = a_family(best="4", mid="4", worst="4")()
    scheduler.respec("f-best", active=False)
    scheduler.change("f-best", stopped_by="User")
    scheduler.respec("f-mid", active=False)
    rejected = (CheckState(name="slow", state="Rejected"),)
    scheduler.change("f-mid", stopped_by="Rejected", admission_checks=rejected)
    until = NOON + timedelta(minutes=5)
    scheduler.change("f-worst", requeue_state=RequeueState(count=1, requeue_at=until))
    return scheduler


def without_active_variant() -> FamilyScheduler:
    """The variants of f are stopped: by a user, by a check, by a user."""
    scheduler = stopped_variants()
    scheduler.respec("f-worst", active=False)
    scheduler.change("f-worst", stopped_by="User")
    return scheduler


def staying() -> FamilyScheduler:
    """Family f runs in flavor mid of a cohort, and never moves."""
    scheduler = FamilyScheduler()
    scheduler.family_queue(mode="NoMigration", cohort="team")
    full(scheduler, best="4")
    scheduler.family("f")
    scheduler.settle()
    return scheduler


def family_in_backoff() -> FamilyScheduler:
    scheduler = a_family(best="4", mid="4", worst="4")()
    until = NOON + timedelta(minutes=5)
    scheduler.change(
        "f",
        conditions={"Requeued": (False, "PodsReadyTimeout")},
        requeue_state=RequeueState(count=1, requeue_at=until),
    )
    return scheduler


def delayed() -> FamilyScheduler:
    """The faster variant of f begins after a hundred seconds."""
    scheduler = FamilyScheduler()
    scheduler.family_queue(explicit=DELAYED, flavors={"best": "4", "mid": "4"})
    full(scheduler, mid="4")
    scheduler.family("f")
    scheduler.settle()
    return scheduler


WAITING: Final = (
    waits.never,
    waits.not_lower,
    waits.no_reclaim,
    waits.lender_within_nominal,
    waits.sheltered,
    waits.while_borrowing,
    waits.above_threshold,
    waits.inactive,
    waits.above_nominal,
    waits.not_enough,
    waits.not_enough_to_borrow,
    waits.taint,
    waits.selector,
    waits.too_large,
    waits.borrowing_limit,
    waits.in_cohort,
    waits.stopped,
    waits.stopped_local,
    waits.no_queue,
    waits.other_namespace,
    waits.uncovered,
    waits.cycle,
    waits.behind_strict_head,
)
SYSTEMS: Final[dict[str, Callable[[], SteppedScheduler]]] = {
    "cohorts": cohorts,
    "shares": shares,
    "a family that waits": a_family(best="4", mid="4", worst="4"),
    "a family that runs": a_family(best="4"),
    "a family that reserves": a_family(best="4", mid="4"),
    "a family that migrates": migrating,
    "a family with stopped variants": stopped_variants,
    "a family without an active variant": without_active_variant,
    "a family that stays": staying,
    "a family in backoff": family_in_backoff,
    "a family with a delayed variant": delayed,
    "a family that needs a victim": blocked,
    "a family that holds a part": lambda: lacks_four_cpus(priority=0),
}


def every_answer(scheduler: SteppedScheduler) -> dict[str, Any]:
    """All answers about the system, without values that are as usual."""
    core = scheduler.core
    asked = list(scheduler.stored)
    if isinstance(scheduler, FamilyScheduler):
        # The answer about a parent has those about its variants.
        asked = [name for name in asked if "-" not in name and name != "g"]
    answers: dict[str, Any] = {
        f"why {name}": msgspec.to_builtins(scheduler.why(name)) for name in asked
    }
    answers["pending"] = msgspec.to_builtins(core.pending(EVERY_WORKLOAD))
    answers["queues"] = msgspec.to_builtins(core.queues(Queues(local_queues=True)))
    root = next(iter(core.catalog.tree.cohorts.values()), None)
    if root is not None:
        answers["tree"] = msgspec.to_builtins(core.queues(Queues(cohort=root.name)))
    answers["gauges"] = {
        gauge: {" ".join(labels): value for labels, value in sorted(series.items())}
        for gauge, series in sorted(core.gauges().items())
        if series
    }
    return answers


def answer(name: str) -> dict[str, Any]:
    """The answers about the system of this name, as they are stored."""
    if name in SYSTEMS:
        answers = every_answer(SYSTEMS[name]())
    else:
        (make,) = (make for make in WAITING if make.__name__ == name)
        answers = {"why w": msgspec.to_builtins(waiting(make)().why("w"))}
    for reply in answers.values():
        for part in (reply, *(row["explained"] for row in reply.get("variants", ()))):
            part.pop("seen", None)  # how many changes the system was made with
    return json.loads(json.dumps(answers))  # type: ignore[no-any-return]


NAMES: Final = (*(make.__name__ for make in WAITING), *SYSTEMS)


@pytest.fixture(scope="module")
def right() -> dict[str, Any]:
    return json.loads(ANSWERS.read_text())  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", NAMES)
def test_an_answer_is_right_in_every_part(name: str, right: dict[str, Any]) -> None:
    for question, reply in answer(name).items():
        assert reply == right[name].pop(question), question
    assert right[name] == {}, "these questions were not asked"


def test_each_stored_answer_is_compared(right: dict[str, Any]) -> None:
    assert tuple(right) == NAMES


def written() -> str:
    """The answers as text, with a line for each part that has parts itself."""
    systems = []
    for name in NAMES:
        answers = []
        for question, reply in answer(name).items():
            lines = json.dumps(question) + ": {"
            for key, value in reply.items():
                lines += "\n  " if isinstance(value, dict | list) else " "
                lines += f"{json.dumps(key)}: {json.dumps(value)},"
            answers.append(lines.removesuffix(",") + "}")
        systems.append(f"{json.dumps(name)}: {{\n " + ",\n ".join(answers) + "\n}")
    return "{" + ",\n".join(systems) + "}\n"


if __name__ == "__main__":
    ANSWERS.write_text(written())
