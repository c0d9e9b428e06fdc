"""Traces in bounded memory: what is not in memory is rebuilt from the log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from admittance.events.subjects import WorkloadName, address_of
from admittance.telemetry.open_traces import OpenTraces
from admittance.traces.builder import TraceBuilder
from admittance.traces.spans import LoggedFact, Span
from support.traced_story import told_story


@pytest.fixture(scope="module")
def story() -> list[LoggedFact]:
    return told_story().log


@pytest.fixture(scope="module")
def expected(story: list[LoggedFact]) -> list[Span]:
    builder = TraceBuilder()
    return [span for fact in story for span in builder.feed(fact)]


class Log:
    """The log as `admit.api.events` shows it. ``stored``: the workload-controller knows which
    workloads are a family. ``read``: the workload of each request."""

    def __init__(self, facts: Sequence[LoggedFact], *, stored: bool = True) -> None:
        self._facts = facts
        self._stored = stored
        self.read: list[str] = []

    async def history(self, workload: WorkloadName, also: Iterable[str]) -> list[LoggedFact]:
        self.read.append(workload.name)
        names = {workload.name, *also}
        if self._stored and workload.name.startswith("train"):
            names |= {"train", "train-variant-spot", "train-variant-reserved"}
        wanted = {(workload.namespace, name) for name in names}
        return [
            fact
            for fact in self._facts
            if not fact.subject.startswith("admit.object.")
            and address_of(fact.subject)[2:] in wanted
        ]


def always(_trace_id: str, _parent: str) -> bool:
    return True


async def fed(traces: OpenTraces, facts: Iterable[LoggedFact]) -> list[Span]:
    return [span for fact in facts for span in await traces.read(fact)]


async def test_a_reader_from_the_beginning_asks_for_no_history(
    story: list[LoggedFact], expected: list[Span]
) -> None:
    log = Log(story)
    traces = OpenTraces(always, log.history)
    assert await fed(traces, story) == expected
    assert (log.read, len(traces)) == ([], 0)


async def test_a_restart_at_any_fact_loses_and_changes_no_span(
    story: list[LoggedFact], expected: list[Span]
) -> None:
    for cut in range(0, len(story), 7):
        log = Log(story)
        before = await fed(OpenTraces(always, log.history), story[:cut])
        after = await fed(OpenTraces(always, log.history), story[cut:])
        assert [span.name for span in (*before, *after)] == [span.name for span in expected], cut
        assert [span.span_id for span in (*before, *after)] == [span.span_id for span in expected]


async def test_a_workload_that_was_forgotten_is_read_again(
    story: list[LoggedFact], expected: list[Span]
) -> None:
    log = Log(story)
    traces = OpenTraces(always, log.history, kept_max=1)
    spans = await fed(traces, story)
    assert [span.span_id for span in spans] == [span.span_id for span in expected]
    assert log.read
    assert len(traces) == 0


async def test_a_trace_that_is_not_sampled_costs_no_memory_and_no_request(
    story: list[LoggedFact],
) -> None:
    log = Log(story)
    traces = OpenTraces(lambda *_: False, log.history)
    assert await fed(traces, story) == []
    traced = [fact._replace(traceparent=f"00-{'a' * 32}-{'b' * 16}-00") for fact in story]
    assert await fed(OpenTraces(lambda *_: False, log.history), traced[20:]) == []
    assert (log.read, len(traces)) == ([], 0)


async def test_late_facts_of_an_ended_workload_ask_for_no_history(story: list[LoggedFact]) -> None:
    log = Log(story)
    traces = OpenTraces(always, log.history)
    await fed(traces, story)
    assert await fed(traces, story[-10:]) == []
    assert log.read == []


async def test_a_family_that_is_not_stored_any_more_is_rebuilt_with_its_parent(
    story: list[LoggedFact], expected: list[Span]
) -> None:
    log = Log(story, stored=False)
    cut = 30
    before = await fed(OpenTraces(always, log.history), story[:cut])
    after = await fed(OpenTraces(always, log.history), story[cut:])
    ids = {span.span_id for span in (*before, *after)}
    assert {span.span_id for span in expected if span.name == "workload"} <= ids
