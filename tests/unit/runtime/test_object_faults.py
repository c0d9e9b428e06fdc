"""A bug that concerns one object sets this object aside in every service, and stays visible."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from admittance.events import reasons
from admittance.object_errors import ObjectError
from admittance.provider_pool.service import PoolReconciler
from admittance.provisioning.machine_pool import POOL
from admittance.provisioning.steps import RequestSlot
from admittance.provisioning_check.step_performer import record_undecided
from admittance.retry_timer import service as retry_timer
from admittance.runtime.bus import timers
from admittance.runtime.bus.bucket import Entry, apply_each
from admittance.runtime.bus.bus import Outgoing
from admittance.runtime.bus.puller import Delivery
from admittance.runtime.process.settings import Settings
from admittance.runtime.telemetry.findings import own_findings
from admittance.runtime.telemetry.object_faults import ObjectFaults, faults
from admittance.scheduler import service as scheduler
from admittance.scheduling.state.object_errors import Suspect
from admittance.telemetry.service import TraceExporter
from admittance.timers.schedules import SetTimer, TimerSlot, WantedSchedule
from admittance.variants import core, required_acts
from support.builders import NOON
from support.cores.families.stepped_variants import SteppedVariants


def taken() -> list[tuple[str, str]]:
    return [(fault.service, fault.about) for fault in faults.take()]


def test_a_fault_is_logged_once_counted_always_and_shown_by_doctor() -> None:
    faults_found = ObjectFaults()
    with capture_logs() as logs:
        for name in ("a", "a", "b", "c", "d", "e"):
            reason = faults_found.record("runner", "plan a job", f"run {name}", KeyError("x\ny"))
    assert reason == "KeyError: 'x\\ny'"
    assert [line["about"] for line in logs] == ["run a", "run b", "run c", "run d", "run e"]
    assert isinstance(logs[0]["exc_info"], KeyError)
    assert faults_found.counter.values[()] == 6
    [finding] = faults_found.findings()
    assert (finding.state, finding.what) == ("wrong", "faults of runner")
    assert "run e (plan a job: KeyError" in finding.found
    assert finding.found.endswith("; and 2 more")
    assert (len(faults_found.take()), faults_found.findings()) == (5, [])


def test_faults_of_the_process_are_among_its_findings_and_metrics() -> None:
    assert [finding for finding in own_findings() if finding.what.startswith("faults")] == []
    faults.record("runner", "plan a job", "run a", KeyError("x"))
    assert [finding.what for finding in own_findings() if finding.what.startswith("faults")] == [
        "faults of runner"
    ]
    assert len(taken()) == 1


def test_an_entry_that_raises_is_passed_over() -> None:
    applied: list[str] = []
    forgotten: list[str] = []

    def apply(entry: Entry) -> None:
        if entry.key != "good":
            raise {"bug": KeyError, "bug-twice": KeyError, "junk": ValueError}[entry.key]("x")
        applied.append(entry.key)

    def forget(entry: Entry) -> None:
        forgotten.append(entry.key)
        if entry.key == "bug-twice":
            raise KeyError("x")

    entries = [Entry(key, b"{}", 1) for key in ("bug", "junk", "bug-twice", "good")]
    apply_each(entries, apply, forget, service="retry-timer")
    assert (applied, forgotten) == (["good"], ["bug", "junk", "bug-twice"])
    assert taken() == [("retry-timer", key) for key in ("bug", "bug-twice", "bug-twice")]


def test_a_family_that_raises_keeps_no_other_from_its_acts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(family: Any, *args: Any) -> Any:
        assert family.name.name != "bad", "a bug"
        return works(family, *args)

    works = required_acts.required_acts
    monkeypatch.setattr(core, "required_acts", broken)
    errors: list[ObjectError] = []
    table = SteppedVariants(errors=errors).offer("a", "b").local_queue()
    table.workload("bad").workload("good")
    assert {fact.name for fact in table.families.orders(NOON)} == {
        "good-variant-a",
        "good-variant-b",
    }
    assert [error.about for error in errors] == ["family ns/bad"]
    assert table.families.states()["unreadable"] == 1
    with pytest.raises(AssertionError, match="a bug"):
        SteppedVariants().offer("a", "b").local_queue().workload("bad").families.orders(NOON)


def test_a_schedule_that_raises_keeps_no_other_from_the_bus(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def message(_kind: str, _namespace: str, name: str, *_: Any, **__: Any) -> Outgoing:
        if name == "bad":
            raise KeyError("a bug")
        return Outgoing(name, b"")

    sent: list[str] = []

    async def publish(messages: Sequence[Outgoing]) -> list[int]:
        sent.extend(message.subject for message in messages)
        return [1 for _ in messages]

    outcomes: dict[str, str] = {}
    schedules: Any = SimpleNamespace(
        done=lambda order, _: outcomes.update({order.slot.name: "done"}),
        failed=lambda order, _: outcomes.update({order.slot.name: "failed"}),
    )
    monkeypatch.setattr(timers, "schedule_message", message)
    bus: Any = SimpleNamespace(publish_each=publish)
    settings = Settings(service="retry-timer", instance="a")
    reconciler = retry_timer.ScheduleReconciler(bus, settings, schedules)
    want = WantedSchedule(NOON, "u")
    orders = [SetTimer(TimerSlot("requeue", "ns", name), want) for name in ("bad", "good")]
    asyncio.run(reconciler._set(orders))
    assert (sent, outcomes) == (["good"], {"bad": "failed", "good": "done"})
    [(service, about)] = taken()
    assert service == "retry-timer"
    assert "bad" in about


def test_a_bug_with_one_fact_does_not_affect_spans_of_others() -> None:
    async def read(logged: Any) -> list[str]:
        if logged.subject == "bad":
            raise KeyError("a bug")
        return ["span"]

    exporter = TraceExporter.__new__(TraceExporter)
    exporter.traces = SimpleNamespace(read=read)  # type: ignore[assignment]
    spans = [
        asyncio.run(exporter._spans(Delivery(subject, b"", {}, 1))) for subject in ("bad", "good")
    ]
    assert spans == [[], ["span"]]
    assert taken() == [("telemetry", "fact bad")]


def test_a_capacity_request_that_cannot_be_decided_is_a_fault() -> None:
    record_undecided(RequestSlot("ns", "w", "c"), KeyError("a bug"))
    assert taken() == [("provisioning-check", "capacity request of workload ns/w")]


def test_a_pool_that_raises_is_kept_as_unreadable() -> None:
    kept: list[str] = []

    def change(_name: str, _pool: Any) -> Any:
        raise KeyError("a bug")

    reconciler = PoolReconciler.__new__(PoolReconciler)
    reconciler._ledger = SimpleNamespace(  # type: ignore[assignment]
        change_pool=change, keep_unreadable=kept.append
    )
    reconciler._read(Entry(f"{POOL}.p", None, 1))
    assert (kept, taken()) == (["p"], [("provider-pool", "machine pool p")])


def test_a_suspect_of_the_scheduler_is_remembered_for_its_next_state() -> None:
    workload: Any = SimpleNamespace(key=("ns", "w"), uid="u-suspect")
    error = scheduler._set_aside(Suspect(workload, "recheck", KeyError("a bug")))
    assert str(error) == "the state is made again without workload ns/w"
    assert scheduler.suspects.pop("u-suspect").reason == reasons.INTERNAL_ERROR
    assert taken() == [("scheduler", "workload ns/w")]
