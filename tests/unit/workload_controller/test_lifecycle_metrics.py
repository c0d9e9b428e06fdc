"""The workload-controller counts the steps of workloads, and the times between them."""

from __future__ import annotations

from typing import Any

from admittance.events import facts
from admittance.events.base import Fact
from admittance.events.shapes import Grounds
from admittance.runtime.telemetry.metrics import Counter, Histogram
from admittance.workload_controller.workload_metrics import WorkloadMetrics, active_checks
from support.builders import Around
from support.cores.families.family_controller import FamilyController
from support.cores.tracked_workload import ME, TrackedWorkload

QUEUE = ("cq", "")
LOCAL = ("lq", "ns", "")


class CountedWorkload(TrackedWorkload):
    """A life of which each write is counted."""

    def __init__(self, around: Around | None = None, **more: Any) -> None:
        self.counts_of = WorkloadMetrics()
        self.steps = self.counts_of.lifecycle
        self._controller = FamilyController(("a",), policy=None).controller
        super().__init__(around, queueName="lq", **more)

    def happens(self, fact: Fact) -> TrackedWorkload:
        before = self.workload
        super().happens(fact)
        if self.workload is not None and self.workload is not before:
            self.counts_of.written(self._controller, before, self.workload)
        return self


def total(metric: Histogram, labels: tuple[str, ...]) -> tuple[float, float]:
    """How many durations were counted, and their sum."""
    kept = metric.values.get(labels)
    return (sum(kept[:-1]), kept[-1]) if kept is not None else (0, 0)


def count(metric: Counter, labels: tuple[str, ...]) -> float:
    return metric.values.get(labels, 0)


def test_waits_are_counted_from_the_submission_to_the_start() -> None:
    tracked = CountedWorkload(Around(checks=("budget",)))
    tracked.later(10).assigned()
    tracked.later(5).verdict("budget", "Ready").confirmed()
    tracked.later(7).ready()
    steps = tracked.steps
    assert count(steps.reserved.clusters, QUEUE) == count(steps.reserved.locals, LOCAL) == 1
    assert total(steps.reserved_wait.clusters, QUEUE) == (1, 10)
    assert total(steps.admission_wait.clusters, QUEUE) == (1, 15)
    assert total(steps.admission_wait.locals, LOCAL) == (1, 15)
    assert total(steps.ready_wait.clusters, QUEUE) == (1, 22)
    assert total(steps.admitted_until_ready.clusters, QUEUE) == (1, 7)


def test_only_the_first_start_counts_after_an_admission() -> None:
    tracked = CountedWorkload().admitted().ready()
    tracked.later(60).ready(ready=False).later(60).ready()
    assert isinstance(tracked, CountedWorkload)
    assert total(tracked.steps.ready_wait.clusters, QUEUE)[0] == 1


def test_a_second_wait_begins_when_the_workload_is_requeued() -> None:
    tracked = CountedWorkload()
    tracked.later(10).admitted().later(100).preempted().later(3).stopped().later(20).admitted()
    steps = tracked.steps
    assert total(steps.reserved_wait.clusters, QUEUE) == (2, 10 + 20)
    assert total(steps.released, ("cq", "Preempted")) == (1, 3)


def test_execution_time_sums_all_admissions() -> None:
    tracked = CountedWorkload()
    tracked.admitted().later(5).preempted().stopped().later(60).admitted().later(7)
    tracked.happens(facts.Finished(**ME, revision=tracked.status.admitted_revision, succeeded=True))
    steps = tracked.steps
    assert count(steps.finished.clusters, QUEUE) == count(steps.finished.locals, LOCAL) == 1
    assert total(steps.execution.clusters, QUEUE) == (1, 12)


def test_a_workload_that_never_ran_has_no_execution_time() -> None:
    tracked = CountedWorkload()
    tracked.happens(facts.Finished(**ME, revision=0, succeeded=True))
    assert count(tracked.steps.finished.clusters, QUEUE) == 1
    assert tracked.steps.execution.clusters.values == {}


def test_an_eviction_counts_once_for_its_workload() -> None:
    tracked = CountedWorkload()
    for _ in range(3):
        tracked.admitted().preempted().stopped()
    labels = ("cq", "Preempted", "", "")
    assert count(tracked.counts_of.evicted.clusters, labels) == 3
    assert count(tracked.counts_of.evicted.locals, ("lq", "ns", "Preempted", "", "")) == 3
    assert count(tracked.counts_of.evicted_once, labels) == 1


def test_preemptions_count_for_the_queue_that_preempts() -> None:
    tracked = CountedWorkload().admitted()
    assert isinstance(tracked, CountedWorkload)
    grounds = Grounds(cluster_queue="cq", by_cluster_queue="other")
    reason = "InCohortReclamation"
    decided = {**ME, "revision": 0, "seen": 0, "domain": "queue-cq", "reason": reason}
    tracked.happens(facts.Preempted(**decided, message="m", grounds=grounds))
    tracked.later(1).stopped()
    assert tracked.steps.preempted.values == {("other", reason): 1}


def test_the_time_from_ready_pods_to_the_eviction_is_counted() -> None:
    tracked = CountedWorkload()
    tracked.admitted().preempted().stopped()
    assert tracked.steps.ready_to_evicted.values == {}  # the pods were never ready
    tracked.admitted().later(5).ready().later(40).preempted().later(3).stopped()
    assert total(tracked.steps.ready_to_evicted, ("cq", "Preempted", "")) == (1, 40)


def test_the_wait_for_a_check_is_counted_from_the_reservation() -> None:
    tracked = CountedWorkload(Around(checks=("budget", "license")))
    tracked.later(100).assigned()
    tracked.later(5).verdict("license", "Ready").verdict("license", "Ready")
    tracked.later(7).verdict("budget", "Ready").confirmed()
    waits = tracked.counts_of.check_wait
    assert total(waits, ("license", "", "cq")) == (1, 5)
    assert total(waits, ("budget", "", "cq")) == (1, 12)


def test_an_admission_counts_for_each_cohort_above_its_queue() -> None:
    system = FamilyController(("a",), policy=None)
    system.put("Cohort", "team", {"parentName": "company"})
    system.edit_queue(cohortName="team")
    system.tally = WorkloadMetrics()
    system.submit("w")
    decided = system.decided("w") | {"domain": "cohort-company"}
    system.happens(facts.Assigned(**decided, admission=system.admission("a")))
    assert system.outcome == "applied", system.reason
    assert system.tally.cohort_admitted.values == {("team", ""): 1, ("company", ""): 1}


def test_the_gauge_of_a_check_vanishes_with_the_check() -> None:
    system = FamilyController(("a",), checks={"a": ("budget",)}, policy=None)
    assert active_checks(system.controller) == {("budget", "ctl-budget"): 1}
    key = next(key for key, _ in system.controller.objects if key.startswith("admissioncheck."))
    system.controller.keep_object(key, None, b"", system.revision + 1)
    assert active_checks(system.controller) == {}


def test_counters_of_rare_events_begin_with_zero() -> None:
    tracked = CountedWorkload(Around(checks=("budget",)))
    tracked.assigned().verdict("budget", "Ready").confirmed()
    counted = tracked.counts_of
    for counter in (counted.retries, counted.rejections, counted.clamped):
        assert counter.values == {("budget", "", "cq"): 0}
    assert counted.forced.values == {("cq",): 0}
    assert counted.stale.values[("budget", "BadDelay")] == 0
    reasons = ("Undecodable", "Invalid", "LeadsToNothing")
    assert counted.dead.values == dict.fromkeys(((reason,) for reason in reasons), 0)
