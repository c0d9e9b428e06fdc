"""Each reservation that needs capacity has exactly one request."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from admittance.api.checks import (
    AdmissionCheck,
    AdmissionCheckSpec,
    NodeSelectorUpdate,
    ParametersReference,
    ProvisioningPodSetUpdates,
    ProvisioningRequestConfig,
    ProvisioningRequestConfigSpec,
    ProvisioningRetryStrategy,
)
from admittance.api.meta import Condition, ObjectMeta
from admittance.api.workload import CheckState
from admittance.events import provisioning as facts
from admittance.events.shapes import Admission, PodSetAssignment
from admittance.provisioning.core import ProvisioningCore
from admittance.provisioning.observed_state import CONTROLLER
from admittance.provisioning.records import ANNOTATION, NOTES_MAX, Record, State
from admittance.provisioning.steps import NOT_ACTIVE, NOT_NEEDED, RequestSlot, VerdictReport
from admittance.workload.stored import StoredWorkload, WorkloadStatus
from support.builders import NOON

GPU = "nvidia.com/gpu"


class Story:
    """The core with a bucket, a log and a workload beside it. ``said``: the facts to the provider,
    ``verdicts``: the verdicts to the workload, in order."""

    def __init__(self, *, limit: int = 1, patience: float | None = None, **config: Any) -> None:
        self.now: datetime = NOON
        self.patience = timedelta(seconds=patience) if patience is not None else None
        self.bucket: dict[str, tuple[Record, int]] = {}
        self.markers: dict[str, int] = {}
        self.revision = 0
        self.said: list[facts.ProvisioningFact] = []
        self.verdicts: list[VerdictReport] = []
        self.limit = limit
        self.work: StoredWorkload | None = None
        self.settings = config
        self.core = ProvisioningCore(self.patience)
        self.configure(**config)
        parameters = ParametersReference(
            api_group="kueue.x-k8s.io", kind="ProvisioningRequestConfig", name="config"
        )
        self.check = AdmissionCheck(
            metadata=ObjectMeta(name="capacity"),
            spec=AdmissionCheckSpec(controller_name=CONTROLLER, parameters=parameters),
        )
        self.core.observed.check("capacity", self.check)

    def configure(self, **config: Any) -> None:
        config.setdefault("provisioning_class_name", "class")
        spec = ProvisioningRequestConfigSpec(
            retry_strategy=ProvisioningRetryStrategy(
                backoff_limit_count=self.limit, backoff_base_seconds=60, backoff_max_seconds=1800
            ),
            **config,
        )
        self.config = ProvisioningRequestConfig(metadata=ObjectMeta(name="config"), spec=spec)
        self.core.observed.config("config", self.config)

    # The workload. --------------------------------------------------------------------------

    def reserved(
        self, cycle: int = 1, retries: int = 0, state: str = "Pending", **more: Any
    ) -> None:
        containers = [{"name": "c", "resources": {"requests": {GPU: "1"}}}]
        spec = {"podSets": [{"count": 2, "template": {"spec": {"containers": containers}}}]}
        place = PodSetAssignment(name="main", flavors={GPU: "spot"}, count=more.pop("count", 2))
        conditions = tuple(
            Condition(type=kind, status="True", reason=kind)
            for kind in ("QuotaReserved", *more.pop("conditions", ()))
        )
        row = CheckState(name="capacity", state=state, retry_count=retries, **more)
        self.becomes(
            StoredWorkload(
                api_version="kueue.x-k8s.io/v1beta2",
                kind="Workload",
                metadata=ObjectMeta(name="train", namespace="ns", uid="u"),
                spec=msgspec.Raw(msgspec.json.encode(spec)),
                status=WorkloadStatus(
                    conditions=conditions,
                    admission=Admission(cluster_queue="cq", pod_set_assignments=(place,)),
                    admission_checks=(row,),
                    admission_cycle=cycle,
                ),
            )
        )

    def becomes(self, work: StoredWorkload | None) -> None:
        self.work = work
        self.core.observed.workload(("ns", "train"), work)
        self.settle()

    def condition(self, kind: str, reason: str = "Because") -> None:
        assert self.work is not None
        status = self.work.status
        new = Condition(type=kind, status="True", reason=reason)
        self.becomes(
            replace(self.work, status=replace(status, conditions=(*status.conditions, new)))
        )

    # The rest. ------------------------------------------------------------------------------

    def settle(self) -> None:
        for _ in range(20):
            steps = list(self.core.steps(self.now))
            if not steps:
                return
            for step in steps:
                if step.write is not None:
                    record = self.bucket.get(step.write.name)
                    marker = self.markers.get(step.write.name, 0)
                    assert step.write.expected == (record[1] if record is not None else marker)
                    self.revision += 1
                    if step.write.record is None:
                        del self.bucket[step.write.name]
                        self.markers[step.write.name] = self.revision
                    else:
                        self.bucket[step.write.name] = (step.write.record, self.revision)
                if step.fact is not None:
                    self.said.append(step.fact)
                if step.report is not None:
                    self.verdicts.append(step.report)
                self.core.done(step, self.revision)
        raise AssertionError("it does not come to rest")

    def restart(self) -> None:
        self.core = ProvisioningCore(self.patience)
        self.core.observed.check("capacity", self.check)
        self.core.observed.config("config", self.config)
        for name, (record, revision) in self.bucket.items():
            self.core.observed.record(("ns", name), record, revision)
        self.becomes(self.work)

    def apply_status(self, kind: type[facts.ProvisioningStatus], **fields: Any) -> str:
        fields.setdefault("id", self.asked[-1].id)
        fields.setdefault("provisioning_class", "class")
        fact = kind(namespace="ns", name="train", **fields)
        step, why = self.core.apply_status(fact, self.now)
        if step is not None:
            assert step.write is not None
            assert step.write.record is not None
            self.revision += 1
            self.bucket[step.write.name] = (step.write.record, self.revision)
            self.core.done(step, self.revision)
        self.settle()
        return why

    @property
    def asked(self) -> list[facts.ProvisioningRequested]:
        return [fact for fact in self.said if isinstance(fact, facts.ProvisioningRequested)]

    @property
    def freed(self) -> list[str]:
        return [fact.id for fact in self.said if isinstance(fact, facts.ProvisioningCancelled)]

    @property
    def last(self) -> tuple[str, str, int | None]:
        answer = self.verdicts[-1].verdict
        return answer.state, answer.message, answer.after


def test_no_capacity_is_requested_before_the_reservation() -> None:
    """E1."""
    story = Story()
    story.reserved()
    assert story.work is not None
    waits = replace(story.work, status=replace(story.work.status, conditions=(), admission=None))
    story = Story()

    story.becomes(waits)

    assert not story.said
    assert not story.verdicts


def test_no_capacity_is_requested_without_a_managed_resource() -> None:
    """E1."""
    story = Story(managed_resources=("example.com/other",))

    story.reserved()

    assert not story.asked
    assert story.last == ("Ready", NOT_NEEDED, None)


def test_a_request_is_stored_before_it_is_sent_and_sent_once() -> None:
    story = Story(parameters={"zone": "a"})

    story.reserved()
    story.reserved()

    (asked,) = story.asked
    assert (asked.id, asked.attempt, asked.parameters) == ("u/capacity/1/1", 1, {"zone": "a"})
    assert [(pod_set.name, pod_set.count) for pod_set in asked.pod_sets] == [("main", 2)]
    assert list(story.bucket) == ["train-capacity-1"]


def test_only_open_requests_are_sent_again_after_a_restart() -> None:
    """E14: the provider acts once for each id."""
    story = Story()
    story.reserved()

    story.restart()

    assert [request.id for request in story.asked] == ["u/capacity/1/1"] * 2
    assert not story.freed
    story.apply_status(facts.Provisioned)
    story.restart()
    assert len(story.asked) == 2
    assert story.last[0] == "Ready"


def test_provisioned_capacity_makes_the_check_ready() -> None:
    """E2."""
    story = Story()
    story.reserved()

    story.apply_status(facts.Accepted, message="soon")
    story.apply_status(facts.Provisioned, message="here")

    assert [verdict.verdict.state for verdict in story.verdicts] == ["Pending", "Ready"]
    assert [update.name for update in story.verdicts[-1].verdict.updates] == ["main"]


def test_a_failure_reports_retry_and_cancels_the_request() -> None:
    """E3: the next attempt has the next number."""
    story = Story()
    story.reserved()

    story.apply_status(facts.ProvisioningFailed, message="none")
    assert story.last == ("Retry", "Retrying after failure: none", 60)
    story.reserved(state="Retry")
    assert story.freed == ["u/capacity/1/1"]
    assert not story.bucket

    story.reserved(cycle=2, retries=1)
    assert story.asked[-1].id == "u/capacity/2/2"
    assert list(story.bucket) == ["train-capacity-2"]
    story.apply_status(facts.Provisioned)
    assert story.last[0] == "Ready"


def test_a_verdict_is_reported_again_after_a_failed_report() -> None:
    """The row may already show the verdict of the failed report."""
    story = Story()
    story.reserved()
    story.apply_status(facts.Accepted, message="soon")
    ((name, (record, revision)),) = story.bucket.items()
    later = replace(record, status=replace(record.status, message="later"))
    story.core.observed.record(("ns", name), later, revision + 1)
    (step,) = story.core.steps(story.now)
    assert step.report is not None
    story.core.failed(step)  # It was published, but the outcome is unknown.

    story.core.observed.record(("ns", name), record, revision + 2)
    story.reserved(message="later")

    assert story.last == ("Pending", "soon", None)
    assert len(story.verdicts) == 2


def test_the_last_failure_rejects() -> None:
    """E4."""
    story = Story()
    story.reserved(cycle=2, retries=1)

    story.apply_status(facts.ProvisioningFailed, message="none")

    assert story.last == ("Rejected", "none", None)


def test_only_a_revocation_ends_the_booking_of_a_running_workload() -> None:
    """E6, E7."""
    story = Story()
    story.reserved()
    story.apply_status(facts.Provisioned)
    story.reserved(state="Ready", conditions=("Admitted",))
    count = len(story.verdicts)

    story.apply_status(facts.BookingExpired)
    assert len(story.verdicts) == count

    story.apply_status(facts.CapacityRevoked, message="sold")
    assert story.last == ("Rejected", "sold", None)


def test_changed_parameters_replace_an_open_request() -> None:
    """E8: the same attempt, another id."""
    story = Story(parameters={"zone": "a"})
    story.reserved()

    story.configure(parameters={"zone": "b"})
    story.settle()

    first, second = story.asked
    assert story.freed == [first.id]
    assert (first.attempt, second.attempt) == (1, 1)
    assert first.id != second.id
    assert second.parameters == {"zone": "b"}
    assert list(story.bucket) == ["train-capacity-1"]


def named(story: Story, config: str, **spec: Any) -> None:
    """Makes the check name another configuration."""
    more = ProvisioningRequestConfigSpec(**{"provisioning_class_name": "class", **spec})
    other = ProvisioningRequestConfig(metadata=ObjectMeta(name=config), spec=more)
    story.core.observed.config(config, other)
    reference = story.check.spec.parameters
    assert reference is not None
    changed = replace(story.check.spec, parameters=replace(reference, name=config))
    story.core.observed.check("capacity", replace(story.check, spec=changed))
    story.settle()


def test_another_config_of_the_check_replaces_an_open_request() -> None:
    """E8."""
    story = Story()
    story.reserved()

    named(story, "other", provisioning_class_name="rack")

    first, second = story.asked
    assert story.freed == [first.id]
    assert (second.attempt, second.provisioning_class) == (1, "rack")


def test_another_config_of_the_check_keeps_a_provisioned_request() -> None:
    """E8."""
    story = Story()
    story.reserved()
    story.apply_status(facts.Provisioned)
    story.reserved(state="Ready")

    named(story, "other", provisioning_class_name="rack")

    assert len(story.asked) == 1
    assert not story.freed


def test_a_missing_config_cancels_the_request_with_a_message() -> None:
    """E8: when the config is created again, capacity is requested again."""
    story = Story()
    story.reserved()

    story.core.observed.config("config", None)
    story.settle()
    assert story.freed == ["u/capacity/1/1"]
    assert story.last == ("Pending", NOT_ACTIVE, None)

    story.core.observed.config("config", story.config)
    story.settle()
    assert len(story.asked) == 2
    assert story.asked[0].id != story.asked[1].id


@pytest.mark.parametrize("shown", [True, False], ids=["shown", "reported and not shown yet"])
def test_a_ready_request_survives_the_deletion_of_its_config(shown: bool) -> None:
    story = Story()
    story.reserved()
    story.apply_status(facts.Provisioned)
    if shown:
        story.reserved(state="Ready")
    story.core.observed.config("config", None)
    story.settle()
    assert not story.freed
    assert [report.verdict.state for report in story.verdicts] == ["Ready"]


def test_requests_of_a_class_are_those_that_are_not_cancelled() -> None:
    story = Story()
    story.reserved()
    ((record, _),) = story.bucket.values()
    assert story.core.records_of_class("class") == [record]
    assert story.core.records_of_class("other") == []
    story.core.observed.config("config", None)
    list(story.core.steps(story.now))
    (kept,) = story.core.observed.records.values()
    cancelled = replace(kept.record, status=replace(kept.record.status, cancelled=True))
    story.core.observed.record(("ns", "train-capacity-1"), cancelled, story.revision + 1)
    assert story.core.records_of_class("class") == []


def test_a_provider_that_is_down_changes_no_request_and_no_row() -> None:
    """E14: the AdmissionCheck reports it, once for all waiting workloads."""
    story = Story()
    story.reserved()
    story.apply_status(facts.Accepted, message="soon")

    story.core.observed.down["class"] = "not heard of any more"
    story.core.observed.touch(["capacity"])
    story.settle()

    trouble = story.core.observed.trouble("capacity")
    assert trouble is not None
    assert trouble.reason == "ProviderDown"
    assert not story.freed
    assert story.last == ("Pending", "soon", None)
    assert len(story.verdicts) == 1


def test_a_record_deleted_by_hand_is_cancelled_when_the_check_is_ready() -> None:
    """E9: its booking is freed, because no record of it is left."""
    story = Story()
    story.reserved()
    story.apply_status(facts.Provisioned)
    story.reserved(state="Ready", conditions=("Admitted",))

    story.bucket.clear()
    story.core.observed.record(("ns", "train-capacity-1"), None, 99)
    story.settle()

    assert len(story.asked) == 1
    assert story.freed == ["u/capacity/1/1"]
    assert not story.bucket


def test_a_record_deleted_by_hand_is_written_again_while_it_is_needed() -> None:
    story = Story()
    story.reserved()
    story.apply_status(facts.Accepted, message="soon")

    story.bucket.clear()
    story.revision += 1
    story.markers["train-capacity-1"] = story.revision
    story.core.observed.record(("ns", "train-capacity-1"), None, story.revision)
    story.settle()

    (record, _) = story.bucket["train-capacity-1"]
    assert record.status.state is State.ACCEPTED
    assert len(story.asked) == 1
    assert not story.freed


def test_a_request_ends_with_its_reservation() -> None:
    """E10."""
    for end in ("Evicted", "Finished", "gone"):
        story = Story()
        story.reserved()
        story.apply_status(facts.Provisioned)

        if end == "gone":
            story.becomes(None)
        else:
            story.condition(end)

        assert story.freed == ["u/capacity/1/1"], end
        assert not story.bucket, end


def test_a_crash_between_two_steps_leaks_no_booking() -> None:
    """The next leader finds the cancelled record and sends the cancellation."""
    story = Story()
    story.reserved()
    record, revision = story.bucket["train-capacity-1"]
    ended = replace(record, status=replace(record.status, cancelled="Evicted"))
    story.bucket["train-capacity-1"] = (ended, revision)
    story.work = None

    story.restart()

    assert story.freed == ["u/capacity/1/1"]
    assert not story.bucket


def test_no_answer_until_the_deadline_is_a_failure() -> None:
    story = Story(patience=30)
    story.reserved()
    assert story.core.next_deadline() == NOON + timedelta(seconds=30)

    story.now += timedelta(seconds=30)
    story.core.mark_overdue(story.now)
    story.settle()

    assert story.bucket["train-capacity-1"][0].status.state is State.FAILED
    assert story.last == (
        "Retry",
        "Retrying after failure: not provisioned by 2026-01-01T12:00:30Z",
        60,
    )


def test_a_parameter_sets_the_deadline() -> None:
    story = Story(parameters={"ValidUntilSeconds": "7"})

    story.reserved()

    assert story.asked[0].deadline == NOON + timedelta(seconds=7)


def test_an_answer_to_an_unknown_request_is_ignored() -> None:
    story = Story()
    story.reserved()

    assert "no request x" in story.apply_status(facts.Provisioned, id="x")
    assert not story.verdicts


def test_a_request_unknown_to_its_provider_is_sent_again() -> None:
    story = Story()
    story.reserved()

    slot = RequestSlot("ns", "train", "capacity")
    story.core.send_again(slot, "u/capacity/1/2")
    assert slot not in story.core.observed.dirty, "a request that is not there"
    story.core.send_again(slot, "u/capacity/1/1")
    story.settle()

    assert [request.id for request in story.asked] == ["u/capacity/1/1"] * 2


def test_the_name_of_a_deleted_record_is_used_again() -> None:
    """After a preemption the same attempt has the same name, where a delete marker is."""
    story = Story()
    story.reserved()
    story.condition("Evicted", "Preempted")
    assert not story.bucket

    story.reserved(cycle=2)

    assert [request.id for request in story.asked] == ["u/capacity/1/1", "u/capacity/2/1"]
    assert list(story.bucket) == ["train-capacity-1"]


def notes(story: Story) -> list[str]:
    (kept,) = story.bucket.values()
    return [note.text for note in kept[0].status.notes]


def test_an_answer_that_does_not_count_is_noted_once() -> None:
    story = Story()
    story.reserved()
    open_ = story.asked[-1].id

    assert story.apply_status(facts.Provisioned, id="other/capacity/1/1")
    assert story.apply_status(facts.Provisioned, id="other/capacity/1/1")
    assert story.apply_status(facts.ProvisioningFailed, id=open_, provisioning_class="stranger")

    foreign, stranger = notes(story)
    assert "no request other/capacity/1/1 of ns/train is open" in foreign
    assert "of class stranger does not count: u/capacity/1/1 was requested from class" in stranger
    assert not story.verdicts


def test_a_contradicting_status_is_noted_and_a_late_one_is_not() -> None:
    story = Story()
    story.reserved()
    story.apply_status(facts.ProvisioningFailed, message="none")

    story.apply_status(facts.Accepted)
    story.apply_status(facts.Provisioned)

    (note,) = notes(story)
    assert "Provisioned of class class does not count: the request is Failed already" in note


def test_an_undecodable_answer_is_noted_on_the_request() -> None:
    story = Story()
    story.reserved()

    def unread(provisioning_class: str, name: str = "train") -> bool:
        step = story.core.note_unreadable(
            ("ns", name), provisioning_class, "no Provisioned: odd", NOON
        )
        if step is not None:
            assert step.write is not None
            assert step.write.record is not None
            story.revision += 1
            story.bucket[step.write.name] = step.write.record, story.revision
            story.core.done(step, story.revision)
        return step is not None

    assert unread("class")
    assert not unread("class")
    assert not unread("stranger")
    assert not unread("class", "other")
    assert notes(story) == ["an answer of class class cannot be decoded: no Provisioned: odd"]


def test_a_failure_of_a_running_job_is_noted_and_changes_nothing() -> None:
    story = Story()
    story.reserved()
    story.apply_status(facts.Provisioned)
    story.reserved(state="Ready", conditions=("Admitted",))
    count = len(story.verdicts)

    story.apply_status(facts.ProvisioningFailed, message="none")

    (note,) = notes(story)
    assert note == (
        "ProvisioningFailed of class class does not count: the workload is admitted, "
        "and only CapacityRevoked stops it"
    )
    assert len(story.verdicts) == count
    story.apply_status(facts.CapacityRevoked)
    assert story.last[0] == "Rejected"


def test_an_expired_booking_of_a_running_job_is_not_noted() -> None:
    """E6."""
    story = Story()
    story.reserved()
    story.apply_status(facts.Provisioned)
    story.reserved(state="Ready", conditions=("Admitted",))

    story.apply_status(facts.BookingExpired)

    assert notes(story) == []


def test_a_missing_detail_is_left_out_and_noted() -> None:
    """E2."""
    selector = NodeSelectorUpdate(key="rack", value_from_provisioning_class_detail="Rack")
    updates = ProvisioningPodSetUpdates(node_selector=(selector,))
    story = Story(pod_set_updates=updates)
    story.reserved()

    story.apply_status(facts.Provisioned)

    assert notes(story) == ["the provider reported no detail 'Rack': left out"]
    assert story.last[0] == "Ready"


def test_the_number_of_notes_is_limited() -> None:
    story = Story()
    story.reserved()
    for number in range(100):
        story.apply_status(facts.Provisioned, id=f"other/capacity/{number}/1")
    assert len(notes(story)) == NOTES_MAX


def test_a_request_that_is_too_large_rejects_the_workload() -> None:
    """Limits are copied into requests, so a valid workload may become twice as large."""
    story = Story()
    story.reserved()
    assert story.work is not None
    limits = {f"example.com/{'x' * 200}-{number}": "1" for number in range(2300)}
    containers = [{"name": "c", "resources": {"limits": limits}}]
    pods = [{"count": 2, "template": {"spec": {"containers": containers}}}]
    spec = msgspec.Raw(msgspec.json.encode({"podSets": pods}))
    assert len(spec) < 512 * 1024
    work, story = story.work, Story()

    story.becomes(replace(work, spec=spec))

    assert not story.asked
    assert not story.bucket
    state, message, _ = story.last
    assert state == "Rejected"
    assert "bytes" in message


@pytest.mark.parametrize(
    ("annotations", "sentence"),
    [
        pytest.param({"zone": "x" * 256}, "zone has more than 255", id="a value too long"),
        pytest.param({f"p{i}": "" for i in range(101)}, "101 parameters", id="too many"),
        pytest.param({"": "x"}, "does not name a parameter", id="one without a name"),
    ],
)
def test_annotations_beyond_the_limits_reject_the_workload(
    annotations: dict[str, str], sentence: str
) -> None:
    story = Story()
    story.reserved()
    assert story.work is not None
    work, story = story.work, Story()
    named = {f"{ANNOTATION}{key}": value for key, value in annotations.items()}

    story.becomes(replace(work, metadata=replace(work.metadata, annotations=named)))

    assert not story.asked
    state, message, _ = story.last
    assert state == "Rejected"
    assert sentence in message
