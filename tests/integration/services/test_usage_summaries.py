"""Summaries of usage on a server: leaders that end or compete, a damaged summary, the answers."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from itertools import count
from typing import Any

import msgspec
import pytest

from admittance.control.controller import Controller
from admittance.events.codec import encode
from admittance.events.facts import Finished, QuotaReleased
from admittance.events.requests.reading import Usage, UsageCheck, UsageReply
from admittance.events.subjects import RELEASES, SUMMARIES, SUMMARY, subject_of
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.bus.history import StoredMessage, read_in_order, read_messages
from admittance.runtime.errors import StaleRevision
from admittance.usage.runs import run_of
from admittance.workload_controller.usage import comparing, endpoint
from admittance.workload_controller.usage import summarizer as summarizer_module
from admittance.workload_controller.usage.endpoint import UsageEndpoint
from admittance.workload_controller.usage.summarizer import UsageSummarizer
from support.builders import a_manifest, an_admission
from support.cluster import Cluster
from support.nats.ending_bus import EndingBus, ProcessEnded
from support.requests import apply, ask, eventually, queues, submit

pytestmark = [pytest.mark.bus, pytest.mark.servers("simulated")]


def released(number: int, **fields: Any) -> Outgoing:
    """A fact about a workload that held one cpu for ten seconds, the first one over midnight."""
    today = clock.now().replace(hour=0, minute=0, second=0, microsecond=0)
    since = today - timedelta(seconds=5, hours=number)
    fact = QuotaReleased(
        namespace="ns" if number % 2 else "other",
        name=f"w{number}",
        uid=f"uid-{number}",
        revision=2,
        reason="Succeeded",
        since=since,
        until=since + timedelta(seconds=10),
        admission=an_admission(),
        admission_revision=1,
        ended=True,
        queue="lq",
        submitted_by="ada",
        fact=number + 1,
    )
    return Outgoing(subject_of(fact), encode(fact), fields or None)


async def usage(bus: Bus, summarizer: UsageSummarizer, *by: str, namespace: str = "") -> UsageReply:
    answering = UsageEndpoint(bus, Controller(b"secret"), summarizer)
    subject = f"admit.api.usage.{namespace}" if namespace else "admit.api.usage"
    handler = answering.endpoints()[f"{subject.removesuffix(namespace)}*" if namespace else subject]
    begin = (clock.now() - timedelta(days=40)).date().isoformat()
    reply = await handler(msgspec.json.encode(Usage(by=by, since=begin)), subject)
    assert isinstance(reply, UsageReply)
    assert not reply.error
    return reply


async def held_seconds(bus: Bus) -> int:
    """The plain sum over the facts of the log."""
    messages = await read_messages(bus, [RELEASES], limit=1000)
    runs = {run.key: run for run in (run_of(m.data, m.sequence) for m in messages)}
    return sum(run.until - run.since for run in runs.values())


async def total(bus: Bus, summarizer: UsageSummarizer) -> tuple[int, str]:
    [total] = (await usage(bus, summarizer)).sums
    return total.runs, total.resource_seconds["cpu"]


@pytest.mark.parametrize("stored", range(7))
async def test_a_leader_that_ends_between_two_writes_counts_nothing_twice(
    bus: Bus, stored: int
) -> None:
    await bus.publish_all([released(number) for number in range(4)])
    subjects = count()
    ending: Any = EndingBus(bus, lambda _: next(subjects) >= stored)
    with pytest.raises(ProcessEnded):
        await UsageSummarizer(ending).fold_now()
    await bus.publish_all([released(number) for number in range(2, 8)])
    assert await total(bus, UsageSummarizer(bus)) == (8, str(await held_seconds(bus)))


async def test_of_two_leaders_the_late_one_stores_nothing(bus: Bus) -> None:
    late, leader = UsageSummarizer(bus), UsageSummarizer(bus)
    await bus.publish_all([released(0)])
    await late.fold_now()
    await bus.publish_all([released(2)])
    await leader.fold_now()
    await bus.publish_all([released(4)])
    with pytest.raises(StaleRevision):
        await late.fold_now()
    assert await total(bus, leader) == (3, "30")
    assert await total(bus, late) == (3, "30")


@pytest.mark.parametrize(("page", "new", "runs"), [(1, 0, 1), (2, 2, 2)])
async def test_a_replica_of_the_log_that_lags_changes_no_sum(
    bus: Bus, monkeypatch: pytest.MonkeyPatch, page: int, new: int, runs: int
) -> None:
    await bus.publish_all([released(0)])
    await UsageSummarizer(bus).fold_now()
    await bus.publish_all([released(new)])
    pages = count(1)

    async def without_the_newest(*args: Any, **options: Any) -> tuple[list[StoredMessage], bool]:
        return ([], True) if next(pages) == page else await read_in_order(*args, **options)

    monkeypatch.setattr(summarizer_module, "read_in_order", without_the_newest)
    monkeypatch.setattr(summarizer_module, "LAG_PAUSE_SECONDS", 0.0)
    assert (await total(bus, UsageSummarizer(bus)))[0] == runs


async def test_an_answer_has_what_a_replica_that_lags_lacks(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    summarizer = UsageSummarizer(bus)
    await bus.publish_all([released(0)])
    await summarizer.fold_now()
    old = await read_messages(bus, [f"{SUMMARY}>"], stream=SUMMARIES)
    await bus.publish_all([released(2), released(1)])

    async def lagging(_: Bus, filters: list[str], **asked: Any) -> list[StoredMessage]:
        return [
            summary
            for summary in old
            if summary.sequence > asked.get("after", 0) and _matches(filters[0], summary.subject)
        ]

    monkeypatch.setattr(endpoint, "read_messages", lagging)
    assert (await total(bus, summarizer))[0] == 3
    own = await usage(bus, summarizer, "namespace", namespace="ns")
    assert [(group_sum.group, group_sum.runs) for group_sum in own.sums] == [(("ns",), 1)]


def _matches(pattern: str, subject: str) -> bool:
    pairs = zip(pattern.split("."), subject.split("."), strict=True)
    return all(wanted in ("*", part) for wanted, part in pairs)


async def test_a_summary_that_cannot_be_read_is_set_aside(bus: Bus) -> None:
    summarizer = UsageSummarizer(bus)
    await bus.publish_all([released(0)])
    await summarizer.fold_now()
    [day, *_] = await read_messages(bus, [f"{SUMMARY}>"], stream=SUMMARIES)
    await bus.publish_all([Outgoing(day.subject, b"junk"), Outgoing("admit.usage.position", b"{")])
    await bus.publish_all([Outgoing("admit.workload.quota_released.ns.junk", b"junk"), released(2)])
    assert (await total(bus, UsageSummarizer(bus)))[0] == 2


async def test_a_check_computes_wrong_sums_anew_and_leaves_older_days(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    summarizer = UsageSummarizer(bus)
    await bus.publish_all([released(number) for number in range(0, 60, 4)])
    expected = await total(bus, summarizer)
    today = clock.now().date()
    monkeypatch.setattr(comparing, "first_whole_day", lambda _: today - timedelta(days=1))
    assert (await checked(bus, summarizer)).corrected == 0
    for summary in await read_messages(bus, [f"{SUMMARY}>"], stream=SUMMARIES):
        span, day = summary.subject.split(".")[3:5]
        if span == "day" and day >= (today - timedelta(days=1)).isoformat():
            await bus.publish_all([Outgoing(summary.subject, b"junk")])
    leader = UsageSummarizer(bus)
    found = await checked(bus, leader)
    assert (found.runs, found.corrected, len(found.differences)) == (15, 2, 2)
    assert (await checked(bus, leader)).corrected == 0
    assert await total(bus, UsageSummarizer(bus)) == expected


async def checked(bus: Bus, summarizer: UsageSummarizer) -> UsageCheck:
    answering = UsageEndpoint(bus, Controller(b"secret"), summarizer)
    reply = await answering.endpoints()["admit.api.usage"](
        msgspec.json.encode(Usage(check=True)), "admit.api.usage"
    )
    assert isinstance(reply, UsageReply)
    assert reply.checked is not None
    return reply.checked


async def test_a_namespace_sees_only_its_own_usage(bus: Bus) -> None:
    summarizer = UsageSummarizer(bus)
    await bus.publish_all([released(number) for number in range(3)])
    every = await usage(bus, summarizer, "namespace", "user")
    assert [(group_sum.group, group_sum.runs) for group_sum in every.sums] == [
        (("ns", "ada"), 1),
        (("other", "ada"), 2),
    ]
    own = await usage(bus, summarizer, "namespace", namespace="ns")
    assert [(total.group, total.runs) for total in own.sums] == [(("ns",), 1)]
    assert own.begins


async def test_usage_of_a_live_system_includes_what_runs_now(cluster: Cluster, bus: Bus) -> None:
    await cluster.start("workload-controller")
    await cluster.start("scheduler")
    await apply(bus, *queues("cq"))
    await submit(bus, [a_manifest("w", queue="lq-cq")])

    async def sums() -> UsageReply:
        reply: UsageReply = await ask(bus, "admit.api.usage.ns", Usage(), UsageReply)
        return reply

    async def runs() -> bool:
        return [group_sum.running for group_sum in (await sums()).sums] == [1]

    await eventually(runs)
    await asyncio.sleep(60)
    before = int((await sums()).sums[0].resource_seconds["cpu"])
    assert before >= 60
    ends = Finished(namespace="ns", name="w")
    await bus.publish(Outgoing(subject_of(ends), encode(ends)))

    async def ended() -> bool:
        return [(group_sum.running, group_sum.finished) for group_sum in (await sums()).sums] == [
            (0, 1)
        ]

    await eventually(ended)
    [total] = (await sums()).sums
    assert before <= int(total.resource_seconds["cpu"]) <= before + 5
    assert (total.runs, total.wait_seconds) == (1, 0)


async def test_a_wrong_question_is_answered_with_a_sentence(bus: Bus) -> None:
    answering = UsageEndpoint(bus, Controller(b"secret"), UsageSummarizer(bus))
    handler = answering.endpoints()["admit.api.usage"]
    of_one = await handler(msgspec.json.encode(Usage(check=True)), "admit.api.usage.ns")
    assert "the sums of all namespaces are checked together" in of_one.error
    for request, said in (
        (Usage(by=("colour",)), '"colour" is not one of cluster-queue, namespace, queue, user'),
        (Usage(by=("user", "user")), "user is named twice"),
        (Usage(since="yesterday"), '"yesterday" is not a day like 2026-11-26'),
        (Usage(since="2025-12-31", until="2025-12-30"), "is after the last day"),
        (Usage(since="1970-01-01"), "more than 20 years"),
        (Usage(since="9998-01-01", until="9999-01-01"), "9998-01-01 has not begun: in UTC it is"),
    ):
        reply = await handler(msgspec.json.encode(request), "admit.api.usage")
        assert isinstance(reply, UsageReply)
        assert said in reply.error
