"""The signal that warns the pods of a run before the end of its time."""

from __future__ import annotations

import json
import os
import re
import signal
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from admittance.events.stored.formats import HeldClaim
from admittance.runner.host.data_folder import DataFolder, RunFolder
from admittance.runner.host.records import RunIdentity, Spec
from admittance.runner.jobs import time_warnings
from admittance.runner.jobs.fork_server import run_shim
from admittance.runner.jobs.job_policy import NEVER
from admittance.runner.jobs.journal import read_drain
from admittance.runner.jobs.shim import boot_seconds
from admittance.runner.jobs.time_warnings import EARLIEST_SECONDS, TimeWarnings
from admittance.runner.plans.run_plan import ContainerPlan, PodSetPlan, WarnPlan
from admittance.runner.runs.claims import Claim, ClaimState
from admittance.runner.runs.machine_drain import MachineDrain
from support.builders import NOON


@pytest.mark.parametrize(
    ("ends", "before", "at"),
    [
        pytest.param(1000.0, 120, 880.0, id="before the end"),
        pytest.param(200.0, 120, 100.0 + EARLIEST_SECONDS, id="not before the program is there"),
        pytest.param(105.0, 120, NEVER, id="too late"),
        pytest.param(0.0, 120, NEVER, id="without a time limit"),
        pytest.param(1000.0, None, NEVER, id="without a warning"),
    ],
)
def test_a_warning_comes_once_before_the_end(ends: float, before: int | None, at: float) -> None:
    warn = None if before is None else {"signal": 10, "before": before}
    spec: dict[str, Any] = {"ends": ends, "sets": [{"name": "a", "warn": warn}, {"name": "b"}]}
    warnings = TimeWarnings(spec, now=100.0)
    assert warnings.next_time() == at
    if at < NEVER:
        assert warnings.take(at - 1) == {}
        assert warnings.take(at) == {"a": 10}
        assert (warnings.take(at + 1), warnings.next_time()) == ({}, NEVER)


def warnings_of(ends: float = 0.0, **before: int) -> TimeWarnings:
    """The warnings of a run that began at 100. ``before``: of each pod set the seconds."""
    sets = [{"name": name, "warn": {"signal": 10, "before": b}} for name, b in before.items()]
    return TimeWarnings({"ends": ends, "sets": sets}, now=100.0)


@pytest.mark.parametrize(
    ("ends", "drain", "at", "of_drain"),
    [
        pytest.param(0.0, 1000.0, 880.0, True, id="a drain without a time limit"),
        pytest.param(2000.0, 1000.0, 880.0, True, id="a drain before the time limit"),
        pytest.param(500.0, 1000.0, 380.0, False, id="a drain after the time limit"),
        pytest.param(0.0, 300.0, 180.0, True, id="a drain that is nearer than the warning"),
        pytest.param(0.0, 109.0, NEVER, True, id="a drain before the program is there"),
        pytest.param(500.0, NEVER, 380.0, False, id="no drain"),
    ],
)
def test_a_warning_comes_before_the_first_end(
    ends: float, drain: float, at: float, of_drain: bool
) -> None:
    warnings = warnings_of(ends, a=120)
    warnings.set_drain(drain)
    assert (warnings.next_time(), warnings.of_drain) == (at, of_drain)
    if at < NEVER:
        assert warnings.take(at - 0.1) == {}
        assert warnings.take(at) == {"a": 10}
        assert (warnings.take(at), warnings.next_time()) == ({}, NEVER)


def test_a_drain_that_is_nearer_than_the_warning_warns_at_once() -> None:
    warnings = warnings_of(a=120, b=30)
    assert warnings.next_time() == NEVER
    warnings.set_drain(600.0)
    assert warnings.take(550.0) == {"a": 10}, "so many seconds before the end as there are"
    assert warnings.next_time() == 570.0
    warnings.set_drain(600.5)
    assert (warnings.take(569.0), warnings.take(575.0)) == ({}, {"b": 10}), "the same drain"


def test_a_job_is_not_warned_of_a_drain_that_is_over() -> None:
    warnings = warnings_of(a=120)
    warnings.set_drain(600.0)
    assert warnings.take(600.0) == {}
    warnings.set_drain(NEVER)
    assert (warnings.next_time(), warnings.of_drain, warnings.ends) == (NEVER, False, NEVER)


