"""The spans of a workload's trace, made from the facts of the log."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from admittance.events import facts
from admittance.events.codec import encode
from admittance.events.span_ids import span_id_of, trace_id_of
from admittance.events.subjects import subject_of
from admittance.traces.builder import TraceBuilder
from admittance.traces.spans import LoggedFact, Span, Status
from support.builders import NOON, a_manifest
from support.traced_story import LoggedCores, told_story


def spans_of(log: Sequence[LoggedFact]) -> list[Span]:
    builder = TraceBuilder()
    return [span for logged in log for span in builder.feed(logged)]


def trace_of(spans: Sequence[Span], name: str) -> list[Span]:
    """The spans of the workload's trace, in the order in which they ended."""
    [root] = [
        span
        for span in spans
        if span.name == "workload" and span.attributes["admittance.workload"] == name
    ]
    return [span for span in spans if span.trace_id == root.trace_id]


def named(spans: Sequence[Span], name: str) -> list[Span]:
    return [span for span in spans if span.name == name]


def seconds(span: Span) -> tuple[float, float]:
    assert span.end is not None
    return (span.start - NOON).total_seconds(), (span.end - NOON).total_seconds()


@pytest.fixture(scope="module")
def story() -> LoggedCores:
    return told_story()


def test_a_workload_and_its_variants_are_one_tree(story: LoggedCores) -> None:
    train = trace_of(spans_of(story.log), "train")
    assert train[-1].name == "workload", "the span of the workload ends last"
    assert train[-1].parent_id == ""
    ids = {span.span_id for span in train}
    assert len(ids) == len(train)
    assert {span.parent_id for span in train[:-1]} <= ids
    names = {"variant reserved", "variant spot", "queue", "reservation", "admission", "requeue"}
    names |= {"attempt", "check budget", "check license", "start", "run", "eviction", "workload"}
    assert {span.name for span in train} == names


def test_a_retry_ends_the_reservation_and_begins_a_wait(story: LoggedCores) -> None:
    train = trace_of(spans_of(story.log), "train")
    budget = named(train, "check budget")[0]
    assert seconds(budget) == (0, 5)
    assert budget.attributes["admittance.outcome"] == "Retry"
    assert budget.attributes["admittance.requeue_after"] == "60 s"
    reservation = next(span for span in train if span.span_id == budget.parent_id)
    assert seconds(reservation) == (0, 5)
    wait = named(train, "requeue")[0]
    assert seconds(wait) == (5, 65)
    assert wait.attributes["admittance.reason"] == "AdmissionCheck"


def test_a_preemption_links_to_the_trace_of_the_preemptor(story: LoggedCores) -> None:
    spans = spans_of(story.log)
    eviction = named(trace_of(spans, "train"), "eviction")[1]
    assert seconds(eviction) == (200, 205)
    assert eviction.attributes["admittance.preempted_by"] == "ns/urgent"
    urgent = trace_of(spans, "urgent")
    assert [link.span_id for link in eviction.links] == [urgent[-1].span_id]
    assert eviction.links[0].trace_id != eviction.trace_id
    attempt = named(urgent, "attempt")[0]
    assert [link.workload for link in attempt.links] == ["ns/train-variant-spot"]


def test_a_migration_is_an_eviction_and_another_admission(story: LoggedCores) -> None:
    train = trace_of(spans_of(story.log), "train")
    eviction = named(train, "eviction")[2]
    assert seconds(eviction) == (420, 425)
    assert eviction.attributes["admittance.underlying_cause"] == "FlavorMigration"
    admissions = named(train, "admission")
    assert [seconds(admission) for admission in admissions] == [(72, 205), (310, 425), (425, 600)]
    variants = [admission.attributes["admittance.variant"] for admission in admissions]
    assert variants == ["spot", "spot", "reserved"]
    assert [seconds(span) for span in named(train, "run")] == [(74, 205), (312, 425), (427, 600)]


