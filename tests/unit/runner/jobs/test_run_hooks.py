"""The prolog and the epilog of a runner: options, what they get, when they run, and their ends."""

from __future__ import annotations

import asyncio
import json
import os
import time
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from admittance.events.facts import Admitted
from admittance.events.placement import PlacementPart
from admittance.events.shapes import PodSetToRun
from admittance.events.stored.machines import Device, MachineFailure
from admittance.job_rules.hooks import HookTexts, JobHooks, hooks_of
from admittance.job_rules.rules import JobRules, UnixUser
from admittance.placement.machines.failed_hooks import drained_by_hooks
from admittance.runner.decide import Ended
from admittance.runner.host.data_folder import DataFolder, RunFolder
from admittance.runner.host.docker_executor import DockerExecutor
from admittance.runner.host.hooks import run_epilog
from admittance.runner.host.live_rules import LiveRules
from admittance.runner.host.local_executor import LocalExecutor
from admittance.runner.host.records import RunIdentity, Spec, StopNote
from admittance.runner.host.run_journal import RunJournal
from admittance.runner.jobs.fork_server import run_shim
from admittance.runner.jobs.hooks import KEPT_BYTES, TEXT_MAX, problem_of, run_hook
from admittance.runner.jobs.shim import boot_seconds
from admittance.runner.plans.devices import MachineDevices
from admittance.runner.plans.hook_plan import HookPlan, hook_plan
from admittance.runner.plans.run_plan import ContainerPlan, PodSetPlan
from admittance.runner.runs.fact_handlers import read_folder
from admittance.runner.runs.machine_drain import MachineDrain
from admittance.runtime.errors import SetupError
from support.builders import NOON

OF: dict[str, Any] = {"key": "n.w.7", "namespace": "n", "name": "w", "uid": "u", "revision": 7}


# Options. -----------------------------------------------------------------------------------


def test_hooks_come_from_options_and_else_from_variables() -> None:
    env = {"ADMIT_PROLOG": "mount -a", "ADMIT_EPILOG": "/bin/sh -e x", "ADMIT_PROLOG_TIMEOUT": "90"}
    assert hooks_of(HookTexts(), {}) == JobHooks(prolog="", epilog="", seconds=300.0)
    assert hooks_of(HookTexts(), env) == JobHooks(
        prolog="mount -a", epilog="/bin/sh -e x", seconds=90.0
    )
    texts = HookTexts(prolog=" true ", prolog_timeout="1h30m")
    assert hooks_of(texts, env) == JobHooks(prolog="true", epilog="/bin/sh -e x", seconds=5400.0)


@pytest.mark.parametrize(
    ("texts", "error"),
    [
        ({"prolog": "/no/such x"}, "--prolog (ADMIT_PROLOG): /no/such is not a program"),
        ({"epilog": "/etc"}, "--epilog (ADMIT_EPILOG): /etc is not a program"),
        ({"epilog": "/etc/passwd"}, "/etc/passwd is not a program that the runner may execute"),
        ({"prolog": "echo 'a"}, "--prolog (ADMIT_PROLOG) echo 'a: No closing quotation"),
        ({"prolog_timeout": "soon"}, "'soon' is not a duration like 60s or 1h30m"),
        ({"prolog_timeout": "0"}, "0: it must be between 1s and 24h"),
        ({"prolog_timeout": "25h"}, "25h: it must be between 1s and 24h"),
    ],
)
def test_a_wrong_hook_gets_a_clear_error(texts: dict[str, str], error: str) -> None:
    with pytest.raises(SetupError) as raised:
        hooks_of(HookTexts(**texts), {})
    assert error in str(raised.value)


