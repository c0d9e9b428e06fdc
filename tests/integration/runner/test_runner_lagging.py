"""Replicas of a cluster that lag answer a runner with old values: no job is lost or runs twice."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from admittance.events.subjects import CLAIMS
from admittance.runner.runs import admissions
from admittance.runner.runs.claims import Claims, ClaimState
from admittance.runtime.bus import history
from admittance.runtime.bus.bucket import get
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.history import StoredMessage
from integration.runner.harness import NAMESPACE, RunnerTestbed

pytestmark = pytest.mark.bus
KEY = f"{NAMESPACE}.train.1"


@pytest.fixture
def lag(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int], list[str]]:
    """``lag(subject, times)``: the next direct gets of the subject are answered as by a replica
    that does not have it yet. Returns the list of the subjects that were answered so."""

    def begin(wanted: str, times: int) -> list[str]:
        answered: list[str] = []
        read = history.last_by_direct_get

        async def lagging(bus: Bus, subject: str, *, stream: str = "ADMITTANCE") -> object:
            if subject.startswith(wanted) and len(answered) < times:
                answered.append(subject)
                return None
            return await read(bus, subject, stream=stream)

        monkeypatch.setattr(history, "last_by_direct_get", lagging)
        return answered

    return begin


async def test_an_admission_that_a_replica_does_not_know_yet_is_started(
    testbed: RunnerTestbed, lag: Callable[[str, int], list[str]]
) -> None:
    answered = lag("$KV.admittance.workload.", 3)
    async with testbed.runner():
        await testbed.admit("train", "true")
        assert (await testbed.wait_for_fact("finished", "train")).succeeded
    assert len(answered) == 3


async def test_a_runner_that_sees_no_admission_does_not_answer_for_another_runner(
    testbed: RunnerTestbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(_bus: Bus, _subject: str) -> StoredMessage | None:
        return None

    async with testbed.runner("a"):
        script = "trap 'sleep 0.5; exit 1' TERM; while :; do sleep 0.02; done"
        admitted = await testbed.admit("train", script, grace=5)
        await testbed.wait_for_fact("started", "train")
        # The new runner has not read the admission, and its replica of the log lacks it.
        async with testbed.runner("b"):
            monkeypatch.setattr(admissions, "last_by_direct_get", nothing)
            await testbed.evict("train", admitted)
            await testbed.wait_for_fact("stopped", "train")
            (shim,) = testbed.tmp.glob("*/runner/runs/*/shim")
            assert '"outcome"' in (shim.parent / "journal").read_text()
    assert await testbed.count("stopped") == 1


async def test_a_claim_stored_at_the_first_attempt_without_an_answer_is_renewed(
    testbed: RunnerTestbed, lag: Callable[[str, int], list[str]]
) -> None:
    await Claims(testbed.bus, "a", 60.0).take([KEY])
    answered = lag(f"$KV.{CLAIMS}.{KEY}", 2)
    again = Claims(testbed.bus, "a", 60.0)
    (claim,) = await again.take([KEY])
    assert (claim.state, claim.runner) == (ClaimState.HELD, "a")
    assert len(answered) == 2
    stored = await get(testbed.bus, KEY, bucket=CLAIMS)
    assert stored is not None
    assert again.held == {KEY: stored.revision}
