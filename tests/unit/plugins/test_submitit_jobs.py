"""The plug-in for submitit: what it submits, how jobs stand, and what a job saves."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from admittance.events import facts
from support.builders import Around
from support.cores.tracked_workload import ME, TrackedWorkload

pytest.importorskip("submitit", reason="the plug-in for submitit needs submitit")

from submitit.core.utils import DelayedSubmission, JobPaths, UncompletedJobError

from admittance_submitit.environment import AdmittanceJobEnvironment
from admittance_submitit.executor import AdmittanceExecutor
from admittance_submitit.job import info_of, place_of


class Training:
    """A function with a checkpoint. ``left``: what the checkpoint returns."""

    def __init__(self, left: object = "itself") -> None:
        self.saved = 0
        self.left = left

    def __call__(self) -> int:
        return self.saved

    def checkpoint(self) -> object:
        self.saved += 1
        return DelayedSubmission(self) if self.left == "itself" else self.left


@pytest.mark.parametrize(
    ("job_id", "place"),
    [
        ("default.fit-x", ("default", "fit-x", "fit-x")),
        ("a.fit.v2-x", ("a", "fit.v2-x", "fit.v2-x")),
        ("a.fit-x_12", ("a", "fit-x[12]", "fit-x-12")),
    ],
)
def test_the_id_of_a_job_names_its_workload(job_id: str, place: tuple[str, str, str]) -> None:
    assert place_of(job_id) == place


def ended(succeeded: bool) -> Callable[[TrackedWorkload], TrackedWorkload]:
    fact = facts.Renewed(**ME, ended=True, succeeded=succeeded, message="x")
    return lambda w: w.admitted().happens(fact)


STATES: dict[str, Callable[[TrackedWorkload], TrackedWorkload]] = {
    "PENDING": lambda w: w,
    "CANCELLED": lambda w: w.off(),
    "COMPLETED": ended(True),
    "FAILED": ended(False),
}


@pytest.mark.parametrize("state", STATES)
def test_a_phase_is_a_state_of_submitit(state: str) -> None:
    workload = STATES[state](TrackedWorkload(Around(["a"]), leaseDurationSeconds=60))
    info = info_of(workload.stored)
    assert info["State"] == state
    assert {**info, "State": ""}.keys() == {"State", "Reason", "Message"}


def arguments(
    tmp_path: Path, *functions: Callable[..., Any], **parameters: object
) -> dict[str, Any]:
    executor = AdmittanceExecutor(tmp_path, max_num_timeout=2)
    executor.update_parameters(**parameters)
    return executor.arguments("ns.j", [DelayedSubmission(each) for each in functions])


def test_parameters_become_arguments_of_a_submission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/p")
    monkeypatch.chdir(tmp_path)
    plain = arguments(tmp_path, len)
    assert plain == {
        "cpu": None,
        "gpu": None,
        "count": 1,
        "chdir": str(tmp_path),
        "max_seconds": 300,
        "env": {
            "SUBMITIT_EXECUTOR": "admittance",
            "SUBMITIT_ADMITTANCE_NODES": "1",
            "SUBMITIT_ADMITTANCE_JOB_ID": "ns.j",
            "PYTHONPATH": "/p",
        },
    }
    given = {"queue": "q", "priority": 3, "cpus_per_task": 2, "gpus_per_node": 1, "nodes": 4}
    full = arguments(tmp_path, len, mem_gb=0.5, timeout_min=2, env={"A": "1"}, **given)
    assert (full["queue"], full["priority"], full["cpu"], full["gpu"]) == ("q", 3, 2, 1)
    assert (full["count"], full["memory"], full["max_seconds"]) == (4, "512Mi", 120)
    assert (full["env"]["A"], full["env"]["SUBMITIT_ADMITTANCE_NODES"]) == ("1", "4")


def test_several_functions_are_an_array_and_a_checkpoint_is_warned(tmp_path: Path) -> None:
    several = arguments(tmp_path, len, Training(), timeout_min=1)
    assert several["array"] == "0-1"
    assert several["env"]["SUBMITIT_ADMITTANCE_ARRAY_ID"] == "ns.j"
    assert "SUBMITIT_ADMITTANCE_JOB_ID" not in several["env"]
    assert (several["max_seconds"], several["signal"]) == (180, "USR2@90")
    few = arguments(tmp_path, Training(), len, len, array_parallelism=2, signal_delay_s=30)
    assert (few["array"], few["signal"]) == ("0-2%2", "USR2@30")


@pytest.mark.parametrize(
    ("parameters", "why"),
    [
        ({"partition": "x", "qos": "y"}, "unknown parameters: partition, qos"),
        ({"tasks_per_node": 2}, "use nodes, not tasks_per_node"),
    ],
)
def test_a_parameter_without_effect_is_refused(
    tmp_path: Path, parameters: dict[str, object], why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        AdmittanceExecutor(tmp_path).update_parameters(**parameters)


def test_a_cluster_is_taken_where_a_server_is_set_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("ADMIT_NATS_URL", raising=False)
    assert (AdmittanceExecutor.name(), AdmittanceExecutor.affinity()) == ("admittance", 0)
    monkeypatch.setenv("ADMIT_NATS_URL", "nats://127.0.0.1:1")
    assert AdmittanceExecutor.affinity() == 2


@pytest.fixture
def signals() -> Iterator[None]:
    kinds = (signal.SIGTERM, signal.SIGUSR2)
    before = [signal.getsignal(kind) for kind in kinds]
    yield
    for kind, handler in zip(kinds, before, strict=True):
        signal.signal(kind, handler)


def started(
    monkeypatch: pytest.MonkeyPatch, folder: Path, function: Callable[..., Any], *, rank: int = 0
) -> JobPaths:
    """Begins a job of submitit in this process."""
    for name, value in {
        "SUBMITIT_ADMITTANCE_JOB_ID": "ns.j",
        "SUBMITIT_FOLDER": str(folder),
        "JOB_COMPLETION_INDEX": str(rank),
    }.items():
        monkeypatch.setenv(name, value)
    environment = AdmittanceJobEnvironment()
    environment._handle_signals(environment.paths, DelayedSubmission(function))
    return environment.paths


@pytest.mark.usefixtures("signals")
def test_a_job_saves_its_state_when_it_is_warned_and_before_it_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = JobPaths(tmp_path, "ns.j").submitted_pickle.with_suffix(".pkl.save_tmp")
    half.write_text("of a run that was killed")
    paths = started(monkeypatch, tmp_path, Training())
    signal.raise_signal(signal.SIGUSR2)
    assert DelayedSubmission.load(paths.submitted_pickle).result() == 1
    with pytest.raises(SystemExit, match="143"):
        signal.raise_signal(signal.SIGTERM)
    assert DelayedSubmission.load(paths.submitted_pickle).result() == 2


@pytest.mark.usefixtures("signals")
def test_a_job_that_is_stopped_while_it_saves_ends_after_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow(Training):
        def checkpoint(self) -> object:
            signal.raise_signal(signal.SIGTERM)
            return super().checkpoint()

    paths = started(monkeypatch, tmp_path, Slow())
    with pytest.raises(SystemExit, match="143"):
        signal.raise_signal(signal.SIGUSR2)
    assert paths.submitted_pickle.exists()


@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize("rank", [0, 1])
def test_a_job_that_saves_nothing_stops(
    rank: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = started(monkeypatch, tmp_path, Training() if rank else len, rank=rank)
    signal.raise_signal(signal.SIGUSR2)
    with pytest.raises(SystemExit, match="143"):
        signal.raise_signal(signal.SIGTERM)
    assert not paths.submitted_pickle.exists()


@pytest.mark.usefixtures("signals")
def test_a_function_whose_checkpoint_is_none_does_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = started(monkeypatch, tmp_path, Training(left=None))
    with pytest.raises(UncompletedJobError, match="checkpoint function returned None"):
        signal.raise_signal(signal.SIGTERM)
    paths.result_pickle.touch()
    started(monkeypatch, tmp_path, Training())  # a first run, such as that of a resubmission
    monkeypatch.setenv("ADMITTANCE_RESTART_COUNT", "1")
    with pytest.raises(SystemExit, match="0"):
        started(monkeypatch, tmp_path, Training())
