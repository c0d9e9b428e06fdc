"""A batch of facts: folding, guards, dead letters, and reading facts again."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from admittance.api.reading.manifest import accept
from admittance.control.batch import fold
from admittance.control.commit import Commit, Echo, LogMessage, Message
from admittance.control.controller import Controller
from admittance.control.manifests.objects import key_of
from admittance.control.manifests.planned_writes import planned_writes
from admittance.events import facts
from admittance.events.base import Fact
from admittance.events.codec import encode
from admittance.events.shapes import PodSetUpdate
from admittance.events.subjects import RESTORED, subject_of
from admittance.events.system import Barrier, ObjectApplied
from admittance.replay.log_messages import log_message
from support.builders import NOON, a_manifest, an_admission

ME: dict[str, Any] = {"namespace": "ns", "name": "w"}
KEY = "workload.ns.w"
FENCE = {
    "Nats-Expected-Last-Subject-Sequence": "1",
    "Nats-Expected-Last-Subject-Sequence-Subject": "admit.lease.epoch.queue-cq",
}
FLAVOR = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "ResourceFlavor",
    "metadata": {"name": "default"},
    "spec": {"nodeLabels": {"pool": "a"}},
}
QUEUE: dict[str, Any] = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "ClusterQueue",
    "metadata": {"name": "cq"},
    "spec": {
        "namespaceSelector": {},
        "resourceGroups": [
            {
                "coveredResources": ["cpu"],
                "flavors": [{"name": "default", "resources": [{"name": "cpu", "nominalQuota": 9}]}],
            }
        ],
    },
}
CHECK = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "AdmissionCheck",
    "metadata": {"name": "c"},
    "spec": {"controllerName": "ctl"},
}
CHECKED = {"admissionChecksStrategy": {"admissionChecks": [{"name": "c"}]}}
LOCAL = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "LocalQueue",
    "metadata": {"name": "lq", "namespace": "ns"},
    "spec": {"clusterQueue": "cq"},
}


class Bench:
    """A controller, and a log that numbers its messages."""

    def __init__(self) -> None:
        self.controller = Controller(b"secret")
        self.sequence = 0
        self.revision = 0
        for manifest in (FLAVOR, QUEUE, LOCAL):
            self.apply(manifest)

    def apply(self, manifest: dict[str, Any]) -> None:
        self.revision += 1
        read = accept(manifest).manifest
        value = msgspec.json.encode(manifest)
        self.controller.keep_object(key_of(read), read, value, self.revision)

    def logged(self, fact: Fact, *, fenced: bool = True) -> LogMessage:
        decided = isinstance(fact, facts.Decision) and fenced
        return self.raw(subject_of(fact), encode(fact), FENCE if decided else {})

    def raw(self, subject: str, data: bytes, headers: dict[str, str] | None = None) -> LogMessage:
        self.sequence += 1
        return log_message(self.sequence, subject, data, headers or {}, NOON)

    def submitted(self, **spec: Any) -> LogMessage:
        manifest = msgspec.Raw(msgspec.json.encode(a_manifest(**spec)))
        return self.logged(facts.Submitted(**ME, workload=manifest))

    def assigned(self, **fields: Any) -> facts.Assigned:
        decided: dict[str, Any] = {
            "revision": self.controller.workloads.get(KEY).revision,
            "seen": self.revision,
            "domain": "queue-cq",
            "admission": an_admission(),
        }
        return facts.Assigned(**ME, **(decided | fields))

    def confirmed(self, key: str = KEY) -> facts.Confirmed:
        known = self.controller.workloads.get(key)
        _, namespace, name = key.split(".")
        return facts.Confirmed(
            namespace=namespace,
            name=name,
            revision=known.revision,
            seen=self.revision,
            domain="queue-cq",
        )

    def perform(self, *batch: LogMessage) -> list[Message]:
        said: list[Message] = []
        rest = list(batch)
        while rest:
            commit = fold(self.controller, rest, NOON)
            for put in commit.puts:
                assert put.expected == self.controller.workloads.get(put.key).revision
                self.revision += 1
                said += self.controller.committed(put, self.revision, NOON)
            said += commit.notes
            rest = commit.rest
        return said

    def fold(self, *batch: LogMessage) -> Commit:
        return fold(self.controller, list(batch), NOON)


def kinds(messages: list[Message]) -> list[str]:
    return [message.subject.split(".")[2] for message in messages]


def test_several_facts_about_one_workload_fold_into_one_put() -> None:
    bench = Bench()
    priority = facts.Reprioritized(**ME, priority=7)
    commit = bench.fold(bench.submitted(), bench.logged(priority))
    assert [(put.key, put.expected, put.fact) for put in commit.puts] == [(KEY, 0, 2)]
    assert commit.rest == []


def test_a_start_is_published_before_the_workload_moves_on() -> None:
    bench = Bench()
    bench.perform(bench.submitted())
    first = bench.logged(bench.assigned())
    second = bench.logged(facts.Deactivated(**ME))
    commit = bench.fold(first, second)
    assert commit.rest == [second]
    assert commit.through == first.sequence
    assert kinds(bench.perform(first, second)) == ["quota_reserved", "admitted", "evicted"]


def test_a_decision_that_raises_ends_the_assumption_of_the_scheduler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object) -> None:
        raise AssertionError("a bug")

    bench = Bench()
    bench.perform(bench.submitted())
    monkeypatch.setattr("admittance.control.fold.single_transition", broken)
    commit = fold(bench.controller, [bench.logged(bench.assigned())], NOON, [])
    assert [put.fact for put in commit.puts] == [bench.sequence]
    assert [letter.reason for letter in commit.dead] == [
        "it cannot be applied: AssertionError: a bug"
    ]


def test_facts_read_again_after_a_crash_change_nothing() -> None:
    bench = Bench()
    submitted = bench.submitted()
    bench.perform(submitted)
    assigned = bench.logged(bench.assigned())
    bench.perform(assigned)
    assert bench.fold(submitted, assigned).puts == []


def test_a_new_leader_publishes_the_outbox_again_under_the_same_ids() -> None:
    bench = Bench()
    bench.perform(bench.submitted())
    commit = bench.fold(bench.logged(bench.assigned()))
    put = commit.puts[0]
    said = bench.controller.committed(put, 99, NOON)
    successor = Controller(b"secret")
    successor.load(put.key, put.value, 99, {})
    assert successor.settle_load(floor=1) == [KEY]
    again = successor.outbox(KEY, NOON)
    assert [m.id for m in again] == [m.id for m in said]
    assert kinds(again) == ["quota_reserved", "admitted"]


def test_outbox_entries_below_the_floor_are_not_published_again() -> None:
    bench = Bench()
    bench.perform(bench.submitted())
    put = bench.fold(bench.logged(bench.assigned())).puts[0]
    successor = Controller(b"secret")
    successor.load(put.key, put.value, 99, {})
    assert successor.settle_load(floor=2) == []


def test_the_admission_carries_what_a_runner_needs() -> None:
    bench = Bench()
    bench.perform(bench.submitted(count=1))
    said = bench.perform(bench.logged(bench.assigned()))
    admitted = msgspec.json.decode(said[1].data, type=facts.Admitted)
    assert admitted.revision == bench.revision
    assert admitted.cluster_queue == "cq"
    assert admitted.pod_sets[0].node_selector == {"pool": "a"}
    assert b'"command":["true"]' in bytes(admitted.pod_sets[0].template)


def test_admission_names_the_submitter_for_the_runner() -> None:
    bench = Bench()
    submitted = bench.submitted()
    bench.perform(submitted._replace(subject="admit.user.ada.submitted.ns.w"))
    assert admitted_by(bench, bench.logged(bench.assigned())).submitted_by == "ada"


def test_a_decision_from_an_old_revision_is_dropped() -> None:
    bench = Bench()
    bench.perform(bench.submitted())
    stale = bench.assigned()
    bench.perform(bench.logged(facts.Reprioritized(**ME, priority=3)))
    commit = bench.fold(bench.logged(stale))
    assert commit.puts == []
    assert [reply.reason for reply in commit.outcomes.values()] == ["StaleRevision"]


def test_a_decision_about_a_finished_workload_is_dropped_without_reading_it() -> None:
    bench = Bench()
    bench.perform(bench.submitted())
    stale = bench.logged(bench.assigned())
    bench.perform(bench.logged(facts.Finished(**ME, reason="Succeeded")))
    bench.controller.outbox_published(KEY)
    assert bench.controller.workloads.must_load(KEY)
    assert bench.controller.missing([stale]) == []
    commit = bench.fold(stale)
    assert commit.puts == []
    assert [reply.message for reply in commit.outcomes.values()] == ["it has finished meanwhile"]


def test_a_decision_made_before_a_queue_changed_is_dropped() -> None:
    bench = Bench()
    bench.perform(bench.submitted())
    before = bench.assigned()
    bench.apply(QUEUE | {"spec": QUEUE["spec"] | {"stopPolicy": "Hold"}})
    commit = bench.fold(bench.logged(before))
    assert [reply.reason for reply in commit.outcomes.values()] == ["OutOfDate"]
    written = commit.puts[0].workload
    assert written is not None
    assert written.status.admission is None


def test_a_new_leader_refuses_decisions_older_than_its_manifests() -> None:
    """A queue may have left the tree since; the bucket does not contain the former tree."""
    bench = Bench()
    bench.perform(bench.submitted())
    before = bench.assigned()
    elsewhere = QUEUE | {"metadata": {"name": "elsewhere"}}
    bench.controller.load("clusterqueue.elsewhere", msgspec.json.encode(elsewhere), 90, {})
    bench.controller.settle_load(floor=0)
    commit = bench.fold(bench.logged(before))
    assert [reply.reason for reply in commit.outcomes.values()] == ["OutOfDate"]


def test_a_decision_from_before_a_restore_is_dropped() -> None:
    """The scheduler may have counted on facts that no longer count after the restore."""
    bench = Bench()
    bench.perform(bench.submitted())
    before = bench.assigned()
    bench.controller.load(RESTORED, b"{}", 90, {})
    bench.controller.settle_load(floor=0)
    commit = bench.fold(bench.logged(before))
    assert [reply.reason for reply in commit.outcomes.values()] == ["OutOfDate"]


def test_a_decision_without_the_fence_of_its_domain_is_dropped() -> None:
    bench = Bench()
    bench.perform(bench.submitted())
    commit = bench.fold(bench.logged(bench.assigned(), fenced=False))
    assert commit.puts == []
    assert [reply.reason for reply in commit.outcomes.values()] == ["NoFence"]


def test_a_decision_for_a_domain_that_the_queue_left_is_dropped() -> None:
    bench = Bench()
    bench.perform(bench.submitted())
    before = bench.assigned()
    bench.apply(QUEUE | {"spec": QUEUE["spec"] | {"cohortName": "team"}})
    commit = bench.fold(bench.logged(before))
    assert [reply.reason for reply in commit.outcomes.values()] == ["OtherDomain"]


def test_a_decision_refused_by_the_phase_still_moves_the_revision() -> None:
    """Its workload is held by the scheduler's assumption until the revision moves."""
    bench = Bench()
    bench.perform(bench.submitted())
    bench.perform(bench.logged(facts.Deactivated(**ME)))
    commit = bench.fold(bench.logged(bench.assigned()))
    assert len(commit.puts) == 1
    assert [reply.outcome for reply in commit.outcomes.values()] == ["ignored"]