def test_hooks_get_what_the_runner_knows_of_the_job() -> None:
    admitted = Admitted(
        namespace="n", name="w", uid="u-1", revision=7, submitted_by="ada", restarts=2
    )
    of: dict[str, Any] = {
        "user": UnixUser(uid=501, gid=1, name="ada"),
        "units": ["nvidia.com/gpu=0", "nvidia.com/gpu=1"],
        "folder": "/home/ada",
        "checkpoint": "/ckpt/w",
    }
    assert hook_plan(JobHooks(), admitted, **of) is None
    plan = hook_plan(JobHooks(epilog="x", seconds=9.0), admitted, **of)
    assert plan is not None
    assert (plan.prolog, plan.epilog, plan.seconds, plan.seconds_at_most) == ("", "x", 9.0, 9.0)
    assert hook_plan(JobHooks(prolog="p", epilog="x", seconds=9.0), admitted, **of) == HookPlan(
        prolog="p", epilog="x", seconds=9.0, env=plan.env
    )
    assert plan.env == {
        "ADMITTANCE_WORKLOAD": "w",
        "ADMITTANCE_NAMESPACE": "n",
        "ADMITTANCE_UID": "u-1",
        "ADMITTANCE_USER": "ada",
        "ADMITTANCE_UNIX_UID": "501",
        "ADMITTANCE_UNIX_USER": "ada",
        "ADMITTANCE_DEVICES": "nvidia.com/gpu=0 nvidia.com/gpu=1",
        "ADMITTANCE_FOLDER": "/home/ada",
        "ADMITTANCE_CHECKPOINT_DIR": "/ckpt/w",
        "ADMITTANCE_RESTART_COUNT": "2",
    }


@pytest.mark.parametrize("kind", [LocalExecutor, DockerExecutor])
def test_every_executor_gives_its_runs_the_hooks_of_the_runner(
    kind: type[LocalExecutor] | type[DockerExecutor], tmp_path: Path
) -> None:
    user = UnixUser(uid=501, gid=501, name="ada")
    rules = JobRules(run_as={"*": user}, hooks=JobHooks(prolog="p", seconds=9.0))
    executor = kind({}, LiveRules(rules, local=kind is LocalExecutor))
    if isinstance(executor, DockerExecutor):
        executor.open("r", str(tmp_path / "checkpoints"))
    executor.machine = MachineDevices("r-1", (Device(resource="x.io/g", index=0, id="a"),))
    given = PlacementPart(
        runner="r", id="r-1", pod_set="main", first=0, count=1, devices={"x.io/g": ("a",)}
    )
    container = {"name": "c", "image": "i", "command": ["x"], "workingDir": "/home/ada"}
    template = msgspec.Raw(msgspec.json.encode({"spec": {"containers": [container]}}))
    pods = PodSetToRun(name="main", count=1, template=template, parts=(given,))
    admitted = Admitted(namespace="n", name="w", uid="u", revision=7, pod_sets=(pods,))
    hooks = executor.run_plan(admitted, "mark").hooks
    assert hooks is not None
    assert (hooks.prolog, hooks.epilog, hooks.seconds) == ("p", "", 9.0)
    assert (hooks.env["ADMITTANCE_UNIX_UID"], hooks.env["ADMITTANCE_DEVICES"]) == (
        "501",
        "x.io/g=a",
    )
    is_local = kind is LocalExecutor
    assert hooks.env["ADMITTANCE_FOLDER"] == ("/home/ada" if is_local else "")
    assert bool(hooks.env["ADMITTANCE_CHECKPOINT_DIR"]) is not is_local
    assert (
        kind({}, LiveRules(local=is_local))
        .run_plan(
            msgspec.structs.replace(
                admitted, pod_sets=(PodSetToRun(name="m", count=1, template=template),)
            ),
            "mark",
        )
        .hooks
        is None
    )


# Their ends. --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "killed", "output", "problem"),
    [
        (0, False, b"all is well\n", ""),
        (3, False, b"one\nno mount\n \n", "prolog failed: exit code 3: no mount"),
        (1, False, b"", "prolog failed: exit code 1"),
        (-9, False, b"", "prolog failed: signal 9"),
        (-9, True, b"wait\n", "prolog failed: it has not ended within 2.5 s: wait"),
        (0, True, b"", "prolog failed: it has not ended within 2.5 s"),
        (
            None,
            True,
            b"",
            "prolog failed: it has not ended within 2.5 s, and a kill has not ended it",
        ),
        (1, False, b"x" * 999, f"prolog failed: exit code 1: {'x' * TEXT_MAX}"),
    ],
)
def test_the_end_of_a_hook_is_one_sentence(
    status: int | None, killed: bool, output: bytes, problem: str
) -> None:
    assert problem_of("prolog", status, killed, 2.5, output) == problem