def test_nothing_of_an_ended_workload_stays_in_memory(story: LoggedCores) -> None:
    builder = TraceBuilder()
    for logged in story.log:
        builder.feed(logged)
    assert len(builder) == 0


def test_facts_that_are_read_again_give_the_same_spans(story: LoggedCores) -> None:
    spans = spans_of(story.log)
    assert spans_of(story.log) == spans
    twice = [logged for logged in story.log for _ in range(2)]
    assert spans_of(twice) == spans


def test_requests_carry_the_span_of_the_check_as_the_parent(story: LoggedCores) -> None:
    train = trace_of(spans_of(story.log), "train")
    checks = [span for span in train if span.name.startswith("check ")]
    asked = [
        span.traceparent
        for span in story.log
        if span.subject.startswith("admit.check.requested.") and "train" in span.subject
    ]
    assert len(checks) == 7
    assert sorted(asked) == sorted(f"00-{span.trace_id}-{span.span_id}-00" for span in checks)
    runs = {f"00-{span.trace_id}-{span.span_id}-00" for span in named(train, "run")}
    admitted = "admit.workload.admitted.ns.train"
    assert {span.traceparent for span in story.log if span.subject == admitted} == runs


def test_ids_follow_from_the_uid(story: LoggedCores) -> None:
    root = trace_of(spans_of(story.log), "train")[-1]
    uid = story.stored("train").metadata.uid
    assert root.attributes["admittance.uid"] == uid
    assert (root.trace_id, root.span_id) == (trace_id_of(uid), span_id_of(uid))


def test_a_command_with_another_trace_changes_no_trace() -> None:
    cores = LoggedCores()
    cores.offer({"a": 4}, checks={"a": ["budget"]})
    own = f"00-{'a' * 32}-{'b' * 16}-01"
    manifest = msgspec.json.encode(a_manifest("j", requests={"gpu": "1"}, queue="cq"))
    fact = facts.Submitted(namespace="ns", name="j", workload=msgspec.Raw(manifest))
    cores.apply_traced(fact, own)
    other = f"00-{'c' * 32}-{'d' * 16}-01"
    cores.apply_traced(facts.Reprioritized(namespace="ns", name="j", priority=3), other)
    cores.go()
    asked = [fact for fact in cores.log if fact.subject.startswith("admit.check.requested.")]
    assert [fact.traceparent[:36] for fact in asked] == [own[:36]]


def test_the_submitters_span_is_the_parent_if_it_is_sampled() -> None:
    cores = LoggedCores()
    cores.offer({"a": 4})
    cores.job("j")
    at = next(i for i, fact in enumerate(cores.log) if "submitted" in fact.subject)
    for flags, parent in (("01", "b" * 16), ("00", "")):
        context = f"00-{'a' * 32}-{'b' * 16}-{flags}"
        builder = TraceBuilder()
        for logged in [cores.log[at]._replace(traceparent=context), *cores.log[at + 1 :]]:
            builder.feed(logged)
        root = builder.open_spans("ns", "j")[0]
        assert (root.trace_id, root.parent_id, root.remote) == ("a" * 32, parent, bool(parent))


def test_a_refused_submission_is_a_trace_with_an_error() -> None:
    raw = msgspec.Raw(b'{"spec": {"podSets": 5}}')
    submitted = facts.Submitted(namespace="ns", name="w", workload=raw)
    rejected = facts.Rejected(
        namespace="ns", name="w", revision=0, reason="Invalid", message="spec.podSets: a number"
    )
    log = [
        LoggedFact(number + 1, NOON, subject_of(fact), encode(fact))
        for number, fact in enumerate((submitted, rejected))
    ]
    [root] = named(spans_of(log), "workload")
    assert root.attributes["admittance.outcome"] == "Refused"
    assert root.attributes["admittance.reason"] == "Invalid"
    assert (root.status, root.message) == (Status.ERROR, "spec.podSets: a number")


