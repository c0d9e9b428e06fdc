"""Spans that single facts begin and end: eviction, deactivation, runners, checks, capacity."""

from __future__ import annotations

from typing import Any

import msgspec

from admittance.events import facts, provisioning
from admittance.events.base import Fact
from admittance.events.codec import encode
from admittance.events.shapes import Admission
from admittance.events.subjects import subject_of, user_subject
from admittance.traces.builder import TraceBuilder
from admittance.traces.spans import LoggedFact, Span, Status
from support.builders import NOON
from support.traced_story import LoggedCores


def cores_with(*checks: str) -> LoggedCores:
    cores = LoggedCores()
    cores.offer({"a": 4}, checks={"a": checks})
    cores.slow_jobs.add("j")
    cores.job("j")
    return cores


def spans_of(cores: LoggedCores) -> list[Span]:
    """All spans of the workload ``j``, in the order in which they began."""
    builder = TraceBuilder()
    spans = [span for logged in cores.log for span in builder.feed(logged)]
    spans += builder.open_spans("ns", "j")
    return sorted(spans, key=place)


def place(span: Span) -> tuple[Any, ...]:
    return span.start, span.attributes["admittance.sequence"], span.name


def shown(spans: list[Span], *names: str) -> list[tuple[str, float, float | None]]:
    return [
        (
            span.name,
            (span.start - NOON).total_seconds(),
            None if span.end is None else (span.end - NOON).total_seconds(),
        )
        for span in spans
        if not names or span.name in names
    ]


def named(spans: list[Span], name: str) -> Span:
    return next(span for span in spans if span.name == name)


def test_a_lost_job_is_a_failed_run_and_an_eviction() -> None:
    cores = cores_with()
    cores.started("j")
    cores.at(10)
    revision = cores.stored("j").status.admitted_revision
    cores.publish(facts.Stopped, "j", revision=revision, reason="NodeFailures")
    cores.go()
    spans = spans_of(cores)
    run = named(spans, "run")
    assert (run.status, run.message) == (Status.ERROR, "NodeFailures")
    assert named(spans, "eviction").attributes["admittance.reason"] == "NodeFailures"
    assert shown(spans, "admission", "requeue") == [
        *[("admission", 0, 10), ("requeue", 10, 10), ("admission", 10, None)],
    ]


def test_a_job_on_two_machines_runs_until_its_last_part_has_ended() -> None:
    cores = cores_with()
    spot = next(n for n, fact in enumerate(cores.log) if ".admitted." in fact.subject)
    admitted = msgspec.json.decode(cores.log[spot].data)
    admitted["podSets"][0]["parts"] = [
        {"runner": name, "id": name, "podSet": "main", "first": first, "count": 1}
        for first, name in enumerate(("m1", "m2"))
    ]
    cores.log[spot] = cores.log[spot]._replace(data=msgspec.json.encode(admitted))
    cores.started("j")
    at = cores.stored("j").status.admitted_revision
    for part, seconds in ((2, 5), (1, 9)):
        cores.at(seconds)
        fact = facts.Finished(
            namespace="ns", name="j", revision=at, part=part, succeeded=part == 1, message="m"
        )
        cores.log.append(
            LoggedFact(cores.sequence + seconds * 100, cores.now, subject_of(fact), encode(fact))
        )
        cores.log.sort(key=lambda logged: logged.time)
    run = named(spans_of(cores), "run")
    assert shown([run]) == [("run", 0, 9)]
    assert (run.status, run.message) == (Status.ERROR, "part 2 of 2 failed: m")


def test_a_runner_that_is_restarted_starts_the_job_in_the_same_admission() -> None:
    cores = cores_with()
    cores.started("j")
    cores.at(10)
    revision = cores.stored("j").status.admitted_revision
    cores.publish(facts.Stopped, "j", revision=revision, reason="RunnerEnded")
    cores.at(15)
    cores.started("j")
    spans = spans_of(cores)
    assert shown(spans, "admission", "start", "run") == [
        *[("admission", 0, None), ("start", 0, 0), ("run", 0, 10)],
        *[("start", 10, 15), ("run", 15, None)],
    ]
    assert len({span.span_id for span in spans}) == len(spans)


def test_a_deactivated_workload_is_inactive_until_it_is_activated() -> None:
    cores = cores_with()
    cores.started("j")
    cores.at(10)
    cores.publish(facts.Deactivated, "j")
    cores.at(12)
    cores.stop("j")
    cores.at(20)
    cores.publish(facts.Activated, "j")
    cores.go()
    assert shown(spans_of(cores), "run", "eviction", "inactive", "queue", "admission") == [
        *[("queue", 0, 0), ("admission", 0, 12), ("run", 0, 12), ("eviction", 10, 12)],
        *[("inactive", 12, 20), ("queue", 20, 20), ("admission", 20, None)],
    ]


def test_a_rejected_workload_is_inactive_with_the_reason() -> None:
    cores = cores_with("budget")
    cores.at(5)
    cores.report("j", "budget", "Rejected", message="never")
    spans = spans_of(cores)
    check = named(spans, "check budget")
    assert (check.status, check.message) == (Status.ERROR, "never")
    assert shown(spans, "reservation", "inactive") == [
        *[("reservation", 0, 5), ("inactive", 5, None)],
    ]
    root = named(spans, "workload")
    assert [event.name for event in root.events] == ["rejected"]


