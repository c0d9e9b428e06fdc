"""From admitted to finished, from evicted to stopped: one runner, a real server, real processes."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from admittance.events.requests import Logs, LogsReply
from admittance.runner.claims import Claims, ClaimState
from admittance.runner.machine import run_key
from admittance.runner.service import run
from admittance.runtime.bus.history import read_messages
from admittance.runtime.errors import SetupError, Unavailable
from admittance.runtime.process.settings import Settings
from integration.runner.harness import CHECKPOINTS, NAMESPACE, World, until

pytestmark = pytest.mark.bus


def output(world: World, folder: str = "a", pod: str = "main-0") -> str:
    found = sorted((world.tmp / folder / "runner/runs").glob(f"*/out/{pod}.log"))
    return "".join(path.read_text() for path in found)


async def ask_logs(world: World, **wants: Any) -> LogsReply:
    data = msgspec.json.encode(Logs(name="train", **wants))

    async def ask() -> bytes | None:
        # A runner that has just begun may not be known to the server yet.
        with suppress(Unavailable):
            return await world.bus.request(f"admit.api.logs.{NAMESPACE}", data, 5.0)
        return None

    return msgspec.json.decode(await until(ask, "an answer"), type=LogsReply)


async def test_an_admitted_job_is_started_ready_and_finished(world: World) -> None:
    async with world.runner():
        revision = await world.admit("train", "echo hello from $JOB_COMPLETION_INDEX", count=2)
        finished = await world.hears("finished", "train")
    assert (finished.revision, finished.succeeded, finished.uid) == (revision, True, "uid-train")
    assert (await world.said("started", "train")).revision == revision
    assert (await world.said("pods_ready", "train")).revision == revision
    assert output(world, pod="main-1") == "hello from 1\n"


async def test_a_failing_job_finishes_with_pod_and_exit_code(world: World) -> None:
    async with world.runner():
        await world.admit("train", "exit 3")
        finished = await world.hears("finished", "train")
    assert not finished.succeeded
    assert finished.message == "pod main-0 failed: exit code 3"


async def test_an_image_without_a_command_fails_to_start_and_says_what_to_do(world: World) -> None:
    async with world.runner():
        await world.admit("train", "", containers=[{"name": "c", "image": "busybox"}])
        finished = await world.hears("finished", "train")
    assert (finished.succeeded, finished.reason) == (False, "FailedToStart")
    assert "--executor docker" in finished.message


async def test_an_evicted_job_is_stopped_before_it_is_reported_as_stopped(world: World) -> None:
    async with world.runner():
        admitted = await world.admit("train", CHECKPOINTS)
        await until(lambda: output(world), "its start")
        evicted = await world.evict("train", admitted)
        stopped = await world.hears("stopped", "train")
        assert stopped.revision == evicted
        assert output(world).endswith("saved\n")
    assert await world.said("finished", "train") is None, "it exited 0 to go on later"


async def test_a_workload_that_is_evicted_before_its_claim_never_starts(world: World) -> None:
    async with world.runner():
        admitted = await world.admitted("train")
        evicted = await world.evict("train", admitted, silently=True)
        await world.say_admitted("train", admitted, "echo ran")
        assert (await world.hears("stopped", "train")).revision == evicted
        assert output(world) == ""


async def test_a_late_fact_of_an_ended_admission_starts_no_job(world: World) -> None:
    async with world.runner():
        admitted = await world.admitted("train")
        await world.put("train", admitted, "Admitted", "Finished", admitted_revision=admitted)
        await world.say_admitted("train", admitted, "echo ran")
        await world.admit("marker", "true")
        await world.hears("finished", "marker")
        assert await world.said("finished", "train") is None
        assert output(world) == ""


async def test_an_eviction_right_behind_the_admission_stops_the_job(world: World) -> None:
    async with world.runner():
        for number in range(10):
            admitted = await world.admit(f"train-{number}", "sleep 60")
            await world.evict(f"train-{number}", admitted)
        for number in range(10):
            await world.hears("stopped", f"train-{number}")


async def test_an_eviction_of_a_job_that_is_not_running_is_answered_at_once(world: World) -> None:
    async with world.runner():
        revision = await world.put("train", 0, "QuotaReserved", "Evicted")
        await world.say_evicted("train", revision)
        assert (await world.hears("stopped", "train")).revision == revision


async def test_a_fact_that_arrives_twice_starts_one_job(world: World) -> None:
    async with world.runner():
        revision = await world.admit("train", "echo once; sleep 0.3")
        await world.say_admitted("train", revision, "echo once; sleep 0.3")
        await world.hears("finished", "train")
        await world.say_admitted("train", revision, "echo once; sleep 0.3")
        await world.admit("marker", "true")
        await world.hears("finished", "marker")
    assert output(world).count("once") == 1


async def test_an_old_admission_on_the_log_is_not_started_by_a_new_runner(world: World) -> None:
    ended = await world.admit("ended", "echo ran")
    await world.put("ended", ended, "Admitted", "Finished", admitted_revision=ended)
    await world.admit("waiting", "echo waited")
    async with world.runner():
        await world.hears("finished", "waiting")
    assert output(world) == "waited\n"


async def test_an_unanswered_eviction_is_answered_by_the_next_runner(
    world: World,
) -> None:
    admitted = await world.admit("train", "echo ran")
    evicted = await world.evict("train", admitted)
    async with world.runner():
        assert (await world.hears("stopped", "train")).revision == evicted
        late = await Claims(world.bus, "late", 60.0).take([run_key(NAMESPACE, "train", admitted)])
        assert late[0].state is ClaimState.OVER, "a slower runner must not start it now"
    assert output(world) == ""


async def test_jobs_end_with_a_clean_end_and_run_again_after_the_next_start(world: World) -> None:
    flag = world.tmp / "flag"
    script = f"echo begun; test -e {flag} || sleep 60"
    async with world.runner():
        revision = await world.admit("train", script)
        await world.hears("started", "train")
    stopped = await world.said("stopped", "train")
    assert (stopped.revision, stopped.reason) == (revision, "RunnerEnded")
    assert await world.said("finished", "train") is None
    flag.touch()
    async with world.runner():
        finished = await world.hears("finished", "train")
    assert (finished.revision, finished.succeeded) == (revision, True)
    starts = await read_messages(world.bus, [f"admit.workload.started.{NAMESPACE}.train"])
    assert len(starts) == 2, "the story tells of both runs"
    assert output(world).splitlines() == ["begun", "begun"], "both outputs are kept"


async def test_output_of_a_job_that_was_stopped_by_a_clean_end_is_served(world: World) -> None:
    async with world.runner():
        await world.admit("train", "echo begun; sleep 60")
        await until(lambda: output(world), "its start")
    # Its claim is free, and another runner takes it; that one ends, and the first comes back.
    async with world.runner("b"):
        await until(lambda: output(world, "b"), "its second start")
        async with world.runner():
            answer = await ask_logs(world)
            assert [(pod.text, pod.running) for pod in answer.pods] == [("begun\n", True)]
    await world.put("train", 1, "Admitted", "Finished", admitted_revision=1)
    async with world.runner():
        answer = await ask_logs(world)
        assert [(pod.text, pod.running) for pod in answer.pods] == [("begun\n", False)]


async def test_detached_jobs_run_on_and_are_taken_over(world: World) -> None:
    flag = world.tmp / "flag"
    async with world.runner(detach_jobs=True):
        await world.admit("train", f"echo begun; until test -e {flag}; do sleep 0.02; done")
        await until(lambda: output(world), "its start")
    assert await world.said("stopped", "train") is None
    flag.touch()
    async with world.runner():
        assert (await world.hears("finished", "train")).succeeded
    assert output(world) == "begun\n"
    assert await world.count("started") == 1


async def test_logs_are_served_from_an_offset_on_also_after_the_end(world: World) -> None:
    async with world.runner():
        await world.admit("train", "echo grüße; sleep 0.2; echo end", count=2)
        await world.hears("finished", "train")
        whole = await ask_logs(world)
        assert [(pod.pod, pod.text) for pod in whole.pods] == [
            ("main-0", "grüße\nend\n"),
            ("main-1", "grüße\nend\n"),
        ]
        one = await ask_logs(world, pod=1, offsets={"main-1": 8})
        assert [(pod.pod, pod.text, pod.offset) for pod in one.pods] == [("main-1", "end\n", 12)]
        data = msgspec.json.encode(Logs(name="nobody"))
        answer = await world.bus.request(f"admit.api.logs.{NAMESPACE}", data, 5.0)
        assert "no runner" in msgspec.json.decode(answer, type=LogsReply).error


async def test_two_runners_do_not_share_a_folder(world: World) -> None:
    async with world.runner():
        with pytest.raises(SetupError, match="another runner"):
            async with world.runner():
                pass


async def test_an_unknown_executor_is_one_clear_line(world: World, tmp_path: Path) -> None:
    settings = Settings(service="runner", instance="x", data_dir=tmp_path)
    with pytest.raises(SetupError, match="--executor podman"):
        await run(world.bus, settings, executor="podman", stop=asyncio.Event())
