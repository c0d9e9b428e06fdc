"""Random days of queues that limit what one person may hold, with the cores that ship: no person
ever holds more than its limit, no workload within its limit is left waiting, and a replay of the
log makes every decision and refusal again."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from admittance.api.fields.units import amount
from admittance.events import facts
from admittance.events.reader import BucketEntry
from admittance.events.reasons import WAITING_FOR_USER_LIMIT
from admittance.replay.decision import repeat
from admittance.replay.logged_decisions import LoggedDecision
from admittance.scheduling.state.config import CohortFairSharing, Config, UsageFairSharing
from admittance.workload.stored import StoredWorkload
from support.builders import a_manifest
from support.cores.stepped_cores import SteppedCores
from support.cores.stepped_scheduler import groups
from support.examples import examples

TEAM = "team"
USAGE = UsageFairSharing(
    usage_half_life_time=timedelta(minutes=5), usage_sampling_interval=timedelta(seconds=30)
)


class Days(SteppedCores):
    """Compares what each person holds with the limits, after every write of a workload.

    ``allowed``: by queue and person the most that the person may hold: its limit, or what it held
    when the limit was lowered, until it holds less. ``limited``: the limits, by queue and label."""

    def __init__(self, config: Config) -> None:
        self.limited: dict[tuple[str, str], int] = {}
        self.allowed: Counter[tuple[str, str, str]] = Counter()
        self.names: list[str] = []
        self.buckets: dict[int, list[BucketEntry]] = {}
        self.refused = 0
        self.number = 0
        super().__init__(config)

    def job(self, rng: Random) -> None:
        self.number += 1
        name = f"w{self.number}"
        self.names.append(name)
        count = rng.choice((1, 1, 1, 3))
        manifest = a_manifest(
            name, self.namespace, requests={"cpu": str(rng.randint(0, 4))}, queue=rng.choice("aab"),
            priority=rng.choice((0, 0, 1)), count=count,
        )  # fmt: skip
        if count > 1 and rng.random() < 0.6:
            manifest["spec"]["podSets"][0]["minCount"] = 1
        if team := rng.choice(("", "red", "blue")):
            manifest["metadata"]["labels"] = {TEAM: team}
        self.submit_manifest(manifest, user=rng.choice(("ada", "bob", "")))

    def limit(self, queue: str, label: str, most: int | None) -> None:
        """Records the limit that the queue gets now."""
        held = self.held()
        if most is None:
            self.limited.pop((queue, label), None)
        else:
            self.limited[queue, label] = most
        for key in [key for key in self.allowed if key[:2] == (queue, label)]:
            del self.allowed[key]
        if most is not None:
            for key, much in held.items():
                if key[:2] == (queue, label) and much > most:
                    self.allowed[key] = much

    def held(self) -> Counter[tuple[str, str, str]]:
        """What each person holds in thousandths of a cpu, by queue and label, from the bucket."""
        held: Counter[tuple[str, str, str]] = Counter()
        for name in self.names:
            if not self.has(name) or self.phase(name) == "Finished":
                continue
            stored = self.stored(name)
            admission = stored.status.admission
            if admission is None:
                continue
            much = sum(
                amount("cpu", pod_set.resource_usage.get("cpu", "0"))
                for pod_set in admission.pod_set_assignments
            )
            for label, person in persons_of(stored):
                held[admission.cluster_queue, label, person] += much
        return held

    def wrote(self) -> None:
        for key, much in self.held().items():
            queue, label, _ = key
            if (queue, label) in self.limited:
                most = max(self.limited[queue, label], self.allowed[key])
                assert much <= most, f"{key} holds {much} of {most}"
                if key in self.allowed:
                    self.allowed[key] = min(self.allowed[key], much)

    # The log. ---------------------------------------------------------------------------------

    def cycle(self, *, apply: bool = True, later: float = 1) -> list[facts.Decision]:
        self.buckets[self.revision] = self.entries()
        # No record of usage is stored: what a replay needs of usages is in the decisions.
        self.scheduler.usages_to_write(now=self.now, at_once=True)
        return super().cycle(apply=apply, later=later)

    def apply(self, decision: facts.Decision) -> None:
        is_limit = (
            isinstance(decision, facts.Refused)
            and decision.refusal.reason == WAITING_FOR_USER_LIMIT
        )
        if is_limit or isinstance(decision, facts.Assigned):
            at = next(at for at, made in enumerate(self.decided) if made is decision)
            before = [LoggedDecision(n, 1, made) for n, made in enumerate(self.decided[:at])]
            target = LoggedDecision(at, 1, decision)
            same = repeat(target, before, self.buckets.__getitem__, self.config or Config())
            assert same.differences == []
            self.refused += is_limit
        super().apply(decision)


def persons_of(stored: StoredWorkload) -> list[tuple[str, str]]:
    """The user of the workload, and its value of the label."""
    persons = [("", stored.status.submitted_by)]
    if TEAM in stored.metadata.labels:
        persons.append((TEAM, stored.metadata.labels[TEAM]))
    return persons


def a_queue(days: Days, rng: Random, name: str) -> None:
    limits: dict[str, Any] = {}
    per_user = rng.choice((None, 0, 2, 3, 5))
    per_team = rng.choice((None, None, 4))
    if per_user is not None:
        limits["perUser"] = {"cpu": per_user}
    if per_team is not None:
        limits["perLabel"] = {TEAM: {"cpu": per_team}}
    days.queue(
        name,
        rng.choice(("co", "co", "")),
        resourceGroups=groups(default=str(rng.randint(3, 9))),
        queueingStrategy=rng.choice(("StrictFIFO", "BestEffortFIFO")),
        admissionScope={
            "admissionMode": "UsageBasedAdmissionFairSharing",
            "usageOf": rng.choice(("User", "LocalQueue")),
        },
        preemption={
            "withinClusterQueue": rng.choice(("Never", "LowerPriority")),
            "reclaimWithinCohort": rng.choice(("Never", "Any")),
        },
        **limits,
    )
    for label, most in (("", per_user), (TEAM, per_team)):
        days.limit(name, label, None if most is None else most * 1000)


def nothing_is_left_waiting(days: Days) -> None:
    """A scheduler that starts now, and so tries every workload, decides nothing."""
    before = [one for one in days.decided if not isinstance(one, facts.Refused)]
    days.restart_scheduler()
    for _ in range(3):
        days.cycle(later=0)
    assert [one for one in days.decided if not isinstance(one, facts.Refused)] == before


@pytest.mark.parametrize("seed", range(examples(90)))
def test_no_person_ever_holds_more_than_its_limit(seed: int) -> None:
    rng = Random(seed)
    days = Days(
        Config(
            fair_sharing=rng.choice((None, None, CohortFairSharing())),
            admission_fair_sharing=rng.choice((None, USAGE)),
        )
    )
    a_queue(days, rng, "a")
    a_queue(days, rng, "b")
    acts = ("submit", "submit", "submit", "submit", "finish", "finish", "edit", "delete", "lose")
    for _ in range(rng.randint(15, 30)):
        match rng.choice(acts):
            case "submit":
                days.job(rng)
            case "finish" if running := _in_phase(days, "Admitted", "Running"):
                days.finish(rng.choice(running))
            case "edit":
                a_queue(days, rng, rng.choice("ab"))
            case "delete" if pending := _in_phase(days, "Pending"):
                days.publish(facts.Deleted, name := rng.choice(pending))
                days.names.remove(name)
            case "lose":
                _lose(days)
        days.settle(300)
        nothing_is_left_waiting(days)


def _in_phase(days: Days, *phases: str) -> list[str]:
    return [name for name in days.names if days.phase(name) in phases]


def _lose(days: Days) -> None:
    """The decisions of one cycle do not reach the log."""
    days.now += days._gap
    decisions = days.run_cycle() if days.scheduler.has_work() else []
    for lost in decisions:
        days.scheduler.forget(lost.namespace, lost.name, lost.revision)


def test_days_refuse_workloads_because_of_limits() -> None:
    refused = 0
    for seed in range(6):
        rng = Random(seed)
        days = Days(Config())
        a_queue(days, rng, "a")
        a_queue(days, rng, "b")
        for _ in range(12):
            days.job(rng)
            days.settle(300)
        refused += days.refused
    assert refused >= 5