@pytest.mark.parametrize(
    ("command", "problem", "kept"),
    [
        pytest.param("echo $A; pwd >&2", "", b"b\n", id="it succeeds"),
        pytest.param(
            "echo why; exit 4", "prolog failed: exit code 4: why", b"why\n", id="it fails"
        ),
        pytest.param(
            "echo on; sleep 9",
            "prolog failed: it has not ended within 0.3 s: on",
            b"on\n",
            id="it hangs",
        ),
        pytest.param("sleep 9 & echo left", "", b"left\n", id="it leaves a process behind"),
        pytest.param(
            f"head -c {KEPT_BYTES + 9} /dev/zero; echo end", "", b"\0end\n", id="it prints a lot"
        ),
    ],
)
def test_a_hook_runs_to_its_end_or_to_its_time(
    tmp_path: Path, command: str, problem: str, kept: bytes
) -> None:
    log, began = tmp_path / "prolog.log", time.monotonic()
    env = {"PATH": os.environ["PATH"], "A": "b"}
    assert run_hook("prolog", command, env, 0.3, str(log)) == (problem, 0)
    assert time.monotonic() - began < 5
    output = log.read_bytes()
    assert kept in output
    assert len(output) <= KEPT_BYTES


# In the life of a run. ------------------------------------------------------------------------


def play(
    tmp_path: Path, hooks: HookPlan, job: str, note: StopNote | None = None, *, no_new: bool = False
) -> tuple[RunFolder, list[str], list[str]]:
    """Runs a shim; returns the run, what hooks and job have noted, and the kinds of lines of the
    journal."""
    folder = DataFolder.open(tmp_path / "data")
    folder.touch_lease(boot_seconds())
    run = folder.folder_of(RunIdentity(**OF))
    main = ContainerPlan(name="c", argv=("/bin/sh", "-c", job))
    pods = PodSetPlan(name="main", parallel=1, completions=1, env={}, init=(), main=(main,))
    run.write(
        Spec(
            **OF,
            sets=(pods,),
            mark="m",
            given={"PATH": os.environ["PATH"]},
            notify=str(folder.notify),
            lease=str(folder.lease),
            lease_stop=100.0,
            lease_kill=110.0,
            hooks=hooks,
            no_new_privs=no_new,
        )
    )
    if note is not None:
        run.note_stop(note)
    shim = os.fork()
    if not shim:
        try:
            run_shim(str(run.path))
        finally:
            os._exit(0)
    os.waitpid(shim, 0)
    folder.close()
    run.read_journal()
    noted = tmp_path / "noted"
    lines = (run.path / "journal").read_text().splitlines()
    return (
        run,
        noted.read_text().splitlines() if noted.exists() else [],
        [json.loads(line)["e"] for line in lines],
    )


def hook_of(tmp_path: Path, more: str = "") -> str:
    said = "$ADMITTANCE_HOOK $ADMITTANCE_WORKLOAD $ADMITTANCE_RESULT $ADMITTANCE_EXIT_CODE $(pwd)"
    return f'echo "{said}" >> {tmp_path}/noted; {more}'


def hooks(tmp_path: Path, prolog: str = "", epilog: str = "") -> HookPlan:
    return HookPlan(
        prolog=hook_of(tmp_path, prolog),
        epilog=hook_of(tmp_path, epilog),
        seconds=30.0,
        env={"ADMITTANCE_WORKLOAD": "w"},
    )