def test_an_invalid_message_is_a_dead_letter_and_the_next_one_counts() -> None:
    bench = Bench()
    bad = bench.raw("admit.workload.deactivated.ns.w", b"\xff{")
    other = bench.raw("admit.workload.deactivated.ns.w", b'{"namespace":"x","name":"w"}')
    commit = bench.fold(bad, other, bench.submitted())
    assert [dead.logged for dead in commit.dead] == [bad, other]
    assert len(commit.puts) == 1


def test_an_invalid_submission_is_a_dead_letter_and_is_answered() -> None:
    bench = Bench()
    commit = bench.fold(bench.submitted(requests={"cpu": "1.5.2Gi"}))
    assert len(commit.dead) == 1
    assert kinds(commit.notes) == ["rejected"]
    assert commit.puts == []


@pytest.mark.parametrize(
    ("annotation", "problem"),
    [
        pytest.param('{"timeoutSeconds": 7200}', None, id="the longest"),
        pytest.param(
            '{"timeoutSeconds": 7201}', "timeoutSeconds must be at most 7200, not 7201", id="longer"
        ),
        pytest.param(
            '{"timeoutSeconds": 1, "recoveryTimeoutSeconds": 7201}',
            "recoveryTimeoutSeconds must be at most 7200, not 7201",
            id="a longer recovery",
        ),
        pytest.param('{"timeoutSeconds": 0}', "Expected `int` >= 1", id="zero"),
        pytest.param('{"timeoutSeconds": 1.5}', "Expected `int`", id="a fraction"),
        pytest.param('{"recoveryTimeoutSeconds": 5}', "missing required field", id="recovery only"),
        pytest.param('{"timeoutSeconds": 5, "x": 1}', "unknown field `x`", id="an unknown field"),
        pytest.param("5m", "must be a JSON text", id="no JSON"),
    ],
)
def test_timeouts_of_a_workload_for_its_pods_are_checked(
    annotation: str, problem: str | None
) -> None:
    bench = Bench()
    notes = {"kueue.x-k8s.io/wait-for-pods-ready": annotation}
    manifest = a_manifest()
    manifest["metadata"]["annotations"] = notes
    workload = msgspec.Raw(msgspec.json.encode(manifest))
    commit = bench.fold(bench.logged(facts.Submitted(**ME, workload=workload)))
    assert kinds(commit.notes) == ([] if problem is None else ["rejected"])
    if problem is not None:
        [note] = commit.notes
        assert problem in str(note)


