"""Saved nominations save work and change no decision."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from admittance.scheduling.cycle import cycle
from admittance.scheduling.cycle.nominate import Nominator, Search, nomination_of
from admittance.scheduling.state.assignment import Cursor
from admittance.scheduling.state.config import CohortFairSharing, Config
from admittance.scheduling.state.workload_info import Nomination, Queue, WorkloadInfo
from support.cores.stepped_scheduler import SteppedScheduler, groups, quota
from support.examples import examples

WITHIN = ("Never", "LowerPriority", "LowerOrNewerEqualPriority")
RECLAIM = ("Never", "LowerPriority", "Any")


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the heads that were looked at, one after the other."""
    seen: list[str] = []
    nominate = Nominator.nominate

    def counted(self: Nominator, queue, member, *more, **named):  # type: ignore[no-untyped-def]
        seen.append(member.key[1])
        return nominate(self, queue, member, *more, **named)

    monkeypatch.setattr(Nominator, "nominate", counted)
    return seen


def strict(scheduler: SteppedScheduler, name: str, *flavors: str) -> None:
    offered = {flavor: quota("1") for flavor in flavors}
    scheduler.queue(name, queueingStrategy="StrictFIFO", resourceGroups=groups(**offered))


def test_an_unchanged_head_is_tried_once_for_each_event(looks: list[str]) -> None:
    scheduler = SteppedScheduler()
    strict(scheduler, "alone", "default")
    scheduler.submit("runs", "alone")
    scheduler.settle()
    scheduler.submit("waits", "alone")
    looks.clear()
    scheduler.settle()
    assert looks == ["waits"]


def test_an_unchanged_head_is_tried_again_when_quota_is_freed(looks: list[str]) -> None:
    scheduler = SteppedScheduler()
    strict(scheduler, "alone", "default")
    scheduler.submit("runs", "alone")
    scheduler.settle()
    scheduler.submit("waits", "alone")
    scheduler.settle()
    scheduler.finish("runs")
    assert scheduler.settle() == ["waits"]


def test_a_head_that_cycles_through_flavors_is_tried_in_idle_cycles(
    looks: list[str],
) -> None:
    # The pod set that fits begins with the next flavor each time, so where it stands when room
    # comes free is a matter of how often it was looked at.
    scheduler = SteppedScheduler(Config(idle_cycles=9))
    scheduler.flavor("other")
    strict(scheduler, "two", "default", "other")
    scheduler.submit("large", "two", pods=[{"requests": {"cpu": "1"}}, {"requests": {"cpu": "5"}}])
    scheduler.settle()
    assert looks == ["large"] * 9


def test_skipped_idle_cycles_count_for_the_cursors_of_other_queues() -> None:
    scheduler = SteppedScheduler(Config(idle_cycles=9))
    strict(scheduler, "alone", "default")
    scheduler.submit("large", "alone", "5")
    before = scheduler.core._cycle.number
    scheduler.settle()
    assert scheduler.core._cycle.number == before + 9


# Nominations that are remembered. -----------------------------------------------------------


def _known(nomination: Nomination) -> tuple[object, ...]:
    mode, victims = nomination
    return (
        mode.mode,
        mode.level,
        mode.usage,
        mode.cursor,
        mode.contested,
        mode.places,
        mode.obstacles,
        victims,
    )


