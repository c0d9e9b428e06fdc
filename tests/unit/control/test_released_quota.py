"""Every move that frees quota publishes how long which quota was held, and no other move does."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from admittance.control.batch import fold
from admittance.control.commit import LogMessage
from admittance.events import facts
from admittance.events.base import Fact
from admittance.events.codec import decode
from admittance.events.facts import QuotaReleased
from admittance.events.placement import PlacementPart
from admittance.workload.change import with_status
from admittance.workload.quota_release import with_release
from support.builders import NOON, a_manifest, an_admission
from unit.control.test_fold import CHECKED, KEY, ME, QUEUE, Bench

ASSIGN = "assign"


class TimedBench(Bench):
    """A bench on which each fact comes ten seconds after the one before."""

    def __init__(self) -> None:
        super().__init__()
        self.now = NOON

    def play(self, *steps: Any) -> list[QuotaReleased]:
        """The facts about released quota that follow the steps."""
        reports = []
        for step in steps:
            self.now += timedelta(seconds=10)
            reports += self._perform(
                self.logged(self.assigned() if step is ASSIGN else self._at(step))
            )
        return reports

    def _at(self, step: Any) -> Fact:
        """The step as a fact; ``revision`` -1 stands for the revision that a runner names."""
        kind, fields = step
        known = self.controller.workloads.get(KEY).workload
        if fields.get("revision") == -1 and known is not None:
            status = known.status
            obeyed = kind is facts.Stopped and status.evicted_revision
            fields = {**fields, "revision": obeyed or status.admitted_revision}
        if kind is facts.Preempted:
            fields = {**fields, "revision": self.controller.workloads.get(KEY).revision}
            fields |= {"seen": self.revision, "domain": "queue-cq"}
        made: Fact = kind(**ME, **fields)
        return made

    def _perform(self, *batch: LogMessage) -> list[QuotaReleased]:
        released: list[QuotaReleased] = []
        rest = list(batch)
        while rest:
            commit = fold(self.controller, rest, self.now)
            messages = list(commit.notes)
            for put in commit.puts:
                self.revision += 1
                messages += self.controller.committed(put, self.revision, self.now)
            for message in messages:
                fact = decode(message.subject, message.data)
                released += [fact] if isinstance(fact, QuotaReleased) else []
            rest = commit.rest
        return released


FINISHED = (facts.Finished, {"revision": -1})
FAILED = (facts.Finished, {"revision": -1, "succeeded": False, "exit_code": 3})
STOPPED = (facts.Stopped, {"revision": -1})
LOST = (facts.Stopped, {"revision": -1, "reason": "NodeFailures"})
PREEMPTED = (facts.Preempted, {"reason": "InClusterQueue"})
DEACTIVATED = (facts.Deactivated, {})
DELETED = (facts.Deleted, {})
BY_USER = (facts.Finished, {})


@pytest.mark.parametrize(
    ("checked", "steps", "held", "reason"),
    [
        pytest.param(False, [ASSIGN, FINISHED], 10, "Succeeded", id="the job finished"),
        pytest.param(False, [ASSIGN, FAILED], 10, "Failed", id="the job failed"),
        pytest.param(False, [ASSIGN, BY_USER], 10, "Succeeded", id="a user finished it"),
        pytest.param(False, [ASSIGN, DEACTIVATED, STOPPED], 20, "Deactivated", id="it was stopped"),
        pytest.param(False, [ASSIGN, PREEMPTED, STOPPED], 20, "Preempted", id="it was preempted"),
        pytest.param(False, [ASSIGN, LOST], 10, "NodeFailures", id="its runner was lost"),
        pytest.param(False, [ASSIGN, DELETED, STOPPED], 20, "Deleted", id="it was deleted"),
        pytest.param(
            False, [ASSIGN, DELETED, FINISHED], 20, "Deleted", id="it finished while it was deleted"
        ),
        pytest.param(True, [ASSIGN, PREEMPTED], 10, "Preempted", id="a reservation was preempted"),
        pytest.param(True, [ASSIGN, DELETED], 10, "Deleted", id="a reservation was deleted"),
        pytest.param(True, [ASSIGN, BY_USER], 10, "Succeeded", id="a reservation was finished"),
        pytest.param(False, [ASSIGN, PREEMPTED], None, "", id="its job still stops"),
        pytest.param(False, [ASSIGN], None, "", id="it runs"),
        pytest.param(False, [DELETED], None, "", id="it had no quota"),
    ],
)
def test_quota_is_reported_once_when_it_is_free(
    checked: bool, steps: list[Any], held: int | None, reason: str
) -> None:
    bench = TimedBench()
    if checked:
        bench.apply({**QUEUE, "spec": {**QUEUE["spec"], **CHECKED}})
    bench.perform(bench.submitted())
    reports = bench.play(*steps, DELETED)
    reported = [
        (int((report.until - report.since).total_seconds()), report.reason) for report in reports
    ]
    assert reported == ([] if held is None else [(held, reason)])


def test_a_report_says_what_was_held_by_which_workload() -> None:
    bench = TimedBench()
    manifest = a_manifest()
    manifest["metadata"]["labels"] = {"team": "a"}
    [pod_set] = manifest["spec"]["podSets"]
    [container] = pod_set["template"]["spec"]["containers"]
    container["command"] = ["python", "src/train.py", "--epochs", "3"]
    raw = msgspec.Raw(msgspec.json.encode(manifest))
    bench.perform(bench.logged(facts.Submitted(**ME, workload=raw)))
    bench.now += timedelta(seconds=5)
    [report] = bench.play(ASSIGN, FAILED)
    assert report == QuotaReleased(
        **ME,
        uid=report.uid,
        time=bench.now,
        revision=bench.revision,
        reason="Failed",
        since=NOON + timedelta(seconds=15),
        until=bench.now,
        admission=an_admission(),
        admission_revision=bench.revision - 1,
        ended=True,
        exit_code=3,
        queue="lq",
        labels={"team": "a"},
        waited_seconds=15,
        submitted_at=NOON,
        script="train.py",
        admitted_at=NOON + timedelta(seconds=15),
        fact=bench.sequence,
    )


@pytest.mark.parametrize("last", [LOST, DELETED])
def test_a_report_of_a_workload_that_did_not_finish_has_no_time_of_admission(last: Any) -> None:
    bench = TimedBench()
    bench.perform(bench.submitted())
    [report] = bench.play(ASSIGN, last, STOPPED)
    assert report.admitted_at is None


@pytest.mark.parametrize(
    ("last", "preemptor"),
    [
        pytest.param(STOPPED, "ns/big", id="it was stopped for the preemptor"),
        pytest.param(FINISHED, "", id="it finished before it was stopped"),
        pytest.param(LOST, "ns/big", id="its runner was lost meanwhile"),
    ],
)
def test_a_report_names_the_preemptor_of_quota_that_was_taken(last: Any, preemptor: str) -> None:
    bench = TimedBench()
    bench.perform(bench.submitted())
    taken = (facts.Preempted, {"reason": "InClusterQueue", "by": "ns/big"})
    [report] = bench.play(ASSIGN, taken, last)
    assert report.preempted_by == preemptor


def test_a_second_admission_has_no_preemptor_of_the_first() -> None:
    bench = TimedBench()
    bench.perform(bench.submitted())
    taken = (facts.Preempted, {"reason": "InClusterQueue", "by": "ns/big"})
    reports = bench.play(ASSIGN, taken, STOPPED, ASSIGN, LOST)
    assert [report.preempted_by for report in reports] == ["ns/big", ""]


def test_a_report_names_each_machine_of_the_job_once() -> None:
    bench = TimedBench()
    bench.perform(bench.submitted())
    bench.play(ASSIGN)
    running = bench.controller.workloads.get(KEY).workload
    assert running is not None
    parts = [
        PlacementPart(runner=name, id="x", pod_set="main", first=at, count=1)
        for at, name in enumerate(("a", "b", "a"))
    ]
    placed = with_status(running, placement=tuple(parts))
    [entry] = with_release((), placed, None, NOON)
    assert entry.released is not None
    assert entry.released.machines == ("a", "b")


def test_a_second_admission_is_reported_with_its_own_wait() -> None:
    bench = TimedBench()
    bench.perform(bench.submitted())
    reports = bench.play(ASSIGN, LOST, ASSIGN, FINISHED)
    assert [(report.ended, report.waited_seconds) for report in reports] == [
        (False, 10),
        (True, 10),
    ]
    assert reports[0].since != reports[1].since