def test_a_fact_about_an_unknown_workload_changes_nothing() -> None:
    bench = Bench()
    commit = bench.fold(bench.logged(facts.Deactivated(**ME)))
    assert commit.puts == []
    assert [reply.reason for reply in commit.outcomes.values()] == ["NoSuchWorkload"]


def test_a_deletion_is_remembered_so_that_nothing_revives() -> None:
    bench = Bench()
    submitted = bench.submitted()
    deleted = bench.logged(facts.Deleted(**ME))
    bench.perform(submitted)
    put = bench.fold(deleted).puts[0]
    assert put.value is None
    successor = Controller(b"secret")
    successor.load(put.key, None, 50, {"Admit-Fact": str(put.fact)})
    assert fold(successor, [submitted, deleted], NOON).puts == []


def test_a_barrier_is_echoed_after_earlier_messages() -> None:
    bench = Bench()
    before = bench.submitted()
    assert bench.fold(before, a_barrier(bench)).echoes == [Echo("queue-cq", 1)]


def a_barrier(
    bench: Bench, domain: str = "queue-cq", epoch: int = 1, *, fence: bool = True, of: int = 1
) -> LogMessage:
    data = msgspec.json.encode(Barrier(domain=domain, owner="me", epoch=epoch))
    headers = FENCE | {"Nats-Expected-Last-Subject-Sequence": str(of)} if fence else {}
    return bench.raw("admit.lease.barrier.queue-cq", data, headers)