def test_the_prolog_runs_before_the_job_and_the_epilog_after_its_last_process(
    tmp_path: Path,
) -> None:
    # What the job leaves behind would note its end later, but is ended before the epilog.
    job = f"(setsid sh -c 'sleep 5; echo left >> {tmp_path}/noted') & "
    job += f"grep -o 'NoNewPrivs.*' /proc/self/status | tr '\\t' ' ' >> {tmp_path}/noted; exit 3"
    rights = f"grep -q 'NoNewPrivs.*0' /proc/self/status && echo may >> {tmp_path}/noted"
    run, noted, lines = play(tmp_path, hooks(tmp_path, rights), job, no_new=True)
    assert noted == ["prolog w   /", "may", "NoNewPrivs: 1", "epilog w failed 3 /"]
    assert lines == ["begun", "start", "up", "ready", "end", "result", "outcome"]
    failed = Ended("failed", "pod main-0 failed: exit code 3", 3)
    assert (run.journal.begun, run.journal.result, run.journal.outcome) == (True, failed, failed)


def test_a_failed_prolog_starts_nothing_and_is_cleaned_up_after(tmp_path: Path) -> None:
    run, noted, lines = play(tmp_path, hooks(tmp_path, "echo no disk; exit 2"), "echo run")
    assert noted == ["prolog w   /", "epilog w unprepared 0 /"]
    assert lines == ["begun", "outcome"]
    why = "prolog failed: exit code 2: no disk"
    assert run.journal.outcome == Ended("unprepared", why, drain=why)
    assert (run.path / "prolog.log").read_text() == "no disk\n"


def test_a_failed_epilog_keeps_the_result_and_drains_the_machine(tmp_path: Path) -> None:
    run, _, _ = play(tmp_path, hooks(tmp_path, epilog="exit 5"), "true")
    assert run.journal.outcome == Ended("succeeded", drain="epilog failed: exit code 5")
    assert run.journal.result == Ended("succeeded")
    assert run.journal.is_result


def test_a_run_that_was_stopped_before_it_began_has_no_hooks(tmp_path: Path) -> None:
    run, noted, lines = play(tmp_path, hooks(tmp_path), "true", StopNote(evicted=8))
    assert (noted, lines) == ([], ["outcome"])
    assert run.journal.outcome == Ended("stopped", "stopped before it started")


def test_a_stop_during_the_prolog_waits_for_its_end_and_starts_nothing(tmp_path: Path) -> None:
    stop = f"touch {tmp_path}/data/runner/runs/n.w.7/stop; kill -TERM $PPID"
    run, noted, lines = play(tmp_path, hooks(tmp_path, stop), "true")
    assert [line.split()[0] for line in noted] == ["prolog", "epilog"]
    assert lines == ["begun", "outcome"]
    assert run.journal.outcome == Ended("stopped", "stopped before it started")


@pytest.mark.parametrize(
    ("lines", "in_prolog"),
    [
        ([], False),
        (["begun"], True),
        (["begun", "up"], False),
        (["begun", "outcome"], False),
        (["up"], False),
    ],
)
def test_a_run_is_in_its_prolog_until_its_job_starts(lines: list[str], in_prolog: bool) -> None:
    journal = RunJournal()
    journal.feed("".join(f'{{"e":"{line}"}}\n' for line in lines).encode())
    assert journal.in_prolog is in_prolog


async def test_the_epilog_of_a_run_whose_shim_has_died_is_run_by_the_runner(
    tmp_path: Path,
) -> None:
    with_epilog = HookPlan(
        epilog=hook_of(tmp_path, "echo bad; exit 6"), seconds=30.0, env={"ADMITTANCE_WORKLOAD": "w"}
    )
    folder = DataFolder.open(tmp_path)
    run = folder.folder_of(RunIdentity(**OF, mark="m", hooks=with_epilog))
    run.path.mkdir()
    assert await run_epilog(run, Ended("lost")) == "epilog failed: exit code 6: bad"
    assert (tmp_path / "noted").read_text() == "epilog w lost 0 /\n"
    slow = HookPlan(epilog="sleep 9", seconds=0.1)
    late = folder.folder_of(RunIdentity(**OF, mark="m", hooks=slow))
    assert (await run_epilog(late, Ended("lost"))).startswith("epilog failed: it has not ended")
    without = folder.folder_of(RunIdentity(**OF, hooks=HookPlan(prolog="false")))
    assert await run_epilog(without, Ended("lost")) == ""
    folder.close()