def test_a_job_is_warned_once_unless_its_end_moves() -> None:
    warnings = warnings_of(2000.0, a=120)
    warnings.set_drain(1000.0)
    assert warnings.take(900.0) == {"a": 10}
    warnings.set_drain(1500.0)
    assert (warnings.take(1000.0), warnings.take(1380.0)) == ({}, {"a": 10})
    warnings.set_drain(NEVER)
    assert warnings.take(1879.0) == {}
    assert warnings.take(1880.0) == {"a": 10}, "of its time limit"
    warnings.set_drain(1950.0)
    assert warnings.take(1900.0) == {}, "it was warned already"


def run_to_its_end(run: RunFolder) -> None:
    """Runs a shim in a process of its own, as the fork server does."""
    shim = os.fork()
    if not shim:
        try:
            run_shim(str(run.path))
        finally:
            os._exit(0)
    os.waitpid(shim, 0)


def assert_was_warned(run: RunFolder, why: str, text: str) -> None:
    lines = [json.loads(line) for line in (run.path / "journal").read_text().splitlines()]
    assert {"e": "warned", "set": "main", "signal": 10, "why": why} in lines
    run.read_journal()
    assert run.journal.outcome is not None
    assert run.journal.outcome.kind == "succeeded"
    output = (run.path / "out" / "main-0.log").read_text().splitlines()
    assert re.fullmatch(f"admittance: {text}: SIGUSR1 is sent", output[0])
    assert output[-1] == "saved"


def test_a_job_that_exits_with_0_after_its_warning_has_succeeded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_warnings, "EARLIEST_SECONDS", 0.0)
    folder = DataFolder.open(tmp_path)
    folder.touch_lease(boot_seconds())
    of: dict[str, Any] = {"key": "n.w.7", "namespace": "n", "name": "w", "uid": "u", "revision": 7}
    run = folder.folder_of(RunIdentity(**of))
    (tmp_path / "ready").touch()
    script = f"trap 'echo saved; exit 0' USR1; rm {tmp_path}/ready; while :; do sleep 0.02; done"
    sets = (
        PodSetPlan(
            name="main",
            parallel=1,
            completions=1,
            env={},
            init=(),
            main=(ContainerPlan(name="c", argv=("/bin/sh", "-c", script)),),
            warn=WarnPlan(signal=signal.SIGUSR1, before=60),
        ),
    )
    spec = Spec(
        **of,
        sets=sets,
        mark="m",
        given={"PATH": os.environ["PATH"]},
        notify=str(folder.notify),
        lease=str(folder.lease),
        lease_stop=100.0,
        lease_kill=110.0,
        ends=boot_seconds() + 60.3,
    )
    run.write(spec)
    run_to_its_end(run)
    assert not (tmp_path / "ready").exists(), "the program was there before its warning"
    assert_was_warned(run, "time", "the time of the job ends in 60 s")
    folder.close()


def test_a_shim_warns_its_pods_of_a_drain_that_the_runner_notes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_warnings, "EARLIEST_SECONDS", 0.0)
    folder = DataFolder.open(tmp_path)
    folder.touch_lease(boot_seconds())
    of: dict[str, Any] = {"key": "n.w.7", "namespace": "n", "name": "w", "uid": "u", "revision": 7}
    run = folder.folder_of(RunIdentity(**of, warns=True))
    loop = "while :; do sleep 0.02; done"
    # The runner notes the end and signals the shim, which is the parent of the job.
    script = (
        f"trap 'echo saved; exit 0' USR1; echo {boot_seconds() + 60!r} > {run.path}/drain; "
        f"kill -USR1 $PPID; {loop}"
    )
    main = ContainerPlan(name="c", argv=("/bin/sh", "-c", script))
    sets = (
        PodSetPlan(
            name="main",
            parallel=1,
            completions=1,
            env={},
            init=(),
            main=(main,),
            warn=WarnPlan(signal=signal.SIGUSR1, before=120),
        ),
    )
    paths: dict[str, Any] = {"notify": str(folder.notify), "lease": str(folder.lease)}
    given = {"PATH": os.environ["PATH"]}
    run.write(
        Spec(**of, sets=sets, mark="m", given=given, **paths, lease_stop=100.0, lease_kill=110.0)
    )
    run_to_its_end(run)
    assert_was_warned(run, "drain", r"a machine of the job must be empty in (60|[345]\d) s")
    folder.close()


