"""kill -9 of a runner, of a shim, of the server: nothing is lost, nothing runs twice."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from admittance.events.subjects import CLAIMS
from admittance.runner.host.records import run_key
from admittance.runner.runs.admissions import AdmissionReader
from admittance.runner.service import run
from admittance.runtime.bus import streams
from admittance.runtime.bus.bucket import get
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.bus.pull_consumer import MadeConsumer
from admittance.runtime.errors import BusUnavailable
from admittance.runtime.nats_server.embedded_server import EmbeddedServer
from admittance.runtime.process.settings import Settings
from integration.runner.harness import (
    CHECKPOINTS,
    NAMESPACE,
    OWN_RULES,
    RunnerProcess,
    RunnerTestbed,
    until,
)
from support.servers import within

pytestmark = pytest.mark.bus


def the_run(testbed: RunnerTestbed) -> Path:
    (folder,) = (testbed.tmp / "a/runner/runs").iterdir()
    return folder


async def said(testbed: RunnerTestbed, text: str) -> None:
    """Waits until the job has printed that."""
    await testbed.wait_for_fact("started", "train")
    out = the_run(testbed) / "out/main-0.log"
    await until(lambda: out.exists() and text in out.read_text(), text)


@pytest.mark.parametrize("junk", [b"junk", b"{}"], ids=["no JSON", "no fact"])
async def test_junk_behind_an_admission_does_not_hide_it(
    testbed: RunnerTestbed, junk: bytes
) -> None:
    revision = await testbed.admit("train", "true")
    await testbed.bus.publish(Outgoing(f"admit.workload.admitted.{NAMESPACE}.train", junk))
    async with testbed.runner():
        finished = await testbed.wait_for_fact("finished", "train")
    assert (finished.revision, finished.succeeded) == (revision, True)


async def test_a_job_that_ends_while_the_runner_is_down_keeps_its_result(
    testbed: RunnerTestbed,
) -> None:
    flag = testbed.tmp / "flag"
    async with RunnerProcess(testbed, testbed.tmp / "a") as first:
        revision = await testbed.admit(
            "train", f"while ! test -e {flag}; do sleep 0.02; done; exit 7"
        )
        await testbed.wait_for_fact("started", "train")
        await first.kill()
    flag.touch()
    journal = the_run(testbed) / "journal"
    await until(lambda: '"outcome"' in journal.read_text(), "its end")
    async with testbed.runner():
        finished = await testbed.wait_for_fact("finished", "train")
    assert (finished.revision, finished.message) == (revision, "pod main-0 failed: exit code 7")


async def test_an_eviction_while_the_runner_is_down_stops_the_job(testbed: RunnerTestbed) -> None:
    async with RunnerProcess(testbed, testbed.tmp / "a") as first:
        admitted = await testbed.admit("train", CHECKPOINTS, grace=10)
        await said(testbed, "on")
        await first.kill()
    evicted = await testbed.evict("train", admitted)
    async with testbed.runner():
        assert (await testbed.wait_for_fact("stopped", "train")).revision == evicted
    assert '"outcome"' in (the_run(testbed) / "journal").read_text()
    assert await testbed.said("finished", "train") is None, "it exited 0 to go on later"


async def test_a_job_is_stopped_when_its_admission_ended_while_the_runner_was_down(
    testbed: RunnerTestbed,
) -> None:
    async with RunnerProcess(testbed, testbed.tmp / "a") as first:
        admitted = await testbed.admit("train", "sleep 60")
        await testbed.wait_for_fact("started", "train")
        await first.kill()
    await testbed.put("train", admitted)
    journal = the_run(testbed) / "journal"
    async with testbed.runner():
        await until(lambda: '"outcome"' in journal.read_text(), "its end")
    assert await testbed.said("finished", "train") is None


async def test_a_runner_that_cannot_watch_claims_yet_runs_jobs(
    testbed: RunnerTestbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, refused = AdmissionReader.make_consumer, list[str]()

    async def later(
        self: AdmissionReader, runner: str, stream: str, after: int | None
    ) -> MadeConsumer:
        if stream == "claims" and not refused:
            refused.append(stream)
            raise BusUnavailable("the server is gone")
        return await make(self, runner, stream, after)

    monkeypatch.setattr(AdmissionReader, "make_consumer", later)
    async with testbed.runner():
        await testbed.admit("train", "true")
        assert (await testbed.wait_for_fact("finished", "train")).succeeded
    assert refused


async def test_a_run_that_is_closed_while_a_start_reads_workloads_ends_no_runner(
    testbed: RunnerTestbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    flag = testbed.tmp / "flag"
    async with RunnerProcess(testbed, testbed.tmp / "a") as first:
        admitted = await testbed.admit("train", f"while ! test -e {flag}; do sleep 0.02; done")
        await testbed.wait_for_fact("started", "train")
        await first.kill()
    run = the_run(testbed)
    await testbed.put("train", admitted)
    read = AdmissionReader.views

    async def views(self: AdmissionReader, of: Sequence[tuple[str, str, int]]) -> object:
        content = await read(self, of)
        flag.touch()
        await until((run / "said").exists, "the end of the run, as published")
        return content

    monkeypatch.setattr(AdmissionReader, "views", views)
    async with testbed.runner():
        finished = await testbed.wait_for_fact("finished", "train")
    assert finished.revision == admitted


async def test_a_killed_shim_leaves_no_process_and_the_job_is_lost(testbed: RunnerTestbed) -> None:
    async with testbed.runner():
        revision = await testbed.admit(
            "train", "setsid sleep 64 & echo $!; setsid env -i /bin/sleep 66 & echo $!; wait"
        )
        await testbed.wait_for_fact("started", "train")
        out = the_run(testbed) / "out/main-0.log"
        await until(lambda: out.exists() and out.read_text().count("\n") == 2, "both pids")
        os.kill(int((the_run(testbed) / "shim").read_text().split()[0]), signal.SIGKILL)
        stopped = await testbed.wait_for_fact("stopped", "train")
    assert (stopped.revision, stopped.reason) == (revision, "NodeFailures")
    for child in map(int, out.read_text().split()):
        assert (
            not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE
        )


async def test_the_next_runner_ends_a_job_without_shim_fork_server_and_runner(
    testbed: RunnerTestbed,
) -> None:
    async with RunnerProcess(testbed, testbed.tmp / "a") as first:
        orphan = "(cd /; setsid env -i /bin/sleep 67 <&- >&- 2>&- & echo $!)"
        await testbed.admit("train", f"{orphan}; echo on; sleep 68")
        await said(testbed, "on")
        left = psutil.Process(int((the_run(testbed) / "out/main-0.log").read_text().split()[0]))
        await until(lambda: not left.environ(), "the empty environment")
        shim, _, fork_server, _ = map(int, (the_run(testbed) / "shim").read_text().split())
        await first.kill()
        os.kill(fork_server, signal.SIGKILL)
        os.kill(shim, signal.SIGKILL)
    assert left.is_running()
    async with testbed.runner():
        stopped = await testbed.wait_for_fact("stopped", "train")
    assert stopped.reason == "NodeFailures"
    assert not left.is_running() or left.status() == psutil.STATUS_ZOMBIE


async def test_a_job_that_removes_its_run_folder_fails_and_others_continue(
    testbed: RunnerTestbed,
) -> None:
    async with testbed.runner():
        await testbed.admit("removes-folder", "rm -rf $(cd ../.. && pwd); sleep 60")
        finished = await testbed.wait_for_fact("finished", "removes-folder")
        assert (finished.succeeded, finished.message) == (
            False,
            "the folder of its run was removed",
        )
        await testbed.admit("good", "exit 0")
        assert (await testbed.wait_for_fact("finished", "good")).succeeded


async def test_a_shim_that_hangs_when_its_runner_ends_is_killed(
    testbed: RunnerTestbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("admittance.runner.upkeep.CHECK_SECONDS", 0.1)
    monkeypatch.setattr("admittance.runner.runs.run_checks.HUNG_SECONDS", 0.5)
    async with testbed.runner():
        revision = await testbed.admit("train", "sleep 600 & echo $!; wait", grace=0)
        await testbed.wait_for_fact("started", "train")
        out = the_run(testbed) / "out/main-0.log"
        job = int(await until(lambda: out.exists() and out.read_text(), "the job's pid"))
        os.kill(int((the_run(testbed) / "shim").read_text().split()[0]), signal.SIGSTOP)
    stopped = await testbed.said("stopped", "train")
    assert (stopped.revision, stopped.reason) == (revision, "NodeFailures")
    assert not psutil.pid_exists(job) or psutil.Process(job).status() == psutil.STATUS_ZOMBIE


async def test_facts_arrive_again_within_a_second_of_a_server_restart(
    testbed: RunnerTestbed,
) -> None:
    async with testbed.runner():
        await testbed.admit("before", "true")
        await testbed.wait_for_fact("finished", "before")
        await testbed.kill_server()
        await testbed.start_server()
        await testbed.admit("after", "true")
        await testbed.wait_for_fact("finished", "after", 3.0)


async def test_jobs_continue_after_all_processes_are_killed_at_once(testbed: RunnerTestbed) -> None:
    flag = testbed.tmp / "flag"
    async with RunnerProcess(testbed, testbed.tmp / "a") as first:
        await testbed.admit("train", f"while ! test -e {flag}; do sleep 0.02; done; echo done")
        await testbed.wait_for_fact("started", "train")
        await testbed.kill_server()
        await first.kill()
    flag.touch()
    await testbed.start_server()
    async with testbed.runner():
        assert (await testbed.wait_for_fact("finished", "train")).succeeded
    assert (the_run(testbed) / "out/main-0.log").read_text() == "done\n"


async def test_a_runner_ends_in_order_also_when_the_server_is_gone(testbed: RunnerTestbed) -> None:
    async with RunnerProcess(testbed, testbed.tmp / "a") as first:
        revision = await testbed.admit("train", CHECKPOINTS, grace=10)
        await said(testbed, "on")
        await testbed.kill_server()
        assert first.process is not None
        first.process.terminate()
        # Its own limit, for what a server that is there has to hear, is a minute.
        assert await within(first.process.wait()) == 0
    assert "saved" in (the_run(testbed) / "out/main-0.log").read_text()
    await testbed.start_server()
    async with testbed.runner():
        await until(lambda: testbed.count("started"), "its first start")
        stopped = await testbed.wait_for_fact("stopped", "train")
        assert (stopped.revision, stopped.reason) == (revision, "RunnerEnded")

        async def again() -> bool:
            return await testbed.count("started") == 2

        await until(again, "its second start")


async def test_a_job_with_an_unpublished_start_is_stopped_without_the_bus(
    testbed: RunnerTestbed,
) -> None:
    async with testbed.runner() as runner:
        assert runner.bus is not None
        publish, runner.bus.publish = runner.bus.publish, _unavailable  # type: ignore[method-assign]
        await testbed.admit("train", CHECKPOINTS, grace=10)
        await until(lambda: list(testbed.tmp.glob("a/runner/runs/*/out/main-0.log")), "its start")
        out = the_run(testbed) / "out/main-0.log"
        await until(lambda: "on" in out.read_text(), "its first word")
        await testbed.kill_server()
        await until(lambda: not runner.bus.is_up, "the loss of the connection")  # type: ignore
        runner.stop.set()
        assert runner.task is not None
        await within(runner.task)
        runner.bus.publish = publish  # type: ignore[method-assign]
    assert "saved" in out.read_text()
    await testbed.start_server()


async def _unavailable(*_: object, **__: object) -> int:
    raise BusUnavailable("cut off")


async def test_every_job_runs_once_when_the_runner_is_killed_repeatedly(
    testbed: RunnerTestbed,
) -> None:
    count = 40
    tally = testbed.tmp / "tally"
    tally.mkdir()
    for number in range(count):
        name = f"train-{number}"
        # Were it started twice, mkdir would fail the job.
        await testbed.admit(name, f"mkdir {tally}/{name} && sleep 0.3")
    for pause in (0.5, 0.55, 0.6, 0.7, 0.9):
        async with RunnerProcess(testbed, testbed.tmp / "a") as runner:
            await asyncio.sleep(pause)
            await runner.kill()
    async with testbed.runner():
        for number in range(count):
            finished = await testbed.wait_for_fact("finished", f"train-{number}")
            assert finished.succeeded, finished.message
    assert await testbed.count("stopped") == 0
    assert await testbed.count("finished") == count, "each is said once, however often it was tried"


async def test_a_runner_renews_claims_while_no_workload_controller_answers(
    testbed: RunnerTestbed,
) -> None:
    """Otherwise another runner takes the claims and reports the running jobs as lost."""
    flag = testbed.tmp / "flag"
    async with RunnerProcess(testbed, testbed.tmp / "a") as first:
        revision = await testbed.admit("train", f"while ! test -e {flag}; do sleep 0.02; done")
        await testbed.wait_for_fact("started", "train")
        await first.kill()
    await testbed.endpoints.stop()

    async def claimed() -> int:
        claim = await get(testbed.bus, run_key(NAMESPACE, "train", revision), bucket=CLAIMS)
        return claim.revision if claim is not None else 0

    before = await claimed()
    runner = testbed.runner(claim_ttl=3.0)
    starting = asyncio.create_task(runner.__aenter__())

    async def renewed() -> bool:
        return await claimed() > before + 1

    await until(renewed, "two renewals of the claim")
    assert not starting.done()
    await testbed.start_endpoints()
    await starting
    flag.touch()
    assert (await testbed.wait_for_fact("finished", "train")).succeeded
    await runner.__aexit__()


async def test_a_runner_ends_while_it_waits_for_a_workload_controller(tmp_path: Path) -> None:
    server = EmbeddedServer(tmp_path / "nats")
    bus = await Bus.connect(await server.start(), name="test")
    try:
        await streams.ensure(bus)
        asked = await bus.nc.subscribe("admit.api.consumer.runner.*")
        settings = Settings(service="runner", instance="a", url=server.url, data_dir=tmp_path / "a")
        stop = asyncio.Event()
        runner = asyncio.create_task(run(bus, settings, stop=stop, rules=OWN_RULES))
        await asked.next_msg(timeout=30)
        stop.set()
        await within(runner)
    finally:
        await bus.close()
        await server.stop()
