"""The shim with real processes: what it starts, keeps, writes and ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from admittance.events.requests.history import Logs
from admittance.runner.decide import Ended
from admittance.runner.host.data_folder import DataFolder, RunFolder
from admittance.runner.host.launcher import FORK_SERVER
from admittance.runner.host.processes import end_processes, tag_of
from admittance.runner.host.records import RunIdentity, Spec, StopNote
from admittance.runner.jobs.journal import JOURNAL_MAX
from admittance.runner.jobs.pod_process import (
    expand,
    find_program,
    pod_env,
    start_code,
    start_problem,
    start_process,
)
from admittance.runner.jobs.shim import boot_seconds
from admittance.runner.logs.log_reader import read_logs
from admittance.runner.plans.inputs.volumes import VolumePlan
from admittance.runner.plans.pod_limits import GroupsPlan, PodLimits
from admittance.runner.plans.policy_plan import FailureRulePlan, PolicyPlan, SuccessRulePlan
from admittance.runner.plans.run_plan import ContainerPlan, PodSetPlan
from support.needs import needs_root
from support.servers import LIMIT, answer_with

NO_LIMITS = PodLimits()


def until(truth: Callable[[], object], what: str) -> None:
    answer_with(lambda: (what, truth()), lambda answer: answer[1], pause=0.01)


def sh(script: str, **env: str) -> ContainerPlan:
    return ContainerPlan(name="c", argv=("/bin/sh", "-c", script), env=tuple(env.items()))


def ended(run: RunFolder) -> Ended:
    assert run.journal.outcome is not None
    return run.journal.outcome


def mark_of(key: str) -> str:
    return f"test.{os.getpid()}.{key}"


class Bench:
    """A data folder and a fork server."""

    def __init__(self, tmp: Path, *inherited: int) -> None:
        self.folder = DataFolder.open(tmp)
        self.folder.touch_lease(boot_seconds())
        self.fork_server = subprocess.Popen(
            FORK_SERVER, stdin=subprocess.PIPE, start_new_session=True, pass_fds=inherited
        )
        self.count = 0

    def prepare(
        self,
        *main: ContainerPlan,
        init: tuple[ContainerPlan, ...] = (),
        parallel: int = 1,
        completions: int = 1,
        grace: int = 5,
        lease: tuple[float, float] = (100.0, 110.0),
        no_new_privs: bool = False,
        output_limit: int = 0,
        policy: PolicyPlan | None = None,
        deadline: float = 0.0,
        volumes: tuple[VolumePlan, ...] = (),
        scratch_limit: int = 0,
        cleanup: tuple[tuple[str, ...], ...] = (),
        groups: GroupsPlan | None = None,
        limits: PodLimits = NO_LIMITS,
    ) -> RunFolder:
        self.count += 1
        of = {"namespace": "ns", "name": f"w{self.count}", "uid": "u", "revision": 7}
        key = f"ns.w{self.count}.7"
        run = self.folder.folder_of(RunIdentity(key=key, **of))  # type: ignore[arg-type]
        run.write(
            Spec(
                key=key,
                mark=mark_of(key),
                tag=tag_of(mark_of(key)),
                **of,  # type: ignore[arg-type]
                sets=(
                    PodSetPlan(
                        name="main",
                        parallel=parallel,
                        completions=completions,
                        env={"ADMITTANCE_WORKLOAD": "w"},
                        init=init,
                        main=main,
                        policy=policy,
                        volumes=volumes,
                        limits=limits,
                    ),
                ),
                grace=grace,
                deadline=deadline,
                cleanup=cleanup,
                given={"PATH": os.environ["PATH"]},
                notify=str(self.folder.notify),
                lease=str(self.folder.lease),
                lease_stop=lease[0],
                lease_kill=lease[1],
                no_new_privs=no_new_privs,
                output_limit=output_limit,
                scratch_limit=scratch_limit,
                groups=groups,
            )
        )
        return run

    def hand_over(self, run: RunFolder) -> None:
        assert self.fork_server.stdin is not None
        self.fork_server.stdin.write(os.fsencode(run.path) + b"\n")
        self.fork_server.stdin.flush()

    def start(self, *main: ContainerPlan, **wants: object) -> RunFolder:
        run = self.prepare(*main, **wants)  # type: ignore[arg-type]
        self.folder.touch_lease(boot_seconds())
        self.hand_over(run)
        return run

    def outcome(self, run: RunFolder) -> tuple[str, str]:
        until(lambda: run.read_journal() and run.journal.outcome, "an outcome")
        end = ended(run)
        return end.kind, end.message

    def stopped(self, run: RunFolder) -> tuple[str, str]:
        """Stops the run once it has printed something; returns its outcome."""
        until(lambda: self.output(run), "its start")
        os.kill(run.shim_pid(), signal.SIGTERM)
        return self.outcome(run)

    def output(self, run: RunFolder, pod: str = "main-0") -> str:
        path = run.path / "out" / f"{pod}.log"
        return path.read_text() if path.exists() else ""

    def close(self) -> None:
        self.fork_server.kill()
        self.fork_server.communicate()
        for run in self.folder.runs():
            if run.shim_lives():
                os.kill(run.shim_pid(), signal.SIGTERM)
                until(lambda run=run: not run.shim_lives(), "the shim's end")  # type: ignore[misc]
        self.folder.close()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # the second between open and read
        return False
    return state not in "ZX"


def journal(run: RunFolder) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run.path / "journal").read_text().splitlines()]


def test_a_job_that_ends_well_has_succeeded_and_its_output_is_kept(bench: Bench) -> None:
    run = bench.start(sh("echo out; echo err >&2"))
    assert bench.outcome(run) == ("succeeded", "")
    assert bench.output(run) == "out\nerr\n"
    assert run.journal.up
    assert run.journal.ready


def test_a_shim_imports_no_module_that_the_fork_server_does_not_have(bench: Bench) -> None:
    run = bench.prepare(sh("true"))
    code = (
        "import sys; sys.path.extend(sys.argv[2:]); "
        "from admittance.runner.jobs.fork_server import run_shim; before = set(sys.modules); "
        "run_shim(sys.argv[1]); print(set(sys.modules) - before)"
    )
    argv = [*FORK_SERVER[: FORK_SERVER.index("-c") + 1], code, str(run.path), *FORK_SERVER[-2:]]
    assert subprocess.check_output(argv, text=True, timeout=LIMIT) == "set()\n"
    assert bench.outcome(run)[0] == "succeeded"


@pytest.mark.parametrize("cwd", ["", "/"], ids=["spawned", "forked"])
def test_a_process_begins_with_no_signal_ignored_or_blocked(cwd: str, bench: Bench) -> None:
    script = "grep -E 'Sig(Blk|Ign)' /proc/self/status"
    run = bench.start(ContainerPlan(name="c", argv=("/bin/sh", "-c", script), cwd=cwd))
    assert bench.outcome(run)[0] == "succeeded"
    _, blocked, _, ignored = bench.output(run).split()
    ours = (1 << 31) - 1  # signals 32 and 33 are those of the C library
    assert (int(blocked, 16) & ours, int(ignored, 16) & ours) == (0, 0)


@pytest.mark.parametrize(
    "container",
    [
        pytest.param(sh("true", **{"A=B": "c"}), id="a variable with an equals sign in its name"),
        pytest.param(sh("true", A="\0"), id="a variable with a zero byte"),
        pytest.param(sh("\0"), id="an argument with a zero byte"),
        pytest.param(ContainerPlan(name="c", argv=("\0",)), id="a program with a zero byte"),
        pytest.param(ContainerPlan(name="c", argv=("true",), cwd="\0"), id="a folder that is none"),
    ],
)
def test_invalid_process_arguments_fail_the_job_for_good(
    bench: Bench, container: ContainerPlan
) -> None:
    """A shim that died of it would be taken for a lost one, and the job be run again for ever."""
    run = bench.start(container)
    kind, message = bench.outcome(run)
    assert kind == "failed"
    assert "main-0" in message


def test_a_failing_pod_fails_the_job_and_ends_the_others(bench: Bench) -> None:
    script = "if [ $JOB_COMPLETION_INDEX = 1 ]; then exit 3; else sleep 60; fi"
    run = bench.start(sh(script), parallel=3, completions=3)
    assert bench.outcome(run) == ("failed", "pod main-1 failed: exit code 3")
    assert ended(run).exit_code == 3
    assert not any(alive(pid) for pid in run.journal.processes)


@pytest.mark.parametrize(
    ("program", "cwd", "code", "why"),
    [
        ("no-such-program", "", 127, "no folder of PATH has the program no-such-program"),
        ("/no/program", "", 127, "cannot start /no/program: No such file or directory"),
        ("/etc/passwd", "", 126, "cannot start /etc/passwd: Permission denied"),
        ("/tmp", "", 126, "cannot start /tmp: Permission denied"),
        ("true", "/no/dir", 127, "cannot enter the working folder /no/dir: No such file or dir"),
    ],
)
def test_a_program_that_cannot_start_fails_the_job(
    bench: Bench, program: str, cwd: str, code: int, why: str
) -> None:
    run = bench.start(ContainerPlan(name="c", argv=(program,), cwd=cwd))
    kind, message = bench.outcome(run)
    assert (kind, ended(run).exit_code) == ("failed", code)
    assert message.startswith(f"pod main-0 failed: {why}")
    assert bench.output(run) == f"admittance: {message}\n"


@needs_root
@pytest.mark.parametrize(("program", "code"), [("/etc/passwd", 126), ("/no/program", 127)])
def test_a_process_of_another_unix_user_that_cannot_start_has_the_status_of_shells(
    tmp_path: Path, program: str, code: int
) -> None:
    user = {"uid": 65534, "gid": 65534, "groups": []}
    with (tmp_path / "output").open("wb") as output, pytest.raises(OSError) as caught:
        start_process([program], {}, ("/", "/"), output.fileno(), user)
    assert start_code(caught.value) == code
    assert start_problem(caught.value).startswith(f"cannot start {program}: ")


def test_a_program_without_execute_permission_is_not_called_missing(tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    (folders[0] / "prog").write_text("")
    env = {"PATH": ":".join(map(str, folders))}
    with pytest.raises(PermissionError) as caught:
        find_program("prog", env, "/")
    assert start_code(caught.value) == 126
    assert start_problem(caught.value) == f"cannot start {folders[0]}/prog: Permission denied"
    (folders[1] / "prog").symlink_to("/bin/true")
    assert find_program("prog", env, "/") == str(folders[1] / "prog")


MESSAGE_CASES: dict[str, tuple[str, int, tuple[str, ...], str]] = {
    "an image that is not there": (
        "Unable to find image 'x:latest' locally\n"
        "docker: Error response from daemon: pull access denied for x.\n"
        "See 'docker run --help'.",
        125,
        ("/bin/false",),
        "Error response from daemon: pull access denied for x. (exit code 125)",
    ),
    "the client of podman": (
        "Error: no such image",
        125,
        ("/bin/false",),
        "Error: no such image (exit code 125)",
    ),
    "the init program of a container": (
        "[FATAL tini (6)] exec /nope failed: No such file or directory",
        127,
        ("/bin/false",),
        "[FATAL tini (6)] exec /nope failed: No such file or directory (exit code 127)",
    ),
    "nothing said": ("well", 125, ("/bin/false",), "exit code 125"),
    "another exit code": ("docker: x", 3, ("/bin/false",), "exit code 3"),
    "no container": ("docker: x", 125, (), "exit code 125"),
}


@pytest.mark.parametrize("case", MESSAGE_CASES)
def test_the_message_has_what_the_client_of_an_engine_says(case: str, bench: Bench) -> None:
    said, code, probe, how = MESSAGE_CASES[case]
    script = f"cat >&2 <<'END'\n{said}\nEND\nexit {code}"
    plan = ContainerPlan(name="c", argv=("/bin/sh", "-c", script), probe=probe)
    assert bench.outcome(bench.start(plan)) == ("failed", f"pod main-0 failed: {how}")


@pytest.mark.parametrize(
    "said",
    [
        'time="2026-11-26T17:16:42Z" level=error msg="error waiting for container: unexpected EOF"',
        "docker: Cannot connect to the Docker daemon at unix:///x. Is it running?\n\n"
        "Run 'docker run --help' for more information",
        'error during connect: Post "http://x/v1.50/containers/create": EOF',
    ],
    ids=["while the container runs", "before it starts", "while it starts"],
)
@pytest.mark.parametrize("retries", [None, 3], ids=["without retries", "with retries"])
def test_a_lost_engine_does_not_count_as_a_result_of_the_job(
    bench: Bench, said: str, retries: int | None
) -> None:
    client = ContainerPlan(
        name="c",
        argv=("/bin/sh", "-c", f"cat >&2 <<'END'\n{said}\nEND\nexit 125"),
        probe=("/bin/false",),
    )
    policy = None if retries is None else PolicyPlan(backoff_limit=retries)
    kind, message = bench.outcome(bench.start(client, sh("sleep 60"), policy=policy))
    assert kind == "lost"
    assert message.startswith("the container engine was lost: ")


def test_a_job_that_lost_its_own_engine_has_failed(bench: Bench) -> None:
    script = "echo 'docker: Cannot connect to the Docker daemon at unix:///x.' >&2; exit 125"
    client = ContainerPlan(name="c", argv=("/bin/sh", "-c", script), probe=("/bin/true",))
    kind, message = bench.outcome(bench.start(client))
    assert kind == "failed"
    assert message.endswith("Cannot connect to the Docker daemon at unix:///x. (exit code 125)")


def test_a_run_ends_only_when_its_containers_are_gone(bench: Bench) -> None:
    """While the engine does not answer, containers may run without a client that waits for them."""
    cleanup = ("/bin/sh", "-c", 'echo >> "$0/asked"; test -e "$0/gone"', str(bench.folder.root))
    run = bench.start(sh("exit 3"), cleanup=(cleanup,))
    asked = bench.folder.root / "asked"
    until(lambda: asked.exists() and len(asked.read_text()) > 1, "two attempts to remove them")
    run.read_journal()
    assert run.journal.outcome is None
    (bench.folder.root / "gone").touch()
    assert bench.outcome(run) == ("failed", "pod main-0 failed: exit code 3")


def test_a_container_with_a_killed_client_is_removed_before_its_pod_runs_again(
    bench: Bench,
) -> None:
    client = ContainerPlan(
        name="c",
        argv=("/bin/sh", "-c", "cat ../../removed && exit 0; kill -9 $$$$"),
        kill=("/bin/sh", "-c", "echo removed > ../../removed"),
    )
    policy = PolicyPlan(backoff_limit=1, delays=AT_ONCE)
    run = bench.start(client, policy=policy)
    assert bench.outcome(run)[0] == "succeeded"
    assert bench.output(run).endswith("\nremoved\n")


def test_further_pods_run_as_others_succeed_and_never_too_many_at_once(bench: Bench) -> None:
    run = bench.start(sh("echo $JOB_COMPLETION_INDEX; sleep 0.05"), parallel=2, completions=5)
    assert bench.outcome(run)[0] == "succeeded"
    assert [bench.output(run, f"main-{index}") for index in range(5)] == [
        f"{i}\n" for i in range(5)
    ]
    at_once = 0
    for line in journal(run):
        at_once += {"start": 1, "end": -1}.get(line["e"], 0)
        assert at_once <= 2


def test_init_containers_come_first_one_after_the_other(bench: Bench) -> None:
    run = bench.start(
        sh("echo main; ls"), init=(sh("sleep 0.1; echo one; touch here"), sh("echo two"))
    )
    assert bench.outcome(run)[0] == "succeeded"
    assert bench.output(run) == "one\ntwo\nmain\nhere\n"


def test_a_failing_init_container_keeps_the_others_from_starting(bench: Bench) -> None:
    run = bench.start(sh("echo main"), init=(sh("exit 4"),))
    assert bench.outcome(run) == ("failed", "pod main-0 failed: exit code 4")
    assert bench.output(run) == ""


def test_all_containers_of_a_pod_must_succeed(bench: Bench) -> None:
    run = bench.start(sh("exit 0"), sh("sleep 0.1; exit 5"))
    assert bench.outcome(run) == ("failed", "pod main-0 failed: exit code 5")


def test_sigterm_stops_everything_a_pod_has_started(bench: Bench) -> None:
    run = bench.start(sh("sleep 61 & echo $!; wait"))
    until(lambda: bench.output(run), "the child's pid")
    child = int(bench.output(run))
    os.kill(run.shim_pid(), signal.SIGTERM)
    assert bench.outcome(run)[0] == "stopped"
    until(lambda: not alive(child), "the end of the child")


@pytest.mark.parametrize("stop", [False, True])
def test_a_daemon_that_left_its_group_ends_with_its_job(bench: Bench, stop: bool) -> None:
    """Otherwise the pod would run on while other workloads use its quota."""
    leave = "(setsid sleep 63 & echo $! ; setsid sh -c 'sleep 64 & echo $!; wait' &)"
    run = bench.start(sh(leave + "; sleep 0.2; " + ("sleep 65" if stop else "true")))
    until(lambda: len(bench.output(run).split()) == 2, "the daemons' pids")
    daemons = [int(pid) for pid in bench.output(run).split()]
    if stop:
        os.kill(run.shim_pid(), signal.SIGTERM)
    assert bench.outcome(run)[0] == ("stopped" if stop else "succeeded")
    assert not any(alive(pid) for pid in daemons)


def test_a_process_that_ignores_sigterm_is_killed_after_the_grace(bench: Bench) -> None:
    run = bench.start(sh("trap '' TERM; echo ready; sleep 62 & wait; sleep 62"), grace=1)
    assert bench.stopped(run)[0] == "stopped"


CHECKPOINTS = "trap 'echo saved; exit 0' TERM; echo on; while :; do sleep 0.02; done"


def test_a_stopped_job_that_exits_with_0_has_not_succeeded(bench: Bench) -> None:
    """The job saved its state to continue later; as a success it would never run again."""
    run = bench.start(sh(CHECKPOINTS))
    assert bench.stopped(run) == ("stopped", "stopped")
    assert bench.output(run).endswith("saved\n")
    assert [line["e"] for line in journal(run)[-3:]] == ["stop", "end", "outcome"]


@pytest.mark.parametrize(("code", "kind"), [(0, "succeeded"), (3, "failed")])
def test_a_job_that_exits_before_the_stop_arrives_keeps_its_result(
    bench: Bench, tmp_path: Path, code: int, kind: str
) -> None:
    flag = tmp_path / "flag"
    run = bench.start(sh(f"echo on; while ! test -e {flag}; do sleep 0.02; done; exit {code}"))
    until(lambda: bench.output(run) and run.read_journal(), "its start")
    os.kill(run.shim_pid(), signal.SIGSTOP)
    flag.touch()
    (pid,) = run.journal.processes
    until(lambda: not alive(pid), "its end")
    os.kill(run.shim_pid(), signal.SIGTERM)
    os.kill(run.shim_pid(), signal.SIGCONT)
    assert bench.outcome(run)[0] == kind
    assert "stop" not in [line["e"] for line in journal(run)]


def test_pods_that_exit_after_the_stop_do_not_count(bench: Bench) -> None:
    script = f"if [ $JOB_COMPLETION_INDEX = 0 ]; then echo on; else {CHECKPOINTS}; fi"
    run = bench.start(sh(script), parallel=3, completions=3)
    until(lambda: run.read_journal() or run.journal.ended, "the end of the first pod")
    until(lambda: all(bench.output(run, f"main-{index}") for index in (1, 2)), "the others")
    os.kill(run.shim_pid(), signal.SIGTERM)
    assert bench.outcome(run)[0] == "stopped"
    ends = {line["p"]: line["whole"] for line in journal(run) if line["e"] == "end"}
    assert ends == {"main-0": True, "main-1": False, "main-2": False}
    (stop,) = [line for line in journal(run) if line["e"] == "stop"]
    assert stop["pods"] == ["main-1", "main-2"]


def test_no_further_pod_starts_after_a_stop(bench: Bench) -> None:
    run = bench.start(sh(CHECKPOINTS), parallel=1, completions=3)
    assert bench.stopped(run)[0] == "stopped"
    assert [line["p"] for line in journal(run) if line["e"] == "start"] == ["main-0"]


def test_a_stop_during_an_init_container_starts_no_container(bench: Bench) -> None:
    run = bench.start(sh("echo main"), init=(sh(CHECKPOINTS),))
    assert bench.stopped(run)[0] == "stopped"
    assert bench.output(run).endswith("saved\n")


def test_a_job_that_exits_0_because_the_lease_ran_out_is_lost(bench: Bench) -> None:
    run = bench.start(sh(CHECKPOINTS), lease=(0.6, 100.0))
    assert bench.outcome(run) == ("lost", "the runner's lease ran out")
    assert bench.output(run).endswith("saved\n")


@pytest.mark.parametrize(
    ("probe", "kind"),
    [
        pytest.param("test -e ended", "succeeded", id="what it stands for has ended"),
        pytest.param("test -e other", "stopped", id="what it stands for still runs"),
    ],
)
def test_a_stop_asks_the_probe_whether_a_container_has_ended(
    bench: Bench, probe: str, kind: str
) -> None:
    """The client of a container engine ends a moment after its container."""
    client = ContainerPlan(
        name="c",
        argv=("/bin/sh", "-c", "trap 'exit 0' TERM; touch ended; echo on; sleep 0.5 & wait; wait"),
        probe=("/bin/sh", "-c", probe),
    )
    run = bench.start(client)
    assert bench.stopped(run)[0] == kind


def test_a_run_stopped_before_its_shim_starts_runs_nothing(bench: Bench) -> None:
    run = bench.prepare(sh("echo ran"))
    run.note_stop(StopNote(evicted=9))
    bench.hand_over(run)
    assert bench.outcome(run)[0] == "stopped"
    assert run.journal.processes == {}


def test_a_run_handed_over_twice_starts_once(bench: Bench) -> None:
    run = bench.prepare(sh("echo ran; sleep 0.2"))
    for _ in range(5):
        bench.hand_over(run)
    assert bench.outcome(run)[0] == "succeeded"
    until(lambda: not run.shim_lives(), "the shim's end")
    bench.hand_over(run)
    # The fork server forks in order: when this one has ended, the other has long looked.
    assert bench.outcome(bench.start(sh("sleep 0.2")))[0] == "succeeded"
    assert bench.output(run) == "ran\n"


def test_shims_outlive_the_fork_server(bench: Bench) -> None:
    run = bench.start(sh("echo on; sleep 0.3; echo done"))
    until(lambda: bench.output(run), "its start")
    os.killpg(bench.fork_server.pid, signal.SIGKILL)
    assert bench.outcome(run)[0] == "succeeded"
    assert bench.output(run) == "on\ndone\n"


def test_the_fork_server_ends_whatever_a_killed_shim_leaves(bench: Bench) -> None:
    """Also processes with another session, without a mark, and with children of their own."""
    script = "setsid env -i /bin/sh -c '/bin/sleep 67 & echo $! $$$$; wait' & wait"
    run = bench.start(sh(script))
    until(lambda: bench.output(run).endswith("\n"), "its start")
    run.read_journal()
    left = [*map(int, bench.output(run).split()), *run.journal.processes]
    os.kill(run.shim_pid(), signal.SIGKILL)
    until(lambda: not any(map(alive, left)), "the end of what it left")


def test_what_a_killed_shim_and_its_killed_fork_server_leave_is_found(bench: Bench) -> None:
    """Also an orphan of another session, without mark, open files and folder of the run."""
    orphan = "(cd /; setsid env -i /bin/sleep 69 <&- >&- 2>&- & echo $!)"
    run, other = (bench.start(sh(f"{orphan}; echo; sleep 70")) for _ in range(2))
    until(lambda: all(bench.output(key).endswith("\n\n") for key in (run, other)), "the starts")
    left, of_other = (int(bench.output(key)) for key in (run, other))
    run.read_journal()
    os.kill(bench.fork_server.pid, signal.SIGKILL)
    os.kill(run.shim_pid(), signal.SIGKILL)
    until(lambda: not run.shim_lives(), "the end of the shim")
    until(lambda: not Path(f"/proc/{left}/environ").read_bytes(), "the empty environment")
    assert alive(left)
    mark = mark_of(run.identity.key)
    assert asyncio.run(end_processes(mark, run.journal.processes, run.fork_server()))
    assert not alive(left)
    assert alive(of_other)
    os.kill(other.shim_pid(), signal.SIGTERM)
    assert bench.outcome(other)[0] == "stopped"
    assert not alive(of_other)


def test_a_fork_server_without_a_runner_ends_with_its_last_shim(bench: Bench) -> None:
    run = bench.start(sh("echo on; sleep 0.3"))
    until(lambda: bench.output(run), "its start")
    assert bench.fork_server.stdin is not None
    bench.fork_server.stdin.close()
    assert bench.outcome(run)[0] == "succeeded"
    assert bench.fork_server.wait(LIMIT) == 0


def test_the_end_of_the_lease_ends_the_job(bench: Bench) -> None:
    run = bench.start(sh("sleep 63"), lease=(0.4, 0.8))
    assert bench.outcome(run) == ("lost", "the runner's lease ran out")


def test_a_shim_that_starts_after_the_end_of_the_lease_starts_no_job(bench: Bench) -> None:
    run = bench.prepare(sh("echo started"))
    bench.folder.touch_lease(boot_seconds() - 101.0)
    bench.hand_over(run)
    assert bench.outcome(run) == ("lost", "the runner's lease ran out")
    assert not bench.output(run) and not run.journal.processes


def test_a_renewed_lease_lets_the_job_continue(bench: Bench) -> None:
    # Two seconds of the lease are left, and the job takes longer.
    run = bench.prepare(sh("sleep 2.1"), lease=(100.0, 110.0))
    bench.folder.touch_lease(boot_seconds() - 98.0)
    bench.hand_over(run)
    bench.folder.touch_lease(boot_seconds())
    assert bench.outcome(run)[0] == "succeeded"


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("$(A)-$(B)", "1-2", id="known names are replaced"),
        pytest.param("$(NO)", "$(NO)", id="unknown names stay"),
        pytest.param("$$(A)", "$(A)", id="two dollars are an escape"),
        pytest.param("$A $", "$A $", id="other dollars are none of ours"),
    ],
)
def test_expand(text: str, want: str) -> None:
    assert expand(text, {"A": "1", "B": "2"}) == want


def test_a_variable_sees_those_before_it_and_wins_over_what_is_given() -> None:
    env = pod_env({"PATH": "/bin"}, [["PATH", "$(I):$(PATH)"], ["X", "$(PATH)$(Y)"]], {"I": "0"})
    assert env == {"PATH": "0:/bin", "I": "0", "X": "0:/bin$(Y)"}


@pytest.mark.parametrize(
    "words",
    [
        pytest.param({"env": (("A", "x" * 100_000), *((f"B{i}", "$(A)") for i in range(90)))},
                     id="variables"),
        pytest.param({"argv": ("/bin/true", *("$(A)" for _ in range(90)))}, id="arguments"),
    ],
)  # fmt: skip
def test_references_to_one_long_variable_do_not_take_the_memory(
    bench: Bench, words: dict[str, Any]
) -> None:
    long = {"argv": ("/bin/true",), "env": (("A", "x" * 100_000),), **words}
    kind, message = bench.outcome(bench.start(ContainerPlan(name="c", **long)))
    assert kind == "failed"
    assert "longer than 6291456 bytes" in message


def test_a_long_name_of_a_program_does_not_fill_the_journal(bench: Bench) -> None:
    forgiving = PolicyPlan(per_index=0, delays=(10.0, 360.0))
    nowhere = ContainerPlan(name="c", argv=("\U0001f600" * 100_000,))
    run = bench.start(nowhere, parallel=2, completions=3, policy=forgiving)
    kind, message = bench.outcome(run)
    assert (kind, len(message)) == ("failed", len(message[:1_000]))
    assert (run.path / "journal").stat().st_size < 100_000


def test_folders_of_ended_pods_are_removed_during_the_run(bench: Bench) -> None:
    """A job may have a million pods, one after the other."""
    run = bench.start(sh("[ $JOB_COMPLETION_INDEX -lt 65 ] || sleep 60"), parallel=8,
                      completions=66)  # fmt: skip
    scratch = run.path / "scratch"
    until(lambda: run.read_journal() and len(run.journal.ended) == 65, "65 ends")
    until(lambda: len(list(scratch.iterdir())) <= 2, "the removal of the folders of 64 pods")
    assert (scratch / "main-65").is_dir()


def test_pods_with_too_many_files_fail_and_others_continue(bench: Bench) -> None:
    cache = VolumePlan(name="cache", variable="CACHE", limit=1 << 20, limit_text="1Mi")
    fills = (
        "[ $ADMITTANCE_ATTEMPT = 1 ] && exit; dd bs=1M count=3 if=/dev/zero of=$CACHE/f; sleep 60"
    )
    again = PolicyPlan(backoff_limit=1, restart=True, delays=(0.01, 0.01))
    retried = bench.start(sh(fills), volumes=(cache,), policy=again)
    failed = bench.start(sh(fills), volumes=(cache,))
    whole = bench.start(sh("dd bs=1M count=3 if=/dev/zero of=f; sleep 60"), scratch_limit=2 << 20)
    others = bench.start(
        sh("[ ! -e $CACHE/f ] && sleep 1.5"), volumes=(cache,), scratch_limit=2 << 20
    )
    over = 'pod main-0 failed: usage of EmptyDir volume "cache" exceeds the limit "1Mi"'
    assert bench.outcome(failed) == ("failed", over)
    assert (ended(failed).reason, ended(failed).exit_code) == ("DiskLimitExceeded", 137)
    kind, message = bench.outcome(whole)
    assert (kind, ended(whole).reason) == ("failed", "DiskLimitExceeded")
    assert "more than 2Mi of files (--scratch-limit" in message
    assert bench.outcome(retried) == ("succeeded", "")
    assert over in bench.output(retried)
    assert bench.outcome(others) == ("succeeded", "")


def test_a_run_with_a_full_journal_fails(bench: Bench) -> None:
    run = bench.prepare(sh("true"), completions=9)
    with (run.path / "journal").open("wb") as journal:
        journal.truncate(JOURNAL_MAX - 1)
    bench.hand_over(run)
    until(lambda: b"outcome" in end_of(run), "an outcome")
    assert b"more pods than one run can keep account of" in end_of(run)
    assert b"main-8" not in end_of(run)


def end_of(run: RunFolder) -> bytes:
    with (run.path / "journal").open("rb") as journal:
        journal.seek(JOURNAL_MAX - 1)
        return journal.read()


def test_a_job_inherits_no_open_file_of_the_runner(tmp_path: Path) -> None:
    """With uvloop a fork server has open copies of its standard files, such as the pipe by which
    the runner names the runs to start."""
    with (tmp_path / "secret").open("w") as secret:
        bench = Bench(tmp_path, secret.fileno())
        try:
            number = secret.fileno()
            run = bench.start(sh(f"[ -e /proc/self/fd/{number} ] && echo open || echo closed"))
            assert bench.outcome(run)[0] == "succeeded"
            assert bench.output(run) == "closed\n"
        finally:
            bench.close()


@pytest.mark.parametrize("forbidden", [True, False])
def test_processes_gain_no_rights_by_programs_if_the_plan_forbids_it(
    bench: Bench, forbidden: bool
) -> None:
    run = bench.start(sh("grep NoNewPrivs /proc/self/status"), no_new_privs=forbidden)
    assert bench.outcome(run)[0] == "succeeded"
    assert bench.output(run).split() == ["NoNewPrivs:", str(int(forbidden))]


# Policies of jobs. ----------------------------------------------------------------------

AT_ONCE = (0.0, 0.0)
NOT_NOW = (1000.0, 1000.0)


def test_a_pod_runs_again_in_an_empty_folder_until_it_succeeds(bench: Bench) -> None:
    script = "ls; echo $ADMITTANCE_ATTEMPT; touch left; exit $((2 - ADMITTANCE_ATTEMPT))"
    run = bench.start(sh(script), policy=PolicyPlan(backoff_limit=2, delays=AT_ONCE))
    assert bench.outcome(run) == ("succeeded", "")
    assert bench.output(run) == (
        "0\nadmittance: pod main-0 failed: exit code 2; retry 1 of 2 in 0 s\n"
        "1\nadmittance: pod main-0 failed: exit code 1; retry 2 of 2 in 0 s\n2\n"
    )
    assert run.journal.ended == {"main-0": 0}


def test_a_pod_that_fails_too_often_fails_the_job_with_that_reason(bench: Bench) -> None:
    run = bench.start(sh("exit 3"), policy=PolicyPlan(backoff_limit=1, delays=AT_ONCE))
    assert bench.outcome(run) == ("failed", "pod main-0 failed: exit code 3; backoffLimit is 1")
    assert (ended(run).reason, ended(run).exit_code) == ("BackoffLimitExceeded", 3)


def test_a_container_starts_again_while_others_in_its_pod_run(bench: Bench) -> None:
    first = sh("[ -e seen ] && exit 0; touch seen; exit 1")
    other = sh("echo one; until [ -e seen ]; do sleep 0.01; done; sleep 0.05")
    policy = PolicyPlan(backoff_limit=1, restart=True, delays=AT_ONCE)
    run = bench.start(first, other, init=(sh("[ -e i ] || { touch i; exit 1; }"),), policy=policy)
    assert bench.outcome(run)[0] == "failed", "the init container used the only retry"
    policy = PolicyPlan(backoff_limit=2, restart=True, delays=AT_ONCE)
    run = bench.start(first, other, init=(sh("[ -e i ] || { touch i; exit 1; }"),), policy=policy)
    assert bench.outcome(run) == ("succeeded", "")
    assert bench.output(run).count("one") == 1


def test_an_index_that_fails_leaves_the_others_running(bench: Bench) -> None:
    script = "[ $JOB_COMPLETION_INDEX != 1 ]"
    policy = PolicyPlan(per_index=0, delays=AT_ONCE)
    run = bench.start(sh(script), parallel=1, completions=3, policy=policy)
    assert bench.outcome(run) == ("failed", "not every index succeeded; failed indexes: 1")
    assert ended(run).reason == "FailedIndexes"
    assert run.journal.ended == {"main-0": 0, "main-1": 1, "main-2": 0}


def test_a_success_policy_ends_the_pods_that_still_run(bench: Bench) -> None:
    rule = SuccessRulePlan(count=1, indexes=((0, 0),))
    policy = PolicyPlan(backoff_limit=0, success_rules=(rule,))
    script = "[ $JOB_COMPLETION_INDEX = 0 ] || exec sleep 100"
    run = bench.start(sh(script), parallel=2, completions=2, policy=policy)
    assert bench.outcome(run) == ("succeeded", "")


def test_a_failed_container_ends_its_pod_and_the_pod_runs_again(bench: Bench) -> None:
    ignores_term = sh("trap '' TERM; [ $ADMITTANCE_ATTEMPT = 1 ] || while :; do sleep 0.05; done")
    policy = PolicyPlan(backoff_limit=1, delays=AT_ONCE)
    run = bench.start(sh("[ $ADMITTANCE_ATTEMPT = 1 ]"), ignores_term, grace=0, policy=policy)
    assert bench.outcome(run) == ("succeeded", "")


def test_a_code_of_the_failure_policy_fails_the_job(bench: Bench) -> None:
    rule = FailureRulePlan(action="FailJob", values=(42,), inside=True, container="c")
    policy = PolicyPlan(backoff_limit=6, failure_rules=(rule,), delays=NOT_NOW)
    run = bench.start(sh("exit 42"), policy=policy)
    assert bench.outcome(run)[0] == "failed"
    assert ended(run).reason == "PodFailurePolicy"


@pytest.mark.parametrize("restart", [False, True])
def test_a_job_that_waits_for_its_next_try_can_be_stopped(bench: Bench, restart: bool) -> None:
    policy = PolicyPlan(backoff_limit=6, restart=restart, delays=NOT_NOW)
    run = bench.start(sh("exit 1"), policy=policy)
    until(lambda: "retry 1 of 6 in 1000 s" in bench.output(run), "the first failure")
    os.kill(run.shim_pid(), signal.SIGTERM)
    assert bench.outcome(run) == ("stopped", "stopped")


def test_a_job_that_waits_for_its_next_try_ends_with_its_lease(bench: Bench) -> None:
    policy = PolicyPlan(backoff_limit=6, delays=NOT_NOW)
    run = bench.start(sh("exit 1"), policy=policy, lease=(0.3, 0.4))
    assert bench.outcome(run) == ("lost", "the runner's lease ran out")


@pytest.mark.parametrize("script", ["sleep 100", "exit 1"], ids=["running", "waiting"])
def test_the_deadline_of_a_job_fails_it(bench: Bench, script: str) -> None:
    policy = PolicyPlan(backoff_limit=6, delays=NOT_NOW)
    run = bench.start(sh(script), policy=policy, deadline=0.3)
    assert bench.outcome(run) == ("failed", "the job was active for 0.3 s")
    assert ended(run).reason == "DeadlineExceeded"


def test_a_job_that_saves_its_state_at_its_deadline_has_failed(bench: Bench) -> None:
    save = "trap 'exit 0' TERM; while :; do sleep 0.02; done"
    run = bench.start(sh(save), policy=PolicyPlan(backoff_limit=0), deadline=0.3)
    assert bench.outcome(run) == ("failed", "the job was active for 0.3 s")


def test_the_deadline_of_a_pod_counts_as_its_failure(bench: Bench) -> None:
    policy = PolicyPlan(backoff_limit=1, pod_deadline=0.2, delays=AT_ONCE)
    run = bench.start(sh("[ $ADMITTANCE_ATTEMPT = 1 ] || exec sleep 100"), policy=policy)
    assert bench.outcome(run) == ("succeeded", "")
    assert "main-0 failed: it was active for 0.2 s; retry 1 of 1" in bench.output(run)


def test_a_job_makes_its_output_neither_longer_than_it_writes_nor_than_its_limit(
    bench: Bench,
) -> None:
    script = "truncate -s 4T /proc/self/fd/1; head -c 5000000 /dev/zero; echo; echo the end"
    run = bench.start(sh(script), output_limit=1 << 20)
    assert bench.outcome(run)[0] == "succeeded"
    out = run.path / "out"
    assert sum(path.stat().st_blocks * 512 for path in out.iterdir()) <= 1 << 20
    (pod,) = read_logs(run, Logs(name="w", tail=1)).pods
    assert pod.text == "the end\n"
    assert 5_000_000 < pod.offset < 5_001_000


# Volumes. -------------------------------------------------------------------------------


def test_the_containers_of_a_pod_share_its_volumes_and_a_new_pod_has_new_ones(bench: Bench) -> None:
    write = sh('touch "$ADMITTANCE_VOLUME_DATA/from-$ADMITTANCE_ATTEMPT"; pwd')
    read = ContainerPlan(
        name="d",
        argv=("/bin/sh", "-c", 'ls; [ "$PWD" = "$VOLUME" ] && exit $((1 - ADMITTANCE_ATTEMPT))'),
        env=(("VOLUME", "$(ADMITTANCE_VOLUME_DATA)"), ("ADMITTANCE_VOLUME_DATA", "/etc")),
        inner_cwd="$(ADMITTANCE_VOLUME_DATA)",
    )
    volumes = (VolumePlan(name="data", variable="ADMITTANCE_VOLUME_DATA"),)
    policy = PolicyPlan(backoff_limit=1, delays=AT_ONCE)
    run = bench.start(read, init=(write,), policy=policy, volumes=volumes)
    assert bench.outcome(run) == ("succeeded", "")
    assert [line for line in bench.output(run).split() if line.startswith("from-")] == [
        "from-0",
        "from-1",
    ]


def test_a_variable_of_a_container_does_not_change_the_words_of_the_runner(bench: Bench) -> None:
    echo = ContainerPlan(
        name="c",
        argv=("/bin/echo", "$(ADMITTANCE_POD)", "$(ADMITTANCE_POD)"),
        env=(("ADMITTANCE_POD", "mine"),),
        own_words=2,
    )
    run = bench.start(echo)
    assert bench.outcome(run)[0] == "succeeded"
    assert bench.output(run) == "main-0 mine\n"