@pytest.mark.parametrize(
    ("epilog", "journal", "is_open"),
    [
        ("x", b'{"e":"begun"}\n{"e":"result","kind":"succeeded"}\n', True),
        ("x", b'{"e":"begun"}\n{"e":"outcome","kind":"succeeded"}\n', False),
        ("x", b"", False),
        ("", b'{"e":"begun"}\n', False),
    ],
    ids=["in its epilog", "over", "stopped before it began", "without an epilog"],
)
def test_a_run_stays_open_in_its_epilog_although_another_runner_has_published_its_result(
    tmp_path: Path, epilog: str, journal: bytes, is_open: bool
) -> None:
    folder = DataFolder.open(tmp_path)
    hooks = HookPlan(prolog="p", epilog=epilog)
    run = folder.folder_of(RunIdentity(**OF, hooks=hooks))
    run.path.mkdir()
    (run.path / "spec.json").write_bytes(msgspec.json.encode(run.identity))
    (run.path / "journal").write_bytes(journal)
    run.mark_published()
    manager: Any = SimpleNamespace(
        folder=folder,
        given_back={},
        closed={},
        folders={},
        runs={},
        launcher=SimpleNamespace(resume=lambda _: None),
    )
    read_folder(manager)
    assert (list(manager.folders), list(manager.closed)) == (
        ([OF["key"]], []) if is_open else ([], [OF["key"]])
    )
    folder.close()


# The machine. ---------------------------------------------------------------------------------


async def test_a_drained_machine_stays_so_over_a_restart_until_the_drain_ends(
    tmp_path: Path,
) -> None:
    announced: list[MachineFailure | None] = []
    folder = DataFolder.open(tmp_path)

    async def announce() -> None:
        announced.append(drain.failure)

    machine: Any = None
    drain = MachineDrain(folder, machine, lambda: NOON.replace(microsecond=7))
    drain.announce = announce
    assert drain.failure is None
    await drain.begin("PrologFailed", "no disk")
    await drain.begin("EpilogFailed", "later")
    failure = MachineFailure(at=NOON, reason="PrologFailed", message="no disk")
    assert announced == [failure, failure]
    assert MachineDrain(folder, machine, lambda: NOON).failure == failure
    known = drained_by_hooks(None, (), failure, NOON).conditions
    assert not drain.has_ended(())
    assert not drain.has_ended(known)
    undrained = drained_by_hooks(None, known, failure, NOON + timedelta(seconds=5)).conditions
    assert drain.has_ended(undrained)
    await drain.end()
    assert not drain.has_ended(undrained)
    assert (drain.failure, MachineDrain(folder, machine, lambda: NOON).failure) == (None, None)
    drain = MachineDrain(folder, machine, lambda: NOON)  # after a restart of the runner
    drain.announce = announce
    assert not drain.has_ended(undrained)
    await drain.begin("EpilogFailed", "again")
    assert not drain.has_ended(undrained)
    # Placement tells failures apart by their times, whatever the clocks of the machines say.
    assert announced[2:] == [
        None,
        MachineFailure(at=NOON + timedelta(seconds=6), reason="EpilogFailed", message="again"),
    ]
    folder.close()


async def test_a_job_waits_until_the_drain_and_its_end_are_announced(tmp_path: Path) -> None:
    folder, machine = DataFolder.open(tmp_path), cast(Any, None)
    drain, said = MachineDrain(folder, machine, lambda: NOON), asyncio.Semaphore(0)
    drain.announce = said.acquire  # type: ignore[assignment]
    for change in (drain.begin("PrologFailed", "no disk"), drain.end()):
        await drain.announced()
        changing = asyncio.ensure_future(change)
        await asyncio.sleep(0)
        waits = asyncio.ensure_future(drain.announced())
        await asyncio.sleep(0)
        assert not waits.done()
        said.release()
        await asyncio.gather(changing, waits)
    folder.close()