@pytest.fixture
def remembered(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Computes every nomination of a cycle a second time, and compares it with the nomination that
    was used. Returns the number of saved nominations."""
    counted: Counter[str] = Counter()

    def checked(
        nominator: Nominator, queue: Queue, member: WorkloadInfo, at: Cursor | None
    ) -> Nomination:
        assert member.cls is not None
        before = member.cls.saved_nomination
        taken = nomination_of(nominator, queue, member, at)
        counted["remembered"] += before is not None and before.nomination is taken
        counted["all"] += 1
        assert _known(taken) == _known(nominator.nominate(queue, member, at))
        return taken

    monkeypatch.setattr(cycle, "nomination_of", checked)
    return counted


@pytest.mark.parametrize("seed", range(examples(12)))
@pytest.mark.parametrize("fair", [None, CohortFairSharing()], ids=["by priority", "by shares"])
def test_a_saved_search_equals_a_new_search(
    remembered: Counter[str], seed: int, fair: CohortFairSharing | None
) -> None:
    random = Random(seed)
    scheduler = SteppedScheduler(Config(preemption=True, fair_sharing=fair, partial_admission=True))
    scheduler.flavor("other")

    def configure(n: int) -> None:
        within, reclaim = random.choice(WITHIN), random.choice(RECLAIM)
        scheduler.queue(
            f"q{n}",
            "team" if n < 4 else "",
            preemption={
                "withinClusterQueue": within,
                "reclaimWithinCohort": reclaim,
            },
            queueingStrategy=random.choice(("StrictFIFO", "BestEffortFIFO")),
            resourceGroups=groups(
                default=quota(str(random.randint(0, 6))), other=quota(str(random.randint(0, 6)))
            ),
        )

    for n in range(5):
        configure(n)
    running: list[str] = []
    ended: set[str] = set()
    for n in range(60):
        what = random.random()
        if what < 0.6:
            name, queue = f"w{n}", f"q{random.randrange(5)}"
            pods = random.choice(
                [
                    [{"requests": {"cpu": random.choice("1235")}}],
                    [{"requests": {"cpu": "1"}}, {"requests": {"cpu": random.choice("246")}}],
                ]
            )
            priority, age = random.randint(0, 2), random.randint(0, 50)
            scheduler.submit(name, queue, priority=priority, age=age, pods=pods)
        elif what < 0.85 and running:
            done = random.choice(running)
            ended.add(done)
            scheduler.finish(done)
        elif what < 0.95:
            scheduler.core.flush(f"q{random.randrange(5)}")
        else:
            configure(random.randrange(5))
        for _ in range(random.randint(1, 12)):
            scheduler.cycle()
        running = [
            workload
            for workload in scheduler.stored
            if scheduler.admission(workload) and workload not in ended
        ]
    assert remembered["all"] > remembered["remembered"] > 0


def test_a_saved_search_of_an_older_workload_is_not_reused() -> None:
    scheduler = SteppedScheduler()
    scheduler.queue(
        "alone",
        preemption={"withinClusterQueue": "LowerOrNewerEqualPriority"},
        resourceGroups=groups(default=quota("1")),
    )
    scheduler.submit("runs", "alone", age=10)
    scheduler.settle()
    scheduler.submit("older", "alone", age=20)
    scheduler.submit("younger", "alone", age=5)
    nominator, world = scheduler.core._cycle._nominator, scheduler.core._state
    kept = [
        bool(nomination_of(nominator, world.queues["alone"], world.workloads["ns", name], None)[1])
        for name in ("older", "younger")
    ]
    assert kept == [True, False]


# Searches that are not made for what makes no difference. -----------------------------------


def _team(scheduler: SteppedScheduler, random: Random) -> None:
    """Queues of nested cohorts with cpu that is scarce and memory that mostly is not."""
    for name, parent in (("left", "root"), ("right", "root"), ("root", "")):
        lend = {"lendingLimit": str(random.randint(0, 3))} if parent else {}
        offered = [
            {"name": "cpu", "nominalQuota": str(random.randint(0, 2)), **lend},
            {"name": "memory", "nominalQuota": str(random.choice((0, 4, 100)))},
        ]
        flavors = [{"name": "default", "resources": offered}]
        spec = {"resourceGroups": [{"coveredResources": ["cpu", "memory"], "flavors": flavors}]}
        scheduler.put("Cohort", name, {**spec, **({"parentName": parent} if parent else {})})
    for n in range(4):
        offered = [
            {"name": "cpu", "nominalQuota": str(random.randint(0, 5))},
            {"name": "memory", "nominalQuota": str(random.choice((0, 3, 6, 100)))},
        ]
        within, reclaim = random.choice(WITHIN), random.choice(RECLAIM)
        borrow = {"policy": "LowerPriority"} if reclaim != "Never" and n % 2 else None
        preemption = {"withinClusterQueue": within, "reclaimWithinCohort": reclaim}
        if borrow is not None:
            preemption |= {"borrowWithinCohort": borrow}
        scheduler.queue(
            f"q{n}",
            "left" if n < 2 else "right",
            preemption=preemption,
            resourceGroups=[
                {
                    "coveredResources": ["cpu", "memory"],
                    "flavors": [{"name": "default", "resources": offered}],
                }
            ],
        )


@pytest.mark.parametrize("fair", [None, CohortFairSharing()], ids=["by priority", "by shares"])
def test_victims_do_not_depend_on_resources_that_suffice(
    monkeypatch: pytest.MonkeyPatch, fair: CohortFairSharing | None
) -> None:
    counted: Counter[str] = Counter()
    victims = Search.victims

    def checked(self: Search, need, contested):  # type: ignore[no-untyped-def]
        removed = victims(self, need, contested)
        scarce = sum(cell.fr in contested for cell in need)
        counted["several"] += len(need) > 1
        counted["one scarce"] += len(need) > 1 and scarce == 1 and bool(removed)
        assert removed == self._search(need, contested)
        return removed

    monkeypatch.setattr(Search, "victims", checked)
    for seed in range(examples(40)):
        random = Random(seed)
        scheduler = SteppedScheduler(Config(preemption=True, fair_sharing=fair))
        _team(scheduler, random)
        for n in range(25):
            requests = {"cpu": random.choice("123"), "memory": random.choice("0123")}
            queue, priority = f"q{random.randrange(4)}", random.randint(0, 3)
            scheduler.submit(
                f"w{n}",
                queue,
                priority=priority,
                age=random.random(),
                pods=[{"requests": requests}],
            )
            scheduler.cycle()
            if n % 5 == 4:
                scheduler.core.flush("q0")
    assert counted["several"] > counted["one scarce"] > 0
