"""Claims of runners: two runners start a job once, and a job stops when its claim is lost."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from admittance.events.names import token
from admittance.events.subjects import CLAIMS, RUNNER_DURABLE, STREAM
from admittance.runner.host.records import run_key
from admittance.runner.runs.claims import Claim, Claims, ClaimState
from admittance.runtime.bus.bucket import get, put_message
from admittance.runtime.bus.durables import list_consumers
from integration.runner.harness import NAMESPACE, RunnerProcess, RunnerTestbed, until

pytestmark = pytest.mark.bus
KEY = f"{NAMESPACE}.train.1"


def starts(testbed: RunnerTestbed) -> list[Path]:
    return sorted(testbed.tmp.glob("*/runner/runs/*/shim"))


async def test_a_runner_has_the_consumers_that_the_role_of_its_user_names(
    testbed: RunnerTestbed,
) -> None:
    async with testbed.runner(user="gpu.one"):
        for stream in (STREAM, f"KV_{CLAIMS}"):

            async def is_there(stream: str = stream) -> bool:
                names = [info["name"] for info in await list_consumers(testbed.bus, stream)]
                return f"{RUNNER_DURABLE}{token('gpu.one')}" in names

            await until(is_there, f"the consumer of {stream}")
        await testbed.admit("train", "true")
        assert (await testbed.wait_for_fact("finished", "train")).succeeded


async def test_two_runners_start_each_admission_once(testbed: RunnerTestbed) -> None:
    async with testbed.runner("a"), testbed.runner("b"):
        for number in range(20):
            await testbed.admit(f"train-{number}", "sleep 0.1")
        for number in range(20):
            await testbed.wait_for_fact("finished", f"train-{number}")
    assert len(starts(testbed)) == 20
    assert await testbed.count("started") == 20


async def test_an_eviction_is_answered_by_the_runner_that_has_the_job(
    testbed: RunnerTestbed,
) -> None:
    async with testbed.runner("a"), testbed.runner("b"):
        script = "trap 'sleep 0.5; exit 1' TERM; while :; do sleep 0.02; done"
        admitted = await testbed.admit("train", script, grace=5)
        await testbed.wait_for_fact("started", "train")
        evicted = await testbed.evict("train", admitted)
        stopped = await testbed.wait_for_fact("stopped", "train")
        assert stopped.revision == evicted
        (shim,) = starts(testbed)
        assert '"outcome"' in (shim.parent / "journal").read_text()
    assert await testbed.count("stopped") == 1


async def test_a_runner_that_cannot_renew_a_claim_stops_its_job_in_time(
    testbed: RunnerTestbed,
) -> None:
    async with testbed.runner(claim_ttl=6.0) as runner:
        await testbed.admit("train", "sleep 60")
        await testbed.wait_for_fact("started", "train")
        claims = await get(testbed.bus, run_key(NAMESPACE, "train", 1), bucket=CLAIMS)
        assert claims is not None
        assert runner.bus is not None
        (shim,) = starts(testbed)
        journal = shim.parent / "journal"
        runner.bus.publish_all = _unavailable  # type: ignore
        await until(lambda: '"lost"' in journal.read_text(), "the job's end")
        claim = await get(testbed.bus, run_key(NAMESPACE, "train", 1), bucket=CLAIMS)
        assert claim is not None
        assert claim.value is not None, "the claim outlives the job"
        del runner.bus.publish_all
        stopped = await testbed.wait_for_fact("stopped", "train")
        assert stopped.reason == "NodeFailures"


async def _unavailable(*_: object, **__: object) -> list[int]:
    from admittance.runtime.errors import BusUnavailable

    await asyncio.sleep(0.05)
    raise BusUnavailable("cut off")


async def test_jobs_of_a_dead_runner_are_reported_lost_by_another_runner(
    testbed: RunnerTestbed,
) -> None:
    async with RunnerProcess(testbed, testbed.tmp / "a", claim_ttl=2.0) as first:
        admitted = await testbed.admit("train", "setsid env -i /bin/sleep 65 & echo $!; sleep 60")
        await testbed.wait_for_fact("started", "train")
        (run,) = starts(testbed)
        out = run.parent / "out/main-0.log"
        await until(lambda: out.exists() and out.read_text(), "the pid")
        orphan = psutil.Process(int(out.read_text()))
        shim, _, fork_server, _ = map(int, run.read_text().split())
        async with testbed.runner("b"):
            await first.kill()
            os.kill(fork_server, signal.SIGKILL)
            os.kill(shim, signal.SIGKILL)
            assert orphan.is_running()
            stopped = await testbed.wait_for_fact("stopped", "train")
    assert (stopped.revision, stopped.reason) == (admitted, "NodeFailures")
    assert not orphan.is_running() or orphan.status() == psutil.STATUS_ZOMBIE
    assert len(starts(testbed)) == 1, "what is lost is not started again under the same admission"


async def ended_without_its_runner(testbed: RunnerTestbed) -> int:
    """A job of the dead runner a has succeeded, and its claim is still valid. Returns the
    admission."""
    flag = testbed.tmp / "flag"
    async with RunnerProcess(testbed, testbed.tmp / "a", claim_ttl=2.0) as first:
        admitted = await testbed.admit(
            "train", f"until test -e {flag}; do sleep 0.02; done; echo ok"
        )
        await testbed.wait_for_fact("started", "train")
        await first.kill()
    flag.touch()
    (shim,) = starts(testbed)
    await until(lambda: '"succeeded"' in (shim.parent / "journal").read_text(), "its end")
    return admitted


async def test_the_result_of_a_dead_runner_counts_for_a_runner_with_its_folder(
    testbed: RunnerTestbed,
) -> None:
    admitted = await ended_without_its_runner(testbed)
    async with testbed.runner("b"):
        finished = await testbed.wait_for_fact("finished", "train")
        assert (finished.revision, finished.succeeded) == (admitted, True)
        async with testbed.runner("a"):
            await testbed.admit("marker", "true")
            await testbed.wait_for_fact("finished", "marker")
    assert await testbed.said("stopped", "train") is None
    assert await testbed.count("finished") == 2, "each is said once"
    assert len(starts(testbed)) == 2


async def test_a_runner_says_where_its_folder_is_before_it_claims_a_job(
    testbed: RunnerTestbed,
) -> None:
    await testbed.admit("train", "sleep 60")
    async with testbed.runner("a"):
        await testbed.wait_for_fact("started", "train")
        name = (testbed.tmp / "a/runner/id").read_text()
        claim = await get(testbed.bus, run_key(NAMESPACE, "train", 1), bucket=CLAIMS)
        folder = await get(testbed.bus, f"_runner.{name}", bucket=CLAIMS)
        assert claim is not None
        assert folder is not None
        assert folder.revision < claim.revision


async def test_a_result_that_came_too_late_ends_the_rerun_before_it_starts(
    testbed: RunnerTestbed,
) -> None:
    admitted = await ended_without_its_runner(testbed)
    # As on another machine: what is at that path there is not the folder of that runner.
    name = testbed.tmp / "a/runner/id"
    mine = name.read_text()
    name.write_text("another")
    async with testbed.runner("b"):
        assert (await testbed.wait_for_fact("stopped", "train")).reason == "NodeFailures"
    name.write_text(mine)
    again = await testbed.put("train", admitted, "QuotaReserved", "Admitted")
    await testbed.say_admitted("train", again, "echo ran twice")
    async with testbed.runner("a"):

        async def finished() -> bool:
            said = await testbed.said("finished", "train")
            return said is not None and said.revision == again and said.succeeded

        await until(finished, "the result, as that of the rerun")
    assert len(starts(testbed)) == 1, "the work was done, and is not done again"


async def test_a_restarted_runner_reports_a_lost_job_that_was_not_reported(
    testbed: RunnerTestbed,
) -> None:
    async with testbed.runner("a"):
        pass
    mine = (testbed.tmp / "a/runner/id").read_text()
    claims = Claims(testbed.bus, mine, 60.0)
    admitted = await testbed.admit("train", "echo ran")
    key = run_key(NAMESPACE, "train", admitted)
    await claims.take([key])
    assert await claims.mark_over(key, before_end=True)
    async with testbed.runner("a"):
        stopped = await testbed.wait_for_fact("stopped", "train")
    assert (stopped.revision, stopped.reason) == (admitted, "NodeFailures")


async def test_a_job_is_stopped_when_its_claim_was_removed(testbed: RunnerTestbed) -> None:
    async with testbed.runner(claim_ttl=2.0):
        revision = await testbed.admit("train", "sleep 60")
        await testbed.wait_for_fact("started", "train")
        key = run_key(NAMESPACE, "train", revision)
        entry = await get(testbed.bus, key, bucket=CLAIMS)
        assert entry is not None
        other = Claims(testbed.bus, "other", 60.0)
        other.held[key] = entry.revision
        assert await other.renew() == []
        (shim,) = starts(testbed)
        await until(lambda: '"outcome"' in (shim.parent / "journal").read_text(), "its end")
    assert await testbed.said("stopped", "train") is None, "that is for the holder to say"


async def test_a_job_is_stopped_when_its_claim_is_overwritten_with_junk(
    testbed: RunnerTestbed,
) -> None:
    """The claim is treated like that of a dead runner: the workload runs again, under another
    admission."""
    async with testbed.runner():
        admitted = await testbed.admit("train", "sleep 60")
        await testbed.wait_for_fact("started", "train")
        key = run_key(NAMESPACE, "train", admitted)
        await testbed.bus.publish(put_message(key, b"junk", expected=None, bucket=CLAIMS))
        stopped = await testbed.wait_for_fact("stopped", "train")
        assert stopped.revision == admitted


async def test_a_released_claim_is_taken_over_by_another_runner(testbed: RunnerTestbed) -> None:
    flag = testbed.tmp / "flag"
    async with RunnerProcess(testbed, testbed.tmp / "a") as first:
        revision = await testbed.admit("train", f"test -e {flag} || sleep 60")
        await testbed.wait_for_fact("started", "train")
        async with testbed.runner("b"):
            flag.touch()
            assert first.process is not None
            first.process.terminate()
            await first.process.wait()
            finished = await testbed.wait_for_fact("finished", "train")
    assert (finished.revision, finished.succeeded) == (revision, True)
    # The first runner gave the job back, and the second ran it from its beginning.
    (shim,) = starts(testbed)
    assert shim.is_relative_to(testbed.tmp / "b")


class TestClaims:
    async def test_a_claim_is_granted_to_one_of_two_runners(self, testbed: RunnerTestbed) -> None:
        a, b = (Claims(testbed.bus, name, 60.0) for name in "ab")
        assert (await a.take([KEY]))[0].runner == "a"
        assert (await b.take([KEY]))[0].runner == "a"

    async def test_a_claim_is_granted_again_to_the_same_runner(
        self, testbed: RunnerTestbed
    ) -> None:
        first = (await Claims(testbed.bus, "a", 60.0).take([KEY]))[0]
        again = (await Claims(testbed.bus, "a", 60.0).take([KEY]))[0]
        assert (again.runner, again.revision > first.revision) == ("a", True)

    async def test_a_claim_of_a_lost_job_cannot_be_taken(self, testbed: RunnerTestbed) -> None:
        a, b = (Claims(testbed.bus, name, 60.0) for name in "ab")
        await a.take([KEY])
        assert not await b.mark_over(KEY)
        assert await a.mark_over(KEY)
        assert await a.mark_over(KEY), "saying so twice is saying so once"
        assert not await b.mark_over(KEY)
        assert (await b.take([KEY]))[0].state is ClaimState.OVER

    async def test_the_end_of_a_job_is_marked_without_a_read_if_the_claim_has_not_changed(
        self, testbed: RunnerTestbed, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        same, other = (Claims(testbed.bus, name, 60.0) for name in "ab")
        for held_by, is_marked, reads in ((None, True, 0), (same, True, 1), (other, False, 1)):
            key = run_key(NAMESPACE, f"train-{reads}-{is_marked}", 1)
            claims = Claims(testbed.bus, "a", 60.0)
            await claims.take([key])
            if held_by is not None:
                await same.take([key])
                if held_by is other:
                    await same.release(key)
                await held_by.take([key])
            asked: list[str] = []
            read = claims.read

            async def counted(key: str, *, at_least: int = 0, read: Any = read) -> Claim:
                asked.append(key)  # noqa: B023
                claim: Claim = await read(key, at_least=at_least)
                return claim

            monkeypatch.setattr(claims, "read", counted)
            assert bool(await claims.mark_over(key)) == is_marked
            assert len(asked) == reads
            assert ((await same.read(key)).state is ClaimState.OVER) == is_marked

    async def test_a_mark_is_taken_over_by_one_runner_until_the_end_is_published(
        self, testbed: RunnerTestbed
    ) -> None:
        a, b, c = (Claims(testbed.bus, name, 60.0, name.encode()) for name in "abc")
        await a.take([KEY])
        mark = await a.mark_over(KEY, before_end=True)
        assert mark is not None
        assert await a.mark_over(KEY, before_end=True) == mark
        assert await b.read(KEY) == mark
        taken = await b.take_over(KEY, mark)
        assert taken is not None
        assert (taken.runner, taken.end) == ("b", mark.end)
        assert await c.take_over(KEY, mark) is None
        # The first runner was slow: it publishes with the same id, and leaves the mark as it is.
        await a.note_published(KEY, mark)
        assert await c.read(KEY) == taken
        await b.note_published(KEY, taken)
        assert (await c.read(KEY))[:2] == (ClaimState.OVER, "b")
        assert (await c.read(KEY)).end == ""
        # A second end of the same job, such as the answer to an eviction, is marked once more.
        assert (await b.mark_over(KEY, before_end=True) or mark).end not in ("", mark.end)

    async def test_a_released_claim_is_free(self, testbed: RunnerTestbed) -> None:
        a, b = (Claims(testbed.bus, name, 60.0) for name in "ab")
        await a.take([KEY])
        await a.release(KEY)
        assert (await b.take([KEY]))[0].runner == "b"

    async def test_a_renewed_claim_is_valid_and_an_expired_claim_can_be_taken(
        self, testbed: RunnerTestbed
    ) -> None:
        a, b = (Claims(testbed.bus, name, 1.0) for name in "ab")
        await a.take([KEY])
        for _ in range(4):
            await asyncio.sleep(0.4)
            assert await a.renew() == []
        assert (await b.take([KEY]))[0].state is ClaimState.HELD

        async def expired() -> bool:
            return (await b.read(KEY)).state is ClaimState.EXPIRED

        await until(expired, "the end of the claim")
        assert (await b.take([KEY]))[0].state is ClaimState.EXPIRED
        assert await a.renew() == [KEY]
        assert (await a.take([KEY], again=True))[0].runner == "a"
        assert not await b.mark_over(KEY, dead_only=True)

    async def test_a_runner_reports_an_end_that_its_last_process_marked(
        self, testbed: RunnerTestbed
    ) -> None:
        await Claims(testbed.bus, "a", 1.0).take([KEY])

        async def expired() -> bool:
            return (await Claims(testbed.bus, "b", 1.0).read(KEY)).state is ClaimState.EXPIRED

        await until(expired, "the end of the claim")
        for _ in range(2):
            # The first process ended before it got an answer.
            assert await Claims(testbed.bus, "b", 1.0).mark_over(KEY, dead_only=True)
        assert not await Claims(testbed.bus, "c", 1.0).mark_over(KEY, dead_only=True)