@pytest.mark.parametrize(
    "forged",
    [
        pytest.param({"fence": False}, id="without a fence"),
        pytest.param({"domain": "queue-other"}, id="for another domain than its subject's"),
        pytest.param({"domain": ""}, id="for no domain"),
        pytest.param({"epoch": 2}, id="of another epoch than its fence's"),
        pytest.param(
            {"epoch": 2**64 + 1, "of": 2**64 + 1},
            id="of an epoch that the server reads as a smaller one",
        ),
    ],
)
def test_a_barrier_without_a_fence_is_a_dead_letter(forged: dict[str, Any]) -> None:
    """Its echo would let the scheduler decide for the domain before its state is complete."""
    bench = Bench()
    bench.perform(bench.submitted())
    commit = bench.fold(a_barrier(bench, **forged))
    assert (commit.echoes, commit.rest) == ([], [])
    assert len(commit.dead) == 1


def admitted_by(bench: Bench, logged: LogMessage) -> facts.Admitted:
    (said,) = [message for message in bench.perform(logged) if ".admitted." in message.subject]
    return msgspec.json.decode(said.data, type=facts.Admitted)


def test_pod_set_updates_of_a_check_are_in_the_admitted_message() -> None:
    bench = Bench()
    bench.apply(CHECK)
    bench.apply(QUEUE | {"spec": QUEUE["spec"] | CHECKED})
    bench.perform(bench.submitted())
    bench.perform(bench.logged(bench.assigned()))
    update = PodSetUpdate(name="main", labels={"rack": "7"}, node_selector={"zone": "b"})
    verdict = facts.CheckReported(
        **ME, controller="ctl", check="c", cycle=0, state="Ready", pod_set_updates=(update,)
    )
    bench.perform(bench.logged(verdict))
    (pods,) = admitted_by(bench, bench.logged(bench.confirmed())).pod_sets
    assert pods.labels == {"rack": "7"}
    assert pods.node_selector == {"pool": "a", "zone": "b"}


