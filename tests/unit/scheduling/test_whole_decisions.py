"""All decisions of the scheduler in crowded systems: which workload gets what quota in which cycle,
which workload is preempted by which rule, and which of them wait for what.

The right decisions lie in `whole_decisions.txt` beside this module. After a change of a decision,
``python -m unit.scheduling.test_whole_decisions`` in folder ``tests`` writes the file anew: read
each changed line before you keep it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from admittance.events.facts import Refused
from admittance.events.requests.queues import PendingQuery
from admittance.scheduling.state.config import CohortFairSharing, Config, UsageFairSharing
from support.cores.stepped_scheduler import SteppedScheduler, groups, quota

DECISIONS: Final = Path(__file__).with_name("whole_decisions.txt")
ANY: Final = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}
BORROWER: Final = {
    "reclaimWithinCohort": "LowerPriority",
    "withinClusterQueue": "LowerOrNewerEqualPriority",
    "borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": 3},
}


class Crowd(SteppedScheduler):
    """A scheduler that writes down its decisions."""

    def __init__(self, config: Config) -> None:
        self.lines: list[str] = []
        self._cycles = 0
        super().__init__(config)

    def cycle(self, *, confirm: bool = True) -> list[str]:
        self._cycles += 1
        refused = len(self.waiting)
        names = super().cycle(confirm=confirm)
        for said in self.decided:
            flavors = [
                f"{row.amount} of {row.available} in {row.flavor}, {row.borrowed} borrowed"
                for row in said.taken
            ]
            givers = "".join(f", from {giver.name}" for giver in said.preempts)
            self._write(f"{said.name} gets {'; '.join(flavors)}, level {said.level}{givers}")
        for gone in self.preempted:
            self._write(f"{gone.name} goes: {gone.reason}, {gone.message}")
        for waits in self.waiting[refused:]:
            self._write_refusal(waits)
        return names

    def _write(self, text: str) -> None:
        self.lines.append(f"{self._cycles} {text}")

    def _write_refusal(self, waits: Refused) -> None:
        self._write(f"{waits.name} waits: {waits.refusal.reason}, {waits.refusal.message}")

    def live(self, queues: tuple[str, ...], count: int) -> None:
        """Workloads of several sizes and priorities arrive in these queues; after every second one
        there is a cycle, and after every fifth one the oldest workload with quota ends."""
        for number in range(count):
            queue = queues[number * 5 % len(queues)]
            name = f"{queue}-{number}"
            self.submit(name, queue, str(1 + number * 7 % 5), priority=number * 4 % 7)
            self.now += timedelta(seconds=40)
            self.core.wake(now=self.now)
            if number % 2:
                self.cycle()
            if number % 5 == 4:
                held = [name for name in self.stored if self.admission(name) is not None]
                self.finish(min(held, key=lambda name: int(name.rpartition("-")[2])))
                self.lines.append(f"{self._cycles} the oldest ends")
        for _ in range(6):
            self.cycle()
        for waits in self.core.refusals(now=self.now + timedelta(minutes=1)):
            self._write_refusal(waits)
        for row in self.core.pending(PendingQuery()).rows:
            self._write(f"{row.position} in {row.cluster_queue} is {row.name}, {row.reason}")


def tree(crowd: Crowd, *policies: dict[str, Any]) -> None:
    """Six queues below two cohorts of one root, some with limits and two flavors."""
    crowd.put("Cohort", "left", {"parentName": "root"})
    crowd.put("Cohort", "right", {"parentName": "root", "fairSharing": {"weight": "2"}})
    crowd.flavor("spot")
    offers = (
        groups(default="4", spot="2"),
        groups(default=quota("3", borrow="4", lend="2")),
        groups(default="2", spot=quota("2", lend="1")),
        groups(default="5"),
        groups(default=quota("1", borrow="6"), spot="1"),
        groups(default="0"),
    )
    for number, offered in enumerate(offers):
        crowd.queue(
            f"q{number}",
            "left" if number < 3 else "right",
            resourceGroups=offered,
            preemption=policies[number % len(policies)],
            **({"queueingStrategy": "StrictFIFO"} if number == 1 else {}),
            **({"flavorFungibility": {"whenCanBorrow": "TryNextFlavor"}} if number % 2 else {}),
        )


QUEUES: Final = tuple(f"q{number}" for number in range(6))


def classical() -> Crowd:
    crowd = Crowd(Config(preemption=True))
    tree(crowd, ANY, BORROWER)
    crowd.live(QUEUES, 60)
    return crowd


def shares() -> Crowd:
    crowd = Crowd(Config(preemption=True, fair_sharing=CohortFairSharing()))
    tree(crowd, ANY)
    crowd.live(QUEUES, 60)
    return crowd


def initial_shares() -> Crowd:
    strategies = ("LessThanInitialShare",)
    sharing = CohortFairSharing(strategies=strategies)
    crowd = Crowd(Config(preemption=True, fair_sharing=sharing))
    tree(crowd, ANY, BORROWER)
    crowd.live(QUEUES, 40)
    return crowd


def usage() -> Crowd:
    """Three local queues of one ClusterQueue, in the order of what they used."""
    used = UsageFairSharing(
        usage_half_life_time=timedelta(minutes=5), usage_sampling_interval=timedelta(minutes=2)
    )
    crowd = Crowd(Config(admission_fair_sharing=used))
    scope = {"admissionMode": "UsageBasedAdmissionFairSharing"}
    crowd.cluster_queue("cq", admissionScope=scope, resourceGroups=groups(default="7"))
    for name, weight in (("l0", "1"), ("l1", "2"), ("l2", "500m")):
        local = {"clusterQueue": "cq", "fairSharing": {"weight": weight}}
        crowd.put("LocalQueue", name, local, namespace="ns")
    crowd.live(("l0", "l1", "l2"), 45)
    return crowd


STORIES: Final[tuple[Callable[[], Crowd], ...]] = (classical, shares, initial_shares, usage)


@pytest.fixture(scope="module")
def right() -> dict[str, list[str]]:
    stories = (text.splitlines() for text in DECISIONS.read_text().split("# ")[1:])
    return {lines[0]: [line for line in lines[1:] if line] for lines in stories}


@pytest.mark.parametrize("make", STORIES)
def test_each_decision_in_a_crowd_is_right(
    make: Callable[[], Crowd], right: dict[str, list[str]]
) -> None:
    lines = make().lines
    for line, wanted in zip(lines, right[make.__name__], strict=False):
        assert line == wanted
    assert len(lines) == len(right[make.__name__])


if __name__ == "__main__":
    DECISIONS.write_text(
        "\n".join(f"# {make.__name__}\n" + "\n".join(make().lines) + "\n" for make in STORIES)
    )
