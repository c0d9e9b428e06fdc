"""The signal that warns the pods of a run before the end of its time."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from admittance.runner.host.data_folder import DataFolder
from admittance.runner.host.records import RunIdentity, Spec
from admittance.runner.jobs import time_warnings
from admittance.runner.jobs.fork_server import run_shim
from admittance.runner.jobs.job_policy import NEVER
from admittance.runner.jobs.shim import boot_seconds
from admittance.runner.jobs.time_warnings import EARLIEST_SECONDS, TimeWarnings
from admittance.runner.plans.run_plan import ContainerPlan, PodSetPlan, WarnPlan


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
    shim = os.fork()
    if not shim:
        try:
            run_shim(str(run.path))
        finally:
            os._exit(0)
    os.waitpid(shim, 0)
    assert not (tmp_path / "ready").exists(), "the program was there before its warning"
    lines = [json.loads(line) for line in (run.path / "journal").read_text().splitlines()]
    assert {"e": "warned", "set": "main", "signal": 10} in lines
    run.read_journal()
    assert run.journal.outcome is not None
    assert run.journal.outcome.kind == "succeeded"
    output = (run.path / "out" / "main-0.log").read_text().splitlines()
    assert output[0] == "admittance: the time of the job ends in 60 s: SIGUSR1 is sent"
    assert output[-1] == "saved"
    folder.close()
