"""What a forecast process finds when it begins: the runs on the log, and the errors of the last
process."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest

from admittance.events.codec import encode
from admittance.events.facts import QuotaReleased
from admittance.events.subjects import CLAIMS, FORECAST_ERRORS, subject_of
from admittance.forecast.past_runs import PastRun
from admittance.forecast.widening import Interval, Widening
from admittance.forecast_service import past_runs
from admittance.forecast_service.kept_errors import KeptErrorsStore
from admittance.forecast_service.past_runs import read_past_runs
from admittance.runtime import clock
from admittance.runtime.bus.bucket import put_message
from admittance.runtime.bus.bus import Bus, Outgoing
from support.builders import an_admission

pytestmark = [pytest.mark.bus, pytest.mark.servers("simulated")]


def released(number: int, *, ended: bool = True) -> Outgoing:
    since = clock.now() - timedelta(minutes=10)
    fact = QuotaReleased(
        namespace="ns",
        name=f"w{number}",
        uid=f"uid-{number}",
        revision=2,
        since=since,
        until=since + timedelta(seconds=60 + number),
        admission=an_admission(),
        admission_revision=1,
        ended=ended,
        script="train.py",
    )
    return Outgoing(subject_of(fact), encode(fact))


async def read(bus: Bus, after: timedelta = timedelta(seconds=1)) -> tuple[int, list[str]]:
    names: list[str] = []

    async def take(runs: Sequence[PastRun]) -> None:
        names.extend(run.key[1] for run in runs)

    return await read_past_runs(bus, clock.now() + after, take), names


async def test_runs_that_ended_before_the_start_are_read_from_the_log(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Outgoing("admit.workload.quota_released.ns.broken", b"{}")
    await bus.publish_all([released(0), broken, released(1, ended=False), released(2)])
    assert await read(bus) == (4, ["w0", "w2"])
    assert await read(bus, -timedelta(hours=1)) == (0, [])
    monkeypatch.setattr(past_runs, "PAGE", 2)
    assert await read(bus) == (4, ["w0", "w2"])
    monkeypatch.setattr(past_runs, "RELEASES_MAX", 3)
    assert await read(bus) == (3, ["w0"])


async def test_the_next_process_begins_with_the_errors_of_the_last_one(bus: Bus) -> None:
    first, next_one = KeptErrorsStore(bus), KeptErrorsStore(bus)
    assert await first.load() == {}
    widening = Widening()
    await first.store({"tree": widening})
    assert await next_one.load() == {}, "no error is stored before there is one"
    for late in range(20):
        widening.add(Interval(0, 100, 200), 300.0 + late)
    await first.store({"tree": widening})
    found = (await next_one.load())["tree"]
    assert found.sides == pytest.approx(widening.sides, abs=0.01)
    widening.add(Interval(0, 100, 200), 900)
    await first.store({"tree": widening})
    assert len((await next_one.load())["tree"].errors) == 20, "they were stored just now"
    await first.store({"tree": widening}, at_once=True)
    assert len((await next_one.load())["tree"].errors) == 21


async def test_errors_that_cannot_be_read_count_as_none(bus: Bus) -> None:
    await bus.publish(put_message(FORECAST_ERRORS, b"{", expected=None, bucket=CLAIMS))
    assert await KeptErrorsStore(bus).load() == {}