def test_a_deleted_workload_ends_when_its_job_has_stopped() -> None:
    cores = LoggedCores()
    cores.offer({"a": 4})
    cores.slow_jobs.add("j")
    cores.job("j")
    cores.started("j")
    cores.at(10)
    cores.publish(facts.Deleted, "j")
    cores.at(12)
    cores.stop("j")
    train = trace_of(spans_of(cores.log), "j")
    assert train[-1].attributes["admittance.outcome"] == "Deleted"
    assert seconds(train[-1]) == (0, 12)
    assert seconds(named(train, "eviction")[0]) == (10, 12)


def test_a_name_that_is_used_again_is_another_trace() -> None:
    cores = LoggedCores()
    cores.offer({"a": 4})
    cores.job("j", gpu=8)
    cores.at(5)
    cores.publish(facts.Deleted, "j")
    cores.job("j")
    cores.at(10)
    cores.done("j")
    outcomes = [
        span.attributes["admittance.outcome"] for span in named(spans_of(cores.log), "workload")
    ]
    assert outcomes == ["Deleted", "Succeeded"]


def test_a_second_submission_of_the_name_changes_nothing() -> None:
    cores = LoggedCores()
    cores.offer({"a": 4})
    cores.job("j")
    cores.job("j", gpu=2)
    cores.done("j")
    [root] = named(spans_of(cores.log), "workload")
    assert root.attributes["admittance.outcome"] == "Succeeded"


def test_a_trace_that_is_not_kept_takes_no_memory(story: LoggedCores) -> None:
    builder = TraceBuilder(lambda root: root.attributes["admittance.workload"] != "train")
    names = {
        span.attributes["admittance.workload"]
        for logged in story.log
        for span in builder.feed(logged)
    }
    assert names == {"early", "urgent"}


def test_a_cut_history_begins_with_the_first_fact_that_is_left(story: LoggedCores) -> None:
    left = [fact for fact in story.log if (fact.time - NOON).total_seconds() >= 200]
    assert not trace_names(TraceBuilder(), left, "early")
    builder = TraceBuilder(partial=True)
    spans = [span for logged in left for span in builder.feed(logged)]
    early = [span for span in named(spans, "workload") if span.attributes.get("admittance.cut")]
    assert {span.attributes["admittance.workload"] for span in early} >= {"train"}


def trace_names(builder: TraceBuilder, log: Sequence[LoggedFact], name: str) -> set[str]:
    spans = [span for logged in log for span in builder.feed(logged)]
    return {span.name for span in spans if span.attributes["admittance.workload"] == name}


LOG = told_story().log


@settings(max_examples=60, deadline=None)
@given(
    order=st.lists(st.integers(0, len(LOG) - 1), max_size=150),
    jitter=st.lists(st.integers(-50, 50), min_size=5, max_size=5),
    partial=st.booleans(),
    traceparent=st.sampled_from(("", "x-y-z-w", f"00-{'a' * 32}-{'b' * 16}-01")),
)
def test_any_sequence_of_facts_gives_a_tree(
    order: list[int], jitter: list[int], partial: bool, traceparent: str
) -> None:
    builder = TraceBuilder(partial=partial)
    spans: list[Span] = []
    for number, at in enumerate(order):
        time = LOG[at].time + timedelta(seconds=jitter[number % 5])
        given: dict[str, Any] = {"sequence": number + 1, "time": time, "traceparent": traceparent}
        spans += builder.feed(LOG[at]._replace(**given))
    for name in ("train-variant-spot", "train-variant-reserved", "train", "early", "urgent"):
        spans += builder.open_spans("ns", name)
    by_id = {(span.trace_id, span.span_id): span for span in spans}
    for span in spans:
        assert span.end is None or span.start <= span.end
        # The history of a variant alone has no facts about its parent.
        if span.parent_id and not span.remote and "admittance.parent" not in span.attributes:
            parent = by_id[span.trace_id, span.parent_id]
            assert parent.start <= span.start
            if parent.end is not None:
                assert span.end is not None
                assert span.end <= parent.end