@pytest.mark.parametrize(
    ("noted", "completions"),
    [
        pytest.param("3", 3, id="a number"),
        pytest.param("9" * 5000, 0, id="more digits than Python reads"),
        pytest.param("1" + "0" * 30, 0, id="more than 32 bits"),
        pytest.param("\u00b2", 0, id="a superscript"),
    ],
)
def test_completions_that_are_no_number_are_as_many_as_pods(noted: str, completions: int) -> None:
    bench = Bench()
    manifest = a_manifest()
    template = manifest["spec"]["podSets"][0]["template"]
    template["metadata"] = {"annotations": {"admittance.dev/completions": noted}}
    workload = msgspec.Raw(msgspec.json.encode(manifest))
    bench.perform(bench.logged(facts.Submitted(**ME, workload=workload)))
    (pods,) = admitted_by(bench, bench.logged(bench.assigned())).pod_sets
    assert (pods.count, pods.completions) == (1, completions)


def test_a_stopped_queue_sends_its_reserved_workloads_back() -> None:
    bench = Bench()
    bench.perform(bench.submitted())
    bench.perform(bench.logged(bench.assigned()))
    drained = QUEUE | {"spec": QUEUE["spec"] | {"stopPolicy": "HoldAndDrain"}}
    bench.apply(drained)
    applied = ObjectApplied(kind="ClusterQueue", name="cq", revision=bench.revision)
    logged = bench.raw("admit.object.applied.clusterqueue._.cq", msgspec.json.encode(applied))
    assert kinds(bench.perform(logged)) == ["evicted"]


@pytest.mark.parametrize(
    ("logged_at", "set_for", "outcome"),
    [
        (60, 60, ""),
        (59, 60, ""),
        (58, 60, "TooEarly"),
        (60, 59, "TooEarly"),
        (0, 10**8, "TooEarly"),
    ],
)
def test_a_due_timer_counts_from_the_time_it_was_set_for(
    logged_at: int, set_for: int, outcome: str
) -> None:
    """A timer that the log dates at its set time is not too early, even if the clock of this
    process is behind. The bus publishes a due timer; a timer from another publisher moves no
    clock."""
    bench = Bench()
    manifest = a_manifest(maximumExecutionTimeSeconds=60)
    workload = msgspec.Raw(msgspec.json.encode(manifest))
    bench.perform(bench.logged(facts.Submitted(**ME, workload=workload)))
    bench.perform(bench.logged(bench.assigned()))
    due = facts.TimerDue(**ME, kind="execution", at=NOON + timedelta(seconds=set_for))
    commit = bench.fold(bench.logged(due)._replace(time=NOON + timedelta(seconds=logged_at)))
    assert [reply.reason for reply in commit.outcomes.values()] == ([outcome] if outcome else [])
    assert bool(commit.puts) is (not outcome)


