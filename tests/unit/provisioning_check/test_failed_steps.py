"""A step that cannot succeed is noted and does not block other requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from admittance.checks import AdmissionCheckController
from admittance.events import provisioning as facts
from admittance.events.codec import encode
from admittance.events.subjects import ALIVE_PROVISIONING
from admittance.events.system import ProviderAlive
from admittance.provisioning.core import ProvisioningCore
from admittance.provisioning.observed_state import CONTROLLER
from admittance.provisioning.records import with_note
from admittance.provisioning.steps import RequestSlot, Step
from admittance.provisioning_check import provider_monitor
from admittance.provisioning_check.bucket_watch import _record_of
from admittance.provisioning_check.provider_monitor import HEARTBEAT_MAX, ProviderMonitor
from admittance.runtime import clock
from admittance.runtime.bus.bucket import Entry
from admittance.runtime.clock import monotonic
from admittance.runtime.process.settings import Settings
from support.builders import NOON
from unit.provisioning.test_requests_follow import Story, notes

ERROR = ValueError("no such delay")
TOLD = "skipped, because it cannot succeed: no such delay"


class Troubled(Story):
    """``impossible``: returns whether a step fails; ``tries``: the steps that were tried;
    ``troubles``: the slots for which no decision was possible."""

    def __init__(self, impossible: Callable[[Step], bool] = lambda _: False) -> None:
        self.impossible = impossible
        self.tries: list[Step] = []
        self.troubles: list[RequestSlot] = []
        super().__init__()
        self.core = ProvisioningCore(None, lambda slot, _: self.troubles.append(slot))
        self.core.observed.check("capacity", self.check)
        self.core.observed.config("config", self.config)

    def settle(self) -> None:
        for _ in range(20):
            for step in self.core.steps(self.now):
                if self.impossible(step):
                    self.tries.append(step)
                    self.core.cannot(step, ERROR)
                else:
                    self.does(step)
            if not self.core.is_busy:
                return
        raise AssertionError("it does not come to rest")

    def does(self, step: Step) -> None:
        self.revision += 1
        if step.write is not None and step.write.record is not None:
            self.bucket[step.write.name] = step.write.record, self.revision
        elif step.write is not None:
            del self.bucket[step.write.name]
        if step.fact is not None:
            self.said.append(step.fact)
        if step.report is not None:
            self.verdicts.append(step.report)
        self.core.done(step, self.revision)


def is_retry(step: Step) -> bool:
    return step.report is not None and step.report.verdict.state == "Retry"


def test_a_verdict_that_cannot_be_reported_is_noted_and_tried_once() -> None:
    story = Troubled(is_retry)
    story.reserved()

    story.apply_status(facts.ProvisioningFailed, message="none")
    story.core.observed.touch(["capacity"])
    story.settle()

    assert notes(story) == [TOLD]
    assert len(story.tries) == 1
    assert not story.verdicts


def test_a_blocked_slot_continues_when_another_step_follows() -> None:
    story = Troubled(is_retry)
    story.reserved()
    story.apply_status(facts.ProvisioningFailed, message="none")

    story.limit = 0
    story.configure()
    story.settle()

    assert story.last == ("Rejected", "none", None)


def test_a_request_that_cannot_be_sent_is_noted_on_the_check() -> None:
    story = Troubled(lambda step: step.fact is not None)

    story.reserved()

    assert not story.said
    assert story.last == ("Pending", TOLD, None)


@pytest.mark.parametrize("kept", [True, False])
def test_a_slot_rests_when_not_even_the_note_can_be_written(kept: bool) -> None:
    story = Troubled(lambda step: step.fact is None or not kept)

    story.reserved()
    if kept:
        story.apply_status(facts.ProvisioningFailed, message="none")
    story.core.observed.touch(["capacity"])
    story.settle()

    assert not story.verdicts


BROKEN = msgspec.Raw(b'{"podSets": 7}')


def test_an_unreadable_workload_does_not_block_others() -> None:
    story = Troubled()
    story.reserved()
    assert story.work is not None
    other = replace(story.work, metadata=replace(story.work.metadata, name="other", uid="o"))

    story = Troubled()
    story.core.observed.workload(("ns", "other"), replace(other, spec=BROKEN))
    story.settle()
    story.reserved()

    assert story.troubles == [RequestSlot("ns", "other", "capacity")]
    assert [request.id for request in story.asked] == ["u/capacity/1/1"]
    (report,) = story.verdicts
    assert (report.reservation.uid, report.verdict.state) == ("o", "Pending")
    assert report.verdict.message.startswith("skipped, because it cannot succeed: ")
    story.core.observed.workload(("ns", "other"), other)
    story.settle()
    assert [request.id for request in story.asked] == ["u/capacity/1/1", "o/capacity/1/1"]


def test_a_request_of_an_unreadable_workload_gets_a_note() -> None:
    story = Troubled()
    story.reserved()
    assert story.work is not None
    story.configure(managed_resources=("nvidia.com/gpu",))

    for _ in range(3):
        story.becomes(replace(story.work, spec=BROKEN))

    (note,) = notes(story)
    assert note.startswith("skipped, because it cannot succeed: ")
    assert len(story.troubles) == 1


def test_without_an_error_handler_a_decision_raises() -> None:
    """Otherwise a test could take a bug for an odd workload."""
    story = Story()
    story.reserved()
    assert story.work is not None
    work: Any = replace(story.work, spec=BROKEN)
    with pytest.raises(msgspec.ValidationError):
        Story().becomes(work)


def a_monitor() -> ProviderMonitor:
    """A monitor that only takes heartbeats."""
    bus: Any = None
    handler: Any = None
    settings = Settings(service="provisioning-check", instance="a", url="", beat_seconds=10.0)
    controller = AdmissionCheckController(CONTROLLER)
    return ProviderMonitor(bus, controller, ProvisioningCore(None), settings, lambda: None, handler)


def beats(monitor: ProviderMonitor, name: str, data: bytes) -> None:
    monitor.on_heartbeat(f"{ALIVE_PROVISIONING}{name}".encode(), b"", data, b"")


def test_heartbeats_of_many_classes_leave_room_for_the_known_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(provider_monitor, "CLASSES_MAX", 2)
    monitor = a_monitor()

    for name in ("a", "b", "c", "d", "a"):
        active = name != "a" or monitor._heartbeats.knows("b")
        beats(monitor, name, encode(ProviderAlive(active=active)))

    assert monitor._heartbeats.classes() == ["a", "b"]
    assert monitor._heartbeats.trouble("a", monotonic()) is None, "it sends heartbeats again"


UNREADABLE = [b"junk", b"[]", b'{"active": 7}', b"[" * 5000, b" " * (HEARTBEAT_MAX + 1)]


@pytest.mark.parametrize("data", UNREADABLE, ids=["text", "list", "wrong type", "deep", "large"])
def test_an_unreadable_heartbeat_is_ignored(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The heartbeat neither makes a class known nor keeps the provider of a known class alive."""
    monitor, now = a_monitor(), 0.0
    monkeypatch.setattr(clock, "monotonic", lambda: now)
    beats(monitor, "known", encode(ProviderAlive(active=False, message="no room")))

    now = 25.0
    for name in ("known", "unknown"):
        beats(monitor, name, data)

    assert monitor._heartbeats.classes() == ["known"]
    assert monitor._heartbeats.trouble("known", 25.0) == "no room"
    silent = "the provider of known sends no heartbeats any more"
    assert monitor._heartbeats.trouble("known", 30.0) == silent


