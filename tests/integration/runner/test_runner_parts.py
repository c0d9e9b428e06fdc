"""A job on several machines: each runner starts and stops its own part."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from admittance.api.fields.warning_signal import WARNING_SIGNAL
from admittance.client.requests.link import Link
from admittance.client.requests.workloads.history import output_of
from admittance.events.placement import Placement, PlacementPart
from admittance.events.stored.machines import ALIVE_RUNNERS, RunnerAlive, key_of_runner
from admittance.events.subjects import CLAIMS
from admittance.runner.host.records import run_key
from admittance.runner.runs.claims import Claims
from admittance.runtime import clock
from admittance.runtime.bus.bucket import get
from integration.runner.harness import NAMESPACE, RunnerTestbed, until

pytestmark = pytest.mark.bus


async def parts_on(testbed: RunnerTestbed, *runners: str) -> Placement:
    """One pod on each runner; of a runner that does not exist the id is its name."""
    parts = []
    for first, runner in enumerate(runners):
        entry = await get(testbed.bus, key_of_runner(ALIVE_RUNNERS, runner), bucket=CLAIMS)
        alive = entry and entry.value and msgspec.json.decode(entry.value, type=RunnerAlive)
        id = alive.id if alive else runner
        parts.append(PlacementPart(runner=runner, id=id, pod_set="main", first=first, count=1))
    return tuple(parts)


def outputs(folder: Path) -> dict[str, str]:
    runs = (folder / "runner" / "runs").glob("team.gang.*/out/*.log")
    return {path.stem: path.read_text() for path in runs}


async def test_each_runner_runs_its_own_pods_and_reports_its_part(testbed: RunnerTestbed) -> None:
    async with testbed.runner("a", user="m-1") as first, testbed.runner("b", user="m-2") as two:
        placement = await parts_on(testbed, "m-2", "m-1")
        script = "echo $JOB_COMPLETION_INDEX of $ADMITTANCE_HOSTS; exit $JOB_COMPLETION_INDEX"
        await testbed.admit("gang", script, count=2, placement=placement)

        async def both_finished() -> bool:
            return len(await testbed.all_said("finished", "gang")) == 2

        await until(both_finished, "both results")
        results = await testbed.all_said("finished", "gang")
        assert {fact.part: fact.succeeded for fact in results} == {1: True, 2: False}
        assert outputs(two.folder) == {"main-0": "0 of m-2,m-1\n"}
        assert outputs(first.folder) == {"main-1": "1 of m-2,m-1\n"}
        link = Link(testbed.bus, namespace=NAMESPACE)
        pods = [pod async for reply in output_of(link, "gang") for pod in reply.pods]
        assert sorted(pod.pod for pod in pods) == ["main-0", "main-1"]


async def test_a_runner_answers_an_eviction_also_for_parts_that_no_runner_has_claimed(
    testbed: RunnerTestbed,
) -> None:
    async with testbed.runner("a", user="m-1"):
        placement = await parts_on(testbed, "m-1", "gone")
        admitted = await testbed.admit("gang", "sleep 100", count=2, placement=placement)
        started = await testbed.wait_for_fact("started", "gang")
        assert started.part == 1
        evicted = await testbed.evict("gang", admitted)

        async def both_stopped() -> bool:
            return len(await testbed.all_said("stopped", "gang")) == 2

        await until(both_stopped, "the answers for both parts")
        answers = await testbed.all_said("stopped", "gang")
        assert {(fact.part, fact.revision) for fact in answers} == {(1, evicted), (2, evicted)}


async def test_a_runner_leaves_an_admission_to_the_runner_that_it_is_placed_on(
    testbed: RunnerTestbed,
) -> None:
    async with testbed.runner("a", user="m-1"):
        elsewhere = await parts_on(testbed, "gone")
        await testbed.admit("gang", "true", placement=elsewhere)
        await testbed.admit("own", "true")
        await testbed.wait_for_fact("finished", "own")
        assert await testbed.said("started", "gang") is None


async def test_a_runner_warns_its_part_of_the_drain_of_another_machine(
    testbed: RunnerTestbed,
) -> None:
    async with testbed.runner("a", user="m-1") as mine:
        placement = await parts_on(testbed, "other", "m-1")
        warned = {WARNING_SIGNAL: "USR1@60"}
        admitted = await testbed.admit(
            "gang", "sleep 60", count=2, placement=placement, annotations=warned
        )
        await testbed.wait_for_fact("started", "gang")
        other = Claims(testbed.bus, "other", 60.0)
        await other.take([run_key(NAMESPACE, "gang", admitted, 1)])
        noted = mine.folder / "runner/runs" / run_key(NAMESPACE, "gang", admitted, 2) / "drain"
        assert not noted.exists()
        assert other.set_drain(clock.now() + timedelta(hours=1))
        assert await other.renew(parts_only=True) == []
        await until(noted.exists, "the deadline of the other machine")
        assert other.set_drain(None)
        assert not other.set_drain(None)
        assert await other.renew(parts_only=True) == []
        await until(lambda: not noted.exists(), "the end of the drain")


async def test_a_restarted_runner_reports_the_lost_part_of_another_that_was_not_reported(
    testbed: RunnerTestbed,
) -> None:
    async with testbed.runner("a", user="m-1"):
        placement = await parts_on(testbed, "gone", "m-1")
        admitted = await testbed.admit("gang", "sleep 60", count=2, placement=placement)
        await testbed.wait_for_fact("started", "gang")
    # Its earlier process has marked the claim of the other part, and ended before it said so.
    mine = (testbed.tmp / "a/runner/id").read_text()
    lost = run_key(NAMESPACE, "gang", admitted, 1)
    claims = Claims(testbed.bus, mine, 60.0)
    await claims.take([lost])
    assert await claims.mark_over(lost, before_end=True)
    async with testbed.runner("a", user="m-1"):

        async def is_reported() -> bool:
            said = await testbed.all_said("stopped", "gang")
            return (1, "NodeFailures") in [(fact.part, fact.reason) for fact in said]

        await until(is_reported, "the end of the lost part")
