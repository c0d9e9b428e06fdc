"""A step that can never succeed does not affect other steps."""

from __future__ import annotations

from datetime import datetime

import pytest
from msgspec.structs import replace

from admittance.checks import AdmissionCheckController, Reference, Request, Verdict
from admittance.events.codec import encode
from admittance.events.provisioning import Provisioned, ProvisioningStatus
from admittance.events.subjects import CAPACITY, object_key
from admittance.provisioning.core import ProvisioningCore
from admittance.provisioning.new_request import cancelled_fact, requested_fact
from admittance.provisioning.observed_state import CONTROLLER, slot_of
from admittance.provisioning.records import State
from admittance.provisioning.steps import (
    CheckVerdict,
    RequestSlot,
    ReservationRef,
    Step,
    VerdictReport,
    Write,
)
from admittance.provisioning_check.bucket_watch import BucketWatch
from admittance.provisioning_check.service import ProvisioningReconciler
from admittance.provisioning_check.step_performer import StepPerformer
from admittance.runtime.bus import bucket
from admittance.runtime.bus.bus import Bus
from admittance.runtime.process.settings import Settings
from admittance.runtime.telemetry.object_faults import faults
from integration.provisioning.providers.test_many_queries import a_record

pytestmark = [pytest.mark.bus, pytest.mark.servers("simulated")]


class Core(ProvisioningCore):
    """A core that records the outcome of each step."""

    def __init__(self) -> None:
        super().__init__(None)
        self.never: list[Step] = []
        self.well: list[Step] = []

    def done(self, step: Step, revision: int = 0) -> None:
        self.well.append(step)

    def cannot(self, step: Step, error: Exception) -> None:
        self.never.append(step)

    def failed(self, step: Step) -> None:
        raise AssertionError(step)


class Reports:
    """The requests and withdrawals that the check received."""

    def __init__(self) -> None:
        self.names: list[str] = []

    async def __call__(self, about: Request | Reference, _: Verdict) -> bool:
        self.names.append(about.name)
        return True


def tell(number: int, answer: CheckVerdict) -> Step:
    slot = RequestSlot("ns", f"w{number:04}", "c")
    return Step(slot, report=VerdictReport(ReservationRef(f"u{number:04}", 0), answer))


async def test_a_step_that_cannot_succeed_does_not_block_others(bus: Bus) -> None:
    core, reports = Core(), Reports()
    controller = AdmissionCheckController(CONTROLLER)
    controller.report_through(reports)
    reading = BucketWatch(bus, core.observed, lambda: None, lambda: None)
    performing = StepPerformer(bus, core, controller, reading)
    records = [a_record(number) for number in range(4)]
    spec = records[0].spec
    broken = replace(records[0], spec=replace(spec, id="u\r\nX: 1/c/0/1"))
    without_class = replace(records[1], spec=replace(spec, provisioning_class_name=""))
    large = replace(records[2], status=replace(records[2].status, message="x" * 2_000_000))
    good = records[3]
    never = [
        tell(5, CheckVerdict("Retry", "for ever", after=2**40)),
        Step(RequestSlot("ns", "w0000", "c"), fact=cancelled_fact(broken)),
        Step(RequestSlot("ns", "w0001", "c"), fact=requested_fact(without_class)),
        Step(
            RequestSlot("ns", "w0002", "c"),
            Write(large.metadata.name, large, 0),
            requested_fact(large),
        ),
    ]
    well = [
        Step(slot_of(good), Write(good.metadata.name, good, 0), requested_fact(good)),
        tell(6, CheckVerdict("Ready", "here")),
    ]

    failed = await performing.perform([*never[:2], *well, *never[2:]])

    assert not failed
    assert core.well == well
    assert core.never == never
    assert reports.names == ["w0006"]
    assert await bucket.get(bus, object_key(CAPACITY, "ns", good.metadata.name)) is not None


async def test_an_answer_that_raises_becomes_a_dead_letter(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    reconciler = ProvisioningReconciler(
        bus, Settings(service="provisioning-check", instance="a", url=""), 1
    )
    records = [a_record(number) for number in range(2)]
    for record in records:
        key = object_key(CAPACITY, "ns", record.metadata.name)
        revision = await bus.publish(bucket.put_message(key, encode(record), expected=0))
        reconciler.core.observed.record(("ns", record.metadata.name), record, revision)
    said = [
        Provisioned(
            namespace="ns", name=record.spec.workload, id=record.spec.id, provisioning_class="class"
        )
        for record in records
    ]
    apply_unbroken = reconciler.core.apply_status

    def apply_status(fact: ProvisioningStatus, now: datetime) -> tuple[Step | None, str]:
        if fact.id == said[0].id:
            raise ZeroDivisionError("a bug")
        return apply_unbroken(fact, now)

    monkeypatch.setattr(reconciler.core, "apply_status", apply_status)

    assert await reconciler.apply_answers(said) == ["it cannot be applied: a bug", ""]

    first, second = (reconciler.core.observed.records[slot_of(record)].record for record in records)
    assert first.status.state is State.REQUESTED
    assert [note.text for note in first.status.notes] == [
        "an answer of class class cannot be decoded: it cannot be applied: a bug"
    ]
    assert second.status.state is State.PROVISIONED
    [fault] = faults.take()
    assert said[0].id in fault.about
    await reconciler.close()