def test_a_heartbeat_of_an_undecodable_class_is_ignored() -> None:
    monitor = a_monitor()
    for name in (b"\xff", b"a.b", b"=zz"):
        monitor.on_heartbeat(ALIVE_PROVISIONING.encode() + name, b"", encode(ProviderAlive()), b"")
    assert monitor._heartbeats.classes() == []


@pytest.mark.parametrize(
    "value",
    [
        pytest.param({"deadline": "2026-01-01T00:00:00"}, id="a deadline of no time zone"),
        pytest.param({"cycle": "one"}, id="a cycle that is not a number"),
    ],
)
def test_an_unreadable_record_counts_as_deleted(value: dict[str, Any]) -> None:
    story = Story()
    story.reserved()
    ((record, _),) = story.bucket.values()
    whole = msgspec.json.decode(encode(record))
    whole["spec"] |= value
    entry = Entry("provisioningrequest.ns.train-capacity-1", msgspec.json.encode(whole), 1)
    assert _record_of(entry) is None
    whole["spec"] |= {"deadline": "2026-01-01T00:00:00Z", "cycle": 1}
    assert _record_of(replace(entry, value=msgspec.json.encode(whole))) is not None


def test_a_note_with_invalid_unicode_can_be_encoded() -> None:
    story = Troubled(is_retry)
    story.reserved()
    ((record, _),) = story.bucket.values()
    assert encode(with_note(record, "no such thing: \ud800", NOON))