OTHER, THIRD, SINGLE = "n.w.1-1", "n.w.1-3", "n.v.1-1"
SOON, LATE = NOON + timedelta(seconds=30), NOON + timedelta(seconds=90)


def claim_of(runner: str, ends: datetime | None, *, known: bool = True) -> Claim:
    return Claim(ClaimState.HELD, runner, 5, held=HeldClaim(runner, ends, known))


@pytest.mark.parametrize(
    ("own", "claims", "noted"),
    [
        pytest.param(None, [(OTHER, claim_of("b", LATE))], 590.0, id="another machine drains"),
        pytest.param(SOON, [(OTHER, claim_of("b", LATE))], 530.0, id="its own machine first"),
        pytest.param(LATE, [(OTHER, claim_of("b", SOON))], 530.0, id="the other machine first"),
        pytest.param(
            None, [(OTHER, claim_of("b", LATE)), (THIRD, claim_of("c", SOON))], 530.0, id="two"
        ),
        pytest.param(None, [(SINGLE, claim_of("b", LATE))], NEVER, id="a part of another job"),
        pytest.param(
            None,
            [(OTHER, claim_of("b", LATE)), (OTHER, claim_of("b", None))],
            NEVER,
            id="the other drain has ended",
        ),
        pytest.param(
            None,
            [(OTHER, claim_of("b", LATE)), (OTHER, claim_of("b", None, known=False))],
            590.0,
            id="the other runner starts again and has not read its drain",
        ),
        pytest.param(
            None,
            [(OTHER, claim_of("b", LATE)), (OTHER, Claim(ClaimState.OVER, "b", 6))],
            NEVER,
            id="the other part is over",
        ),
        pytest.param(None, [("n.w.1-2", claim_of("me", LATE))], NEVER, id="its own claim"),
    ],
)
def test_a_part_is_warned_of_the_drains_of_all_machines_of_its_job(
    tmp_path: Path, own: datetime | None, claims: list[tuple[str, Claim]], noted: float
) -> None:
    folder = DataFolder.open(tmp_path)
    folder.runner = "me"
    machine: Any = SimpleNamespace(boot_seconds=lambda: 500.0)
    drain = MachineDrain(folder, machine, lambda: NOON)
    of = RunIdentity(
        key="n.w.1-2", namespace="n", name="w", uid="u", revision=1, part=2, warns=True
    )
    run = folder.folder_of(of)
    run.path.mkdir()
    assert drain.set_deadline(own, [run]) == [], "the claims of the other parts are not read yet"
    assert all(drain.set_elsewhere(key, claim) for key, claim in claims[:-1])
    assert drain.others_known([run]) == [run]
    drain.set_elsewhere(*claims[-1])
    noted_by = drain.note_part(claims[-1][0], [run])
    assert (noted_by == [run]) == (claims[-1][0] != SINGLE)
    assert read_drain(str(run.path)) == noted
    assert not drain.set_elsewhere(*claims[-1]), "nothing has changed"
    folder.close()


def test_only_runs_that_warn_get_a_note_of_a_drain(tmp_path: Path) -> None:
    folder = DataFolder.open(tmp_path)
    machine: Any = SimpleNamespace(boot_seconds=lambda: 500.0)
    drain = MachineDrain(folder, machine, lambda: NOON)
    runs = []
    for number, warns in enumerate((True, False)):
        of = RunIdentity(
            key=f"n.w.{number}", namespace="n", name="w", uid="u", revision=number, warns=warns
        )
        runs.append(folder.folder_of(of))
        runs[-1].path.mkdir()
    assert drain.set_deadline(NOON + timedelta(seconds=90), runs) == runs[:1]
    assert [read_drain(str(run.path)) for run in runs] == [590.0, NEVER]
    assert drain.set_deadline(None, runs) == runs[:1]
    assert [read_drain(str(run.path)) for run in runs] == [NEVER, NEVER]
    drain.set_deadline(NOON - timedelta(seconds=1), ())
    assert (drain.note(runs[0]), read_drain(str(runs[0].path))) == (True, 499.0)
    runs[0].remove()
    assert not drain.note(runs[0]), "the job has removed its folder"
    folder.close()