def test_a_timer_with_an_invalid_time_is_a_dead_letter() -> None:
    bench = Bench()
    data = b'{"namespace":"ns","name":"w","kind":"requeue","at":"soon"}'
    assert len(bench.fold(bench.raw("admit.timer.due.requeue.ns.w", data)).dead) == 1


def test_what_was_deleted_can_be_applied_again() -> None:
    bench = Bench()
    manifest = accept(LOCAL).manifest
    key = key_of(manifest)
    successor = Controller(b"secret")
    successor.load(key, None, 9, {})
    for controller in (bench.controller, successor):
        controller.keep_object(key, None, b"", 9)
        (planned,) = planned_writes(controller.objects, [manifest], now=NOON)
        assert (planned.expected, planned.result.outcome) == (9, "created")


def test_an_older_revision_does_not_restore_a_deleted_object() -> None:
    bench = Bench()
    key = key_of(accept(LOCAL).manifest)
    bench.controller.keep_object(key, None, b"", 9)
    bench.controller.load(key, msgspec.json.encode(LOCAL), 3, {})
    assert bench.controller.objects.get(key) is None


def test_what_came_and_went_in_one_batch_leaves_a_marker() -> None:
    # A predecessor that read only the submission, and is late, expects that nothing was written.
    bench = Bench()
    (put,) = bench.fold(bench.submitted(), bench.logged(facts.Deleted(**ME))).puts
    assert (put.expected, put.value, put.fact) == (0, None, 2)


def test_a_submission_named_like_a_workload_being_deleted_is_refused() -> None:
    """Otherwise it would be taken for a repetition of the first submission, and be deleted with
    it."""
    bench = Bench()
    bench.perform(bench.submitted())
    bench.perform(bench.logged(bench.assigned()))
    bench.perform(bench.logged(facts.Deleted(**ME)))
    commit = bench.fold(bench.submitted())
    assert [reply.reason for reply in commit.outcomes.values()] == ["BeingDeleted"]
    assert kinds(commit.notes) == ["rejected"]


SAID = {"Nats-Msg-Id": "one"}


@pytest.mark.parametrize(
    ("again", "expected"),
    [
        pytest.param({"headers": SAID}, [], id="said again under its message id"),
        pytest.param({"headers": {"Nats-Msg-Id": "two"}}, ["noted"], id="by another publisher"),
        pytest.param({}, ["noted"], id="without a message id"),
        pytest.param({"uid": "u1", "headers": {"Nats-Msg-Id": "x"}}, [], id="with its uid"),
        pytest.param({"uid": "u2", "headers": SAID}, ["rejected"], id="with another uid"),
        pytest.param({"cpu": "7", "headers": SAID}, ["rejected"], id="with another spec"),
    ],
)
def test_a_second_submission_under_a_taken_name_is_answered(
    again: dict[str, Any], expected: list[str]
) -> None:
    bench = Bench()

    def submit(cpu: str = "1", uid: str = "", headers: Any = None) -> LogMessage:
        manifest = a_manifest(requests={"cpu": cpu})
        raw = msgspec.Raw(msgspec.json.encode(manifest))
        fact = facts.Submitted(**ME, uid=uid, workload=raw)
        return bench.raw(subject_of(fact), encode(fact), headers)

    bench.perform(submit(uid="u1", headers=SAID))
    commit = bench.fold(submit(**again))
    assert kinds(commit.notes) == expected
    assert commit.puts == []
