"""From admitted to finished, from evicted to stopped: one runner, a real server, real processes."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from admittance.events.facts import Admitted
from admittance.events.requests.history import Logs, LogsReply
from admittance.runner.host.local_executor import LocalExecutor
from admittance.runner.host.records import run_key
from admittance.runner.plans.run_plan import RunPlan
from admittance.runner.runs.claims import Claims, ClaimState
from admittance.runner.service import run
from admittance.runtime.bus.history import read_messages
from admittance.runtime.errors import BusUnavailable, SetupError
from admittance.runtime.process.settings import Settings
from admittance.runtime.telemetry.object_faults import faults
from integration.runner.harness import CHECKPOINTS, NAMESPACE, RunnerTestbed, until

pytestmark = pytest.mark.bus


def output(testbed: RunnerTestbed, folder: str = "a", pod: str = "main-0") -> str:
    logs = sorted((testbed.tmp / folder / "runner/runs").glob(f"*/out/{pod}.log"))
    return "".join(path.read_text() for path in logs)


async def ask_logs(testbed: RunnerTestbed, **wants: Any) -> LogsReply:
    data = msgspec.json.encode(Logs(name="train", **wants))

    async def ask() -> bytes | None:
        # A runner that has just begun may not be known to the server yet.
        with suppress(BusUnavailable):
            return await testbed.bus.request(f"admit.api.logs.{NAMESPACE}", data, 5.0)
        return None

    return msgspec.json.decode(await until(ask, "an answer"), type=LogsReply)


async def test_an_admitted_job_is_started_ready_and_finished(testbed: RunnerTestbed) -> None:
    async with testbed.runner():
        revision = await testbed.admit("train", "echo hello from $JOB_COMPLETION_INDEX", count=2)
        finished = await testbed.wait_for_fact("finished", "train")
    assert (finished.revision, finished.succeeded, finished.uid) == (revision, True, "uid-train")
    assert (await testbed.said("started", "train")).revision == revision
    assert (await testbed.said("pods_ready", "train")).revision == revision
    assert output(testbed, pod="main-1") == "hello from 1\n"


HOSTILE = {
    "folder": {"workingDir": "\0"},
    "reference": {"env": [{"name": "A", "valueFrom": {"fieldRef": "x"}}]},
    "path": {"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": [1]}}}]},
    "bug": {"workingDir": "/bug"},
    "shim": {"command": ["a\0"]},
    "long": {"command": ["\1" * 80_000]},
    "growing": {"env": [{"name": c, "value": f"$({b})" * 20} for b, c in pairwise("ZABCDEFG")]},
}
"""Jobs that ended runners, or that no program can start: a part of a container for each."""


async def test_whatever_planning_or_starting_one_job_raises_fails_that_job_alone(
    testbed: RunnerTestbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plan(self: LocalExecutor, admitted: Admitted, mark: str) -> RunPlan:
        if admitted.name == "bug":
            raise KeyError("no such thing")
        return planned(self, admitted, mark)

    planned = LocalExecutor.run_plan
    monkeypatch.setattr(LocalExecutor, "run_plan", plan)
    good = {"name": "c", "command": ["/bin/sh", "-c", "exit 0"]}
    async with testbed.runner():
        for name, part in HOSTILE.items():
            await testbed.admit(name, "", containers=[{**good, **part}])
        await testbed.admit("good", "", containers=[good])
        finished = {
            name: await testbed.wait_for_fact("finished", name) for name in (*HOSTILE, "good")
        }
    assert finished.pop("good").succeeded
    assert not any(fact.succeeded for fact in finished.values())
    assert finished["bug"].message == "the runner cannot plan the job: KeyError: 'no such thing'"
    assert "valueFrom.fieldRef.fieldPath" in finished["path"].message
    assert len(finished["long"].message) <= 1_000
    assert "longer than 131071 bytes" in finished["growing"].message
    [fault] = faults.take()
    assert (fault.step, fault.about) == ("plan a job", "run team.bug.4")


async def test_an_evicted_job_is_stopped_before_it_is_reported_as_stopped(
    testbed: RunnerTestbed,
) -> None:
    async with testbed.runner():
        admitted = await testbed.admit("train", CHECKPOINTS)
        await until(lambda: output(testbed), "its start")
        evicted = await testbed.evict("train", admitted)
        stopped = await testbed.wait_for_fact("stopped", "train")
        assert stopped.revision == evicted
        assert output(testbed).endswith("saved\n")
    assert await testbed.said("finished", "train") is None, "it exited 0 to go on later"


async def test_a_workload_that_is_evicted_before_its_claim_never_starts(
    testbed: RunnerTestbed,
) -> None:
    async with testbed.runner():
        admitted = await testbed.admitted("train")
        evicted = await testbed.evict("train", admitted, silently=True)
        await testbed.say_admitted("train", admitted, "echo ran")
        assert (await testbed.wait_for_fact("stopped", "train")).revision == evicted
        assert output(testbed) == ""


async def test_an_eviction_right_behind_the_admission_stops_the_job(testbed: RunnerTestbed) -> None:
    async with testbed.runner():
        for number in range(10):
            admitted = await testbed.admit(f"train-{number}", "sleep 60")
            await testbed.evict(f"train-{number}", admitted)
        for number in range(10):
            await testbed.wait_for_fact("stopped", f"train-{number}")


async def test_an_eviction_of_a_job_that_is_not_running_is_answered_at_once(
    testbed: RunnerTestbed,
) -> None:
    async with testbed.runner():
        revision = await testbed.put("train", 0, "QuotaReserved", "Evicted")
        await testbed.say_evicted("train", revision)
        assert (await testbed.wait_for_fact("stopped", "train")).revision == revision


async def test_an_old_admission_on_the_log_is_not_started_by_a_new_runner(
    testbed: RunnerTestbed,
) -> None:
    ended = await testbed.admit("ended", "echo ran")
    await testbed.put("ended", ended, "Admitted", "Finished", admitted_revision=ended)
    await testbed.admit("waiting", "echo waited")
    async with testbed.runner():
        await testbed.wait_for_fact("finished", "waiting")
    assert output(testbed) == "waited\n"


async def test_an_unanswered_eviction_is_answered_by_the_next_runner(
    testbed: RunnerTestbed,
) -> None:
    admitted = await testbed.admit("train", "echo ran")
    evicted = await testbed.evict("train", admitted)
    async with testbed.runner():
        assert (await testbed.wait_for_fact("stopped", "train")).revision == evicted
        late = await Claims(testbed.bus, "late", 60.0).take([run_key(NAMESPACE, "train", admitted)])
        assert late[0].state is ClaimState.OVER, "a slower runner must not start it now"
    assert output(testbed) == ""


async def test_jobs_end_with_a_clean_end_and_run_again_after_the_next_start(
    testbed: RunnerTestbed,
) -> None:
    flag = testbed.tmp / "flag"
    state = "$ADMITTANCE_CHECKPOINT_DIR/state"
    script = (
        f"cat {state} 2>&-; echo saved > {state}; echo begun $ADMITTANCE_RESTART_COUNT; "
        f"test -e {flag} || sleep 60"
    )
    async with testbed.runner():
        revision = await testbed.admit("train", script)
        await until(lambda: output(testbed), "its start")
    stopped = await testbed.said("stopped", "train")
    assert (stopped.revision, stopped.reason) == (revision, "RunnerEnded")
    assert await testbed.said("finished", "train") is None
    flag.touch()
    async with testbed.runner():
        finished = await testbed.wait_for_fact("finished", "train")
    assert (finished.revision, finished.succeeded) == (revision, True)
    starts = await read_messages(testbed.bus, [f"admit.workload.started.{NAMESPACE}.train"])
    assert len(starts) == 2, "the story tells of both runs"
    said = ["begun 0", "saved", "begun 1"]
    assert output(testbed).splitlines() == said, "both outputs and the checkpoint are kept"


async def test_output_of_a_job_that_was_stopped_by_a_clean_end_is_served(
    testbed: RunnerTestbed,
) -> None:
    async with testbed.runner():
        await testbed.admit("train", "echo begun; sleep 60")
        await until(lambda: output(testbed), "its start")
    # Its claim is free, and another runner takes it; that one ends, and the first comes back.
    async with testbed.runner("b"):
        await until(lambda: output(testbed, "b"), "its second start")
        async with testbed.runner():
            answer = await ask_logs(testbed)
            assert [(pod.text, pod.running) for pod in answer.pods] == [("begun\n", True)]
    await testbed.put("train", 1, "Admitted", "Finished", admitted_revision=1)
    async with testbed.runner():
        answer = await ask_logs(testbed)
        assert [(pod.text, pod.running) for pod in answer.pods] == [("begun\n", False)]


async def test_detached_jobs_run_on_and_are_taken_over(testbed: RunnerTestbed) -> None:
    flag = testbed.tmp / "flag"
    async with testbed.runner(detach_jobs=True):
        await testbed.admit("train", f"echo begun; until test -e {flag}; do sleep 0.02; done")
        await until(lambda: output(testbed), "its start")
    assert await testbed.said("stopped", "train") is None
    flag.touch()
    async with testbed.runner():
        assert (await testbed.wait_for_fact("finished", "train")).succeeded
    assert output(testbed) == "begun\n"
    assert await testbed.count("started") == 1


async def test_logs_are_served_from_an_offset_on_also_after_the_end(testbed: RunnerTestbed) -> None:
    async with testbed.runner():
        await testbed.admit("train", "echo grüße; sleep 0.2; echo end", count=2)
        await testbed.wait_for_fact("finished", "train")
        whole = await ask_logs(testbed)
        assert [(pod.pod, pod.text) for pod in whole.pods] == [
            ("main-0", "grüße\nend\n"),
            ("main-1", "grüße\nend\n"),
        ]
        logs = await ask_logs(testbed, pod=1, offsets={"main-1": 8})
        assert [(pod.pod, pod.text, pod.offset) for pod in logs.pods] == [("main-1", "end\n", 12)]
        data = msgspec.json.encode(Logs(name="missing"))
        answer = await testbed.bus.request(f"admit.api.logs.{NAMESPACE}", data, 5.0)
        assert "no runner" in msgspec.json.decode(answer, type=LogsReply).error


async def test_a_failed_pod_that_runs_again_is_on_the_log_and_in_the_answer(
    testbed: RunnerTestbed,
) -> None:
    async with testbed.runner():
        await testbed.admit("train", "exit 3", restart="OnFailure")
        fact = await testbed.wait_for_fact("pods_failed", "train")
        retries = (await ask_logs(testbed)).retries
    assert retries is not None
    for said in (fact.retries, retries):
        [pod] = said.pods
        assert (said.failed, said.waiting, pod.pod, pod.left) == (1, 1, "main-0", 5)
        assert said.message == "pod main-0 failed: exit code 3; retry 1 of 6 in 10 s"
    assert abs((fact.retries.pods[0].at - retries.pods[0].at).total_seconds()) < 1


async def test_an_unknown_executor_is_one_clear_line(
    testbed: RunnerTestbed, tmp_path: Path
) -> None:
    settings = Settings(service="runner", instance="x", data_dir=tmp_path)
    with pytest.raises(SetupError, match="--executor podman"):
        await run(testbed.bus, settings, executor="podman", stop=asyncio.Event())
