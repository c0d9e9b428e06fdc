"""The end of a run without a shim is reported when its processes are gone, and not before."""

from __future__ import annotations

import asyncio
import subprocess
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from admittance.runner import decide
from admittance.runner.decide import Run, Stage
from admittance.runner.host import processes
from admittance.runner.host.processes import ProcessRef, end_processes, is_alive
from admittance.runner.host.records import RunIdentity
from admittance.runner.host.run_journal import RunJournal
from admittance.runner.plans.hook_plan import HookPlan
from admittance.runner.runs import run_checks
from admittance.runtime.telemetry.object_faults import faults

NO_FORK_SERVER = ProcessRef(0, 0)


def sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen(["/bin/sleep", "68"], start_new_session=True)


def started(pid: int) -> int:
    return processes._stat(pid)[1]


async def test_a_process_that_has_ended_counts_as_gone_before_it_is_reaped() -> None:
    child = sleeper()
    ticks = started(child.pid)
    assert is_alive(ProcessRef(child.pid, ticks))
    assert await end_processes("no such mark", {child.pid: ticks}, NO_FORK_SERVER)
    assert not is_alive(ProcessRef(child.pid, ticks))
    assert child.wait() == -9


async def test_a_process_with_the_pid_of_an_earlier_one_is_left_alone() -> None:
    child = sleeper()
    assert await end_processes("no such mark", {child.pid: started(child.pid) - 1}, NO_FORK_SERVER)
    assert child.poll() is None
    child.kill()
    child.wait()


async def test_a_process_that_does_not_end_is_waited_for_up_to_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    child = sleeper()
    monkeypatch.setattr(processes, "is_alive", lambda _: True)
    ticks = started(child.pid)
    assert not await end_processes("none", {child.pid: ticks}, NO_FORK_SERVER, seconds=0.05)
    child.wait()


class OpenRun:
    """A run after the death of its shim, and the report to its runner."""

    def __init__(self, *sweeps: bool | Exception, journal: bytes = b"", epilog: str = "") -> None:
        self.sweeps = list(sweeps)
        self.epilogs: list[decide.Ended] = []
        self._said = epilog
        written = RunJournal()
        written.feed(journal)
        self.events: list[decide.Event] = []
        self.works: list[Any] = []
        run = Run(namespace="ns", name="w", uid="u", revision=1, stage=Stage.RUNNING)
        folder = SimpleNamespace(
            read_journal=lambda: False,
            journal=written,
            is_gone=lambda: False,
            shim_pid=lambda: 7,
            shim_lives=lambda: False,
        )
        self.manager: Any = SimpleNamespace(
            folders={"k": folder},
            runs={"k": run},
            ending=set(),
            without_room=set(),
            report_journal=lambda *_: None,
            executor=SimpleNamespace(sweep=self._sweep, epilog=self._epilog),
            run_in_background=lambda work, _: self.works.append(work),
            handle=lambda _, event: self.events.append(event),
        )

    async def _sweep(self, _: object) -> bool:
        result = self.sweeps.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    async def _epilog(self, _: object, end: decide.Ended) -> str:
        assert not self.sweeps, "the processes are gone"
        self.epilogs.append(end)
        return self._said

    async def check(self) -> None:
        await run_checks.check_runs(self.manager)
        await run_checks.check_runs(self.manager)  # while the folder are being ended
        for work in self.works:
            await work
        self.works.clear()


def test_a_run_with_processes_left_has_no_end_until_they_are_gone() -> None:
    run = OpenRun(False, KeyError("a bug"), True)
    lost = decide.Ended("lost", "the shim of the job died")
    for events in ([], [], [lost]):
        asyncio.run(run.check())
        assert run.events == events
    assert [fault.about for fault in faults.take()] == ["run k"]


RESULT = b'{"e":"result","kind":"failed","message":"m","code":3,"reason":"r"}\n'


@pytest.mark.parametrize(
    ("journal", "end", "drain"),
    [
        pytest.param(b"", decide.Ended("lost", "the shim of the job died"), None, id="no hooks"),
        pytest.param(
            b'{"e":"begun"}\n',
            decide.Ended("lost", "the shim of the job died"),
            "",
            id="the shim died in the job",
        ),
        pytest.param(
            b'{"e":"begun"}\n' + RESULT,
            decide.Ended("failed", "m", 3, "r"),
            "epilog failed",
            id="the shim died in the epilog",
        ),
    ],
)
async def test_a_run_whose_shim_has_died_keeps_its_result_and_gets_its_epilog(
    journal: bytes, end: decide.Ended, drain: str | None
) -> None:
    run = OpenRun(True, journal=journal, epilog=drain or "")
    await run.check()
    assert run.epilogs == ([] if drain is None else [end])
    assert run.events == [replace(end, drain=drain or "")]


@pytest.mark.parametrize(
    ("hooks", "seconds"),
    [
        (None, 5 + 20),
        (HookPlan(epilog="x", seconds=100.0), 5 + 20 + 100),
        (HookPlan(prolog="x", epilog="x", seconds=100.0), 5 + 20 + 200),
    ],
)
def test_a_shim_that_was_told_to_stop_counts_as_hung_after_its_hooks(
    hooks: HookPlan | None, seconds: float
) -> None:
    now = [0.0]
    identity = RunIdentity(
        key="k", namespace="n", name="w", uid="u", revision=1, grace=5, hooks=hooks
    )
    manager: Any = SimpleNamespace(
        runs={"k": Run(namespace="n", name="w", uid="u", revision=1, stage=Stage.STOPPING)},
        machine=SimpleNamespace(boot_seconds=lambda: now[0]),
        hung_at={},
    )
    files: Any = SimpleNamespace(identity=identity)
    hung = []
    for now[0] in (0.0, seconds - 0.1, seconds):
        hung.append(run_checks.is_hung(manager, "k", files))
    assert hung == [False, False, True]
