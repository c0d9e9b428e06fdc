"""The sums that the budget-controller reads: stored ones, and the facts that came after them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from admittance.budget_controller import usage_reader
from admittance.budget_controller.usage_reader import UsageReader
from admittance.events.codec import encode
from admittance.events.facts import QuotaReleased
from admittance.events.subjects import subject_of
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.bus.history import StoredMessage
from admittance.runtime.errors import BusUnavailable
from admittance.usage.periods import Period
from admittance.usage.runs import Run
from admittance.workload_controller.usage.summarizer import UsageSummarizer
from support.builders import an_admission

pytestmark = [pytest.mark.bus, pytest.mark.servers("simulated")]


def released(number: int, seconds: int = 10) -> Outgoing:
    """A fact about a workload that held one cpu today."""
    today = clock.now().replace(hour=0, minute=0, second=0, microsecond=0)
    since = today + timedelta(minutes=number)
    fact = QuotaReleased(
        namespace="ns",
        name=f"w{number}",
        uid=f"uid-{number}",
        revision=2,
        reason="Succeeded",
        since=since,
        until=since + timedelta(seconds=seconds),
        admission=an_admission(),
        admission_revision=1,
        ended=True,
        queue="lq",
        fact=number + 1,
    )
    return Outgoing(subject_of(fact), encode(fact))


def today(before: int = 0) -> frozenset[Period]:
    days = {clock.now().date() - timedelta(days=day) for day in range(before + 1)}
    return frozenset(Period("day", day.isoformat()) for day in days)


async def used(reader: UsageReader, periods: frozenset[Period] = frozenset()) -> int:
    """CPU-seconds in the summaries of today."""
    summaries = (await reader.read(periods or today())).summaries
    assert {about.period.span for about in summaries} <= {"day"}
    milli = sum(
        counts.amounts.get("cpu", 0)
        for summary in summaries.values()
        for counts in summary.rows.values()
    )
    return milli // 1000


async def test_sums_have_each_fact_once_wherever_the_stored_ones_end(bus: Bus) -> None:
    runs: list[Run] = []
    early = UsageReader(bus, runs.append)
    assert await used(early) == 0
    await bus.publish_all([released(0), released(1)])
    await UsageSummarizer(bus).fold_now()
    assert await used(early) == 20
    # The end of one run is reported a second time, by the next leader after a crash.
    await bus.publish_all([released(2), released(1, seconds=30)])
    late: list[Run] = []
    reader = UsageReader(bus, late.append)
    assert (await used(early), await used(reader)) == (50, 50)
    assert [run.uid for run in runs] == ["uid-0", "uid-1", "uid-2", "uid-1"]
    assert [run.uid for run in late] == ["uid-2", "uid-1"]
    await UsageSummarizer(bus).fold_now()
    assert (await used(early), await used(reader)) == (50, 50)
    # Other periods are read anew.
    assert await used(early, today(1)) == 50
    await bus.publish_all([released(3)])
    assert await used(early, today(1)) == 60


async def test_a_replica_of_the_log_that_lags_gives_no_sums(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bus.publish_all([released(0)])
    reader = UsageReader(bus, lambda _: None)

    async def behind(*_: object, **__: object) -> tuple[list[StoredMessage], bool]:
        return [], True

    with monkeypatch.context() as patched:
        patched.setattr(usage_reader, "read_in_order", behind)
        with pytest.raises(BusUnavailable, match="a replica of the log lacks message"):
            await used(reader)
    assert await used(reader) == 10