def test_a_retry_of_an_admitted_workload_stops_its_job_first() -> None:
    cores = cores_with("budget")
    cores.report("j", "budget", "Ready")
    cores.at(5)
    cores.report("j", "budget", "Retry", after=10)
    cores.at(7)
    cores.stop("j")
    cores.at(20)
    spans = spans_of(cores)
    assert shown(spans, "admission", "eviction", "requeue", "queue", "check budget") == [
        *[("queue", 0, 0), ("check budget", 0, 0), ("admission", 0, 7), ("eviction", 5, 7)],
        *[("requeue", 7, 15), ("queue", 15, 15), ("check budget", 15, None)],
    ]
    late = [event for event in named(spans, "admission").events if event.name == "reported"]
    assert [span.attributes["admittance.state"] for span in late] == ["Retry"]


def test_a_workload_on_hold_stays_in_its_queue_with_events() -> None:
    cores = LoggedCores()
    cores.offer({"a": 4})
    cores.job("j", gpu=8)
    cores.publish(facts.Held, "j")
    cores.at(5)
    cores.publish(facts.Released, "j")
    cores.go()
    spans = spans_of(cores)
    assert shown(spans, "queue") == [("queue", 0, None)]
    events = [event.name for event in named(spans, "queue").events]
    assert [event for event in events if event in ("held", "released", "requeued")] == [
        *("held", "released", "requeued"),
    ]


def built(*given: Fact | tuple[str, Fact]) -> list[Span]:
    """The spans of facts, one each second; a fact may have another subject than its own."""
    builder = TraceBuilder()
    spans: list[Span] = []
    for number, published in enumerate(given):
        subject, fact = (
            published if isinstance(published, tuple) else (subject_of(published), published)
        )
        at = NOON.replace(second=number)
        spans += builder.feed(LoggedFact(number + 1, at, subject, encode(fact)))
    return [*spans, *builder.open_spans("ns", "j")]


J: dict[str, Any] = {"namespace": "ns", "name": "j"}
BEGUN = (
    facts.Submitted(**J, workload=msgspec.Raw(b"{}")),
    facts.QuotaReserved(**J, uid="u", revision=1),
    facts.CheckRequested(**J, uid="u", controller="c", check="k", cycle=0),
)


def test_a_request_for_capacity_is_inside_its_check() -> None:
    of: dict[str, Any] = {**J, "id": "u/k/0/1", "provisioning_class": "rack"}
    spans = built(
        *BEGUN,
        provisioning.ProvisioningRequested(**of, check="k", cycle=0, attempt=1),
        provisioning.Accepted(**of, message="in a minute"),
        provisioning.Provisioned(**of, message="four machines"),
        facts.CheckReported(**J, controller="c", check="k", cycle=0, state="Ready"),
    )
    capacity, check = named(spans, "capacity"), named(spans, "check k")
    assert capacity.parent_id == check.span_id
    assert shown(spans, "capacity", "check k") == [("capacity", 3, 5), ("check k", 2, 6)]
    assert capacity.attributes["admittance.outcome"] == "Provisioned"
    assert [event.name for event in capacity.events] == ["Accepted"]
    template = "admit.provisioning.requested.{class}.{namespace}.{name}"
    assert capacity.attributes["messaging.destination.template"] == template


def test_a_verdict_of_a_person_ends_the_check_and_names_the_person() -> None:
    approved = facts.Approved(**J, check="k", cycle=0, message="go")
    check = named(built(*BEGUN, (user_subject("ada", approved), approved)), "check k")
    assert check.attributes["admittance.outcome"] == "Ready"
    assert check.attributes["admittance.user"] == "ada"


def test_a_verdict_of_another_cycle_does_not_end_the_check() -> None:
    late = facts.CheckReported(**J, controller="c", check="k", cycle=7, state="Ready")
    assert named(built(*BEGUN, late), "check k").end is None


def test_a_history_of_a_variant_alone_names_the_span_of_its_parent() -> None:
    cores = LoggedCores()
    cores.offer({"a": 4})
    cores.edit_queue(concurrentAdmission={"migrationConstraints": {"mode": "UpgradeOnly"}})
    cores.go()
    cores.job("j")
    whole = spans_of(cores)
    builder = TraceBuilder(partial=True)
    alone = [
        span
        for logged in cores.log
        if logged.subject.endswith(".j-variant-a")
        for span in builder.feed(logged)
    ]
    variant = builder.open_spans("ns", "j-variant-a")[0]
    root = named(whole, "workload")
    assert (variant.trace_id, variant.parent_id) == (root.trace_id, root.span_id)
    known = {span.span_id for span in whole}
    assert {span.span_id for span in [*alone, variant]} <= known


def test_strange_values_of_other_programs_do_no_harm() -> None:
    manifest = msgspec.Raw(b'{"spec": {"priority": 99999999999999999999999, "queueName": 5}}')
    decided: dict[str, Any] = {"uid": "u", "seen": 1, "domain": "d", "revision": 1}
    assigned = facts.Assigned(
        **J, **decided, admission=Admission(cluster_queue="cq"), time=NOON.replace(tzinfo=None)
    )
    spans = built(
        facts.Submitted(**J, workload=manifest),
        assigned,
        facts.QuotaReserved(**J, uid="u", revision=1),
        facts.Noted(**J, uid="u", revision=2, reason="Long", message="x" * 9_000),
    )
    root = named(spans, "workload")
    assert root.attributes["admittance.priority"] == "9" * 23
    assert "admittance.queue" not in root.attributes
    assert shown(spans, "attempt") == [("attempt", 1, 1)]
    [note] = named(spans, "reservation").events
    assert len(str(note.attributes["admittance.message"])) == 500
