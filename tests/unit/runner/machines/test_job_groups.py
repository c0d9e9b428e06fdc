"""Groups of processes: one suite for all adapters, on the kernel where it lets this process make
groups, and on plain files for what is written and read."""

from __future__ import annotations

import errno
import os
import select
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from admittance.job_rules.limits import LimitTexts, limits_of
from admittance.runner.groups import cgroup_v1, cgroup_v2, job_groups
from admittance.runner.groups.cgroup_v1 import CgroupV1
from admittance.runner.groups.cgroup_v2 import CgroupV2, weight_of
from admittance.runner.groups.job_groups import JobGroups, Limits, NoGroups, Usage
from admittance.runner.groups.machine_groups import find_groups
from admittance.runner.groups.mounts import V1, Mount, folder_of, mounts_in, own_groups
from admittance.runner.groups.opened import groups_of
from admittance.runner.groups.run_groups import oom_text
from admittance.runner.host.local_executor import LocalExecutor
from admittance.runner.plans.pod_limits import GroupsPlan, PodLimits
from admittance.runtime.errors import SetupError
from unit.runner.jobs.test_runner_shim import Bench, bench, sh, until  # noqa: F401  (a fixture)

MEBI = 1 << 20
KINDS = ("v1", "v2", "none")


@pytest.fixture(params=KINDS)
def groups(request: pytest.FixtureRequest) -> Iterator[JobGroups]:
    """The groups of this machine, of one kind."""
    job_groups: JobGroups = NoGroups("a test")
    if request.param != "none":
        job_groups = find_groups(f"test-{os.getpid()}")
        if job_groups.offers().version != request.param:
            why = (
                job_groups.offers().why_not
                or f"this machine has cgroup {job_groups.offers().version}"
            )
            job_groups.close()
            job_groups = without_controllers(request.param, why)
    yield job_groups
    for run in job_groups.runs():
        assert job_groups.end(run, seconds=10)
    job_groups.close()
    if isinstance(job_groups, CgroupV2):
        assert job_groups.remove("")


def without_controllers(kind: str, why: str) -> JobGroups:
    """Groups of version 2 that limit nothing, beside those of version 1."""
    mounts = mounts_in(Path("/proc/self/mountinfo").read_text())
    root = next((Path(mount.path) for mount in mounts if not mount.controllers), None)
    if kind != "v2" or root is None or os.geteuid():
        pytest.skip(f"no groups of cgroup {kind} here: {why}")
    folder = root / f"admittance-test-{os.getpid()}"
    folder.mkdir(exist_ok=True)
    return CgroupV2(str(folder), [])


def start(
    groups: JobGroups,
    script: str,
    pod: str = "pod",
    run: str = "run",
    out: int = subprocess.DEVNULL,
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["/bin/sh", "-c", script],
        stdout=out,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=lambda: groups.join(run, pod),  # noqa: PLW1509  (one thread)
    )


def test_groups_end_all_processes_of_a_run_and_only_them(groups: JobGroups) -> None:
    for pod in ("pod", "other"):
        groups.make("run", pod, Limits(processes=50, cpu=500, share=1000))
    plan = {"version": groups.offers().version, "folders": groups.folders()}
    again = groups_of(plan) if groups.folders() else groups
    # A process of another session, without environment, whose parent is gone.
    first = start(groups, "(setsid env -i /bin/sleep 69 & echo $!); sleep 69", out=subprocess.PIPE)
    second = start(groups, "sleep 69", "other")
    assert first.stdout is not None
    orphan = int(first.stdout.readline())
    if groups.offers().version:
        assert groups.runs() == ["run"]
        assert not again.is_empty("run", "pod")
        assert not groups.remove("run")
        assert again.end("run", "pod", seconds=10)
        assert (first.wait(), second.poll()) == (-9, None)
        assert groups.end("run", seconds=10)
        assert second.wait() == -9
        until(lambda: not job_groups.read(f"/proc/{orphan}/cmdline"), "the end of the orphan")
    else:
        assert (groups.runs(), groups.end("run", seconds=0)) == ([], True)
        for child in (first, second):
            os.killpg(child.pid, 9)
            child.wait()
        os.kill(orphan, 9)
    assert groups.is_empty("run")
    first.stdout.close()


def test_a_pod_over_its_memory_is_killed_and_its_usage_says_so(groups: JobGroups) -> None:
    groups.make("run", "pod", Limits(memory=16 * MEBI))
    file, events = groups.watch("run", "pod")
    if not groups.offers().memory:
        assert (file, events) == (-1, 0)
        return
    child = start(groups, f"exec {sys.executable} -S -c 'bytearray(64 << 20)'")
    poll = select.poll()
    poll.register(file, events)
    assert poll.poll(10_000)
    groups.heard(file)
    assert child.wait() == -9
    usage = groups.usage("run", "pod")
    assert (usage.oom_kills > 0, usage.of_machine) == (True, False)
    assert 15 * MEBI < usage.peak <= 16 * MEBI
    os.close(file)


def test_a_killed_process_of_a_pod_with_room_is_no_lack_of_memory(groups: JobGroups) -> None:
    groups.make("run", "pod", Limits(memory=64 * MEBI))
    child = start(groups, "kill -9 $$")
    assert child.wait() == -9
    assert groups.usage("run", "pod").oom_kills == 0


def test_a_pod_has_no_more_processes_than_its_limit(groups: JobGroups) -> None:
    if not groups.offers().processes:
        pytest.skip("these groups limit no processes")
    groups.make("run", "pod", Limits(processes=3))
    child = start(groups, "for n in 1 2 3 4 5; do sleep 69 & done; wait")
    assert child.wait() != 0  # dash ends when it cannot fork
    assert groups.end("run", seconds=10)


def test_a_pod_cannot_open_a_device_that_it_is_denied(groups: JobGroups) -> None:
    groups.make("run", "pod", Limits())
    zero = os.stat("/dev/zero").st_rdev  # noqa: PTH116
    is_denied = groups.deny_devices("run", "pod", [(os.major(zero), os.minor(zero))])
    assert is_denied == groups.offers().devices
    child = start(groups, "head -c 1 /dev/zero")
    assert (child.wait() != 0) == is_denied


# On plain files. -------------------------------------------------------------------------


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is written into files of groups, in order; the files need not be there."""
    values: list[str] = []

    def write(path: str, text: str) -> None:
        values.append(f"{Path(path).name} {text}")

    for module in (job_groups, cgroup_v1, cgroup_v2):
        monkeypatch.setattr(module, "write", write)
    return values


FULL = Limits(memory=64 * MEBI, processes=9, cpu=500, share=2000)


def v1(tmp_path: Path) -> CgroupV1:
    return CgroupV1({name: str(tmp_path) for name in cgroup_v1.CONTROLLERS})


def v2(tmp_path: Path) -> CgroupV2:
    return CgroupV2(str(tmp_path), ["cpuset", "cpu", "memory", "pids"])


@pytest.mark.parametrize(
    ("make", "want"),
    [
        (
            v1,
            [
                *("memory.limit_in_bytes 67108864", "memory.memsw.limit_in_bytes 67108864"),
                *("pids.max 9", "cpu.shares 2048", "cpu.cfs_quota_us 50000"),
            ],
        ),
        (
            v2,
            [
                *["cgroup.subtree_control +memory +pids +cpu"] * 2,
                *("memory.oom.group 1", "memory.swap.max 0", "memory.max 67108864"),
                *("pids.max 9", "cpu.weight 79", "cpu.max 50000 100000"),
            ],
        ),
    ],
)
def test_limits_are_written_in_their_order(
    make: Callable[[Path], JobGroups],
    want: list[str],
    tmp_path: Path,
    written: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    groups = make(tmp_path)
    groups.make("run", "pod", FULL)
    assert written == want
    written.clear()
    groups.make("run", "second", Limits(cpu=4000, processes=1 << 22))
    assert written == [], (
        "no limit, and limits that the kernel refuses because nothing reaches them"
    )


@pytest.mark.parametrize(("share", "want"), [(0, 1), (2, 1), (1000, 39), (256_000, 10_000)])
def test_a_share_of_cpu_has_the_weight_that_kubernetes_gives(share: int, want: int) -> None:
    assert weight_of(share) == want


V1_KILL = {"memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n"}
LIMIT = {"memory.limit_in_bytes": "67108864\n"}


@pytest.mark.parametrize(
    ("make", "files", "want"),
    [
        (v1, {}, (0, 0, False)),
        (v1, {"memory.max_usage_in_bytes": "7\n"}, (7, 0, False)),
        (v1, {**V1_KILL, **LIMIT, "memory.max_usage_in_bytes": "67108864\n"}, (67108864, 1, False)),
        (v1, {**V1_KILL, **LIMIT, "memory.max_usage_in_bytes": "9000000\n"}, (9000000, 1, True)),
        (v2, {"memory.events": "low 0\noom 0\noom_kill 0\n", "memory.peak": "7\n"}, (7, 0, False)),
        (v2, {"memory.events": "oom 1\noom_kill 3\n", "memory.peak": "7\n"}, (7, 3, False)),
        (v2, {"memory.events": "oom 0\noom_kill 1\n"}, (0, 1, True)),
    ],
)
def test_the_usage_of_a_pod_is_read_from_its_files(
    make: Callable[[Path], JobGroups],
    files: dict[str, str],
    want: tuple[int, int, bool],
    tmp_path: Path,
) -> None:
    (tmp_path / "run/pod").mkdir(parents=True)
    for name, text in files.items():
        (tmp_path / "run/pod" / name).write_text(text)
    groups = make(tmp_path)
    usage = groups.usage("run", "pod")
    assert (usage.peak, usage.oom_kills, usage.of_machine) == want
    assert groups.oom_kills("run", "pod") == want[1]


@pytest.mark.parametrize(
    ("has_devices", "want"),
    [(False, ["cpu,pids/run/pod/tasks", "memory/run/pod/tasks"]),
     (True, [f"{name}/run/pod/tasks" for name in ("cpu,pids", "memory", "devices")])],
)  # fmt: skip
def test_a_process_enters_each_tree_of_version_1_once_and_alone(
    has_devices: bool, want: list[str], tmp_path: Path
) -> None:
    folders = {"cpu": "cpu,pids", "pids": "cpu,pids", "memory": "memory", "devices": "devices"}
    groups = CgroupV1({name: str(tmp_path / folder) for name, folder in folders.items()})
    groups.make("run", "pod", Limits())
    if has_devices:
        (tmp_path / "devices/run/pod").mkdir(parents=True)
        (tmp_path / "devices/run/pod/tasks").touch()
    doors = [str(Path(door).relative_to(tmp_path)) for door in groups.doors("run", "pod")]
    assert sorted(doors) == sorted(want)


@pytest.mark.parametrize(
    ("usage", "limit", "want"),
    [
        (Usage(64 * MEBI, 1), 64 * MEBI, "out of memory (limit 64Mi, peak 64Mi)"),
        (Usage(0, 1), 3 << 30, "out of memory (limit 3Gi, peak not known)"),
        (
            Usage(12_900_000, 1, of_machine=True),
            64 * MEBI,
            "the machine ran out of memory (peak 12.3Mi, limit 64Mi)",
        ),
        (
            Usage(900, 1, of_machine=True),
            0,
            "the machine ran out of memory (peak 900, no limit)",
        ),
    ],
)
def test_a_pod_without_memory_says_how_much_it_had_and_might_have(
    usage: Usage, limit: int, want: str
) -> None:
    assert oom_text(usage, limit) == want


MOUNTS = """\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 /docker/1 /sys/fs/cgroup/my\\040memory rw,relatime - cgroup cgroup rw,memory
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""


def test_mounts_and_own_groups_are_read_by_controller() -> None:
    mounts = mounts_in(MOUNTS)
    assert mounts == [
        Mount("/sys/fs/cgroup/cpu,cpuacct", "/", ("cpu",)),
        Mount("/sys/fs/cgroup/my memory", "/docker/1", ("memory",)),
        Mount("/sys/fs/cgroup/unified", "/", ()),
    ]
    own = own_groups("4:memory:/docker/1/a\n1:cpu,cpuacct:/\n0::/user.slice/x:y\n")
    assert own == {"memory": "/docker/1/a", "cpu": "/", "cpuacct": "/", "": "/user.slice/x:y"}
    assert folder_of(mounts[1], "/docker/1/a") == "/sys/fs/cgroup/my memory/a"
    assert folder_of(mounts[1], "/docker/12") == "/sys/fs/cgroup/my memory"
    assert folder_of(mounts[0], "/") == "/sys/fs/cgroup/cpu,cpuacct"


class Machine:
    """A machine whose tree of cgroup v2 is plain files."""

    def __init__(self, tmp: Path, own: str, *, processes: str = "", controllers: str) -> None:
        self.root, self.proc = tmp / "cgroup", tmp / "proc"
        self.base = self.root / own.strip("/")
        self.base.mkdir(parents=True)
        (self.proc / "self").mkdir(parents=True)
        mount = f"30 1 0:2 / {self.root} rw - cgroup2 cgroup2 rw\n"
        (self.proc / "self/mountinfo").write_text(mount)
        (self.proc / "self/cgroup").write_text(f"0::{own}\n")
        for folder in {self.root, self.base}:
            (folder / "cgroup.controllers").write_text(controllers)
            (folder / "cgroup.procs").write_text(processes)
        if own != "/":
            (self.base / "cgroup.type").write_text("domain\n")


GIVE = "cgroup.subtree_control +memory +pids"


@pytest.mark.parametrize(
    ("own", "path", "processes", "want", "writes"),
    [
        ("/", "", "1\n", "admittance-r", [GIVE] * 2),
        ("/a.service/main", "", "ME", "a.service/admittance-r", [GIVE] * 2),
        ("/a.scope", "", "ME", "a.scope/admittance-r", ["cgroup.procs ME", *[GIVE] * 2]),
        ("/a.scope", "", "ME 1", "has other processes, such as 1: start the runner by", []),
        ("/a.service", "", "ME", "no DelegateSubgroup=main, which needs systemd 254: name", []),
        ("/a.scope", "/b/c", "ME 1", "b/c/admittance-r", [GIVE] * 4),
    ],
)
def test_a_runner_makes_groups_of_version_2_where_it_may(
    own: str,
    path: str,
    processes: str,
    want: str,
    writes: list[str],
    tmp_path: Path,
    written: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from admittance.runner.groups import machine_groups

    monkeypatch.setattr(machine_groups, "write", job_groups.write)
    monkeypatch.setattr(machine_groups, "_try_out", lambda _: "")
    processes = processes.replace("ME", str(os.getpid()))
    machine = Machine(tmp_path, own, processes=processes, controllers="cpuset memory pids")
    if path:
        for folder in (machine.root / "b", machine.root / "b/c"):
            folder.mkdir()
            (folder / "cgroup.controllers").write_text("memory pids")
    if own.endswith("/main"):
        (machine.base.parent / "cgroup.controllers").write_text("memory pids")
    groups = find_groups("r", path, machine.proc)
    offers = groups.offers()
    assert written == [text.replace("ME", str(os.getpid())) for text in writes]
    if offers.version:
        assert set(groups.folders().values()) == {str(machine.root / want)}
        assert (offers.memory, offers.cpu) == (True, False)
        assert "has no controller cpu" in offers.why_not
    else:
        assert want in offers.why_not


def test_a_runner_in_a_group_with_others_makes_groups_beside_it_in_its_slice(
    tmp_path: Path, written: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from admittance.runner.groups import machine_groups

    monkeypatch.setattr(machine_groups, "write", job_groups.write)
    monkeypatch.setattr(machine_groups, "_try_out", lambda _: "")
    machine = Machine(tmp_path, "/my.slice/a.scope", processes="1", controllers="memory pids")
    above = machine.base.parent
    for name, text in {
        "cgroup.procs": "",
        "cgroup.type": "domain",
        "cgroup.controllers": "memory pids",
        "cgroup.subtree_control": "memory pids",
    }.items():
        (above / name).write_text(text)
    folders = find_groups("r", proc=machine.proc).folders()
    assert set(folders.values()) == {str(above / "admittance-r")}
    assert written == [GIVE] * 2
    (above / "cgroup.procs").write_text("2")
    assert "has other processes" in find_groups("r", proc=machine.proc).offers().why_not


def test_a_runner_that_may_deny_no_devices_offers_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from admittance.runner.groups import machine_groups

    def write(path: str, _: str) -> None:
        if path.endswith("devices.deny"):
            raise PermissionError(errno.EPERM, "Operation not permitted", path)

    monkeypatch.setattr(cgroup_v1, "write", write)
    monkeypatch.setattr(machine_groups, "_try_out", lambda _: "")
    proc = tmp_path / "proc"
    (proc / "self").mkdir(parents=True)
    mounts = [f"3 1 0:2 / {tmp_path}/{name} rw - cgroup cgroup rw,{name}\n" for name in V1]
    (proc / "self/mountinfo").write_text("".join(mounts))
    (proc / "self/cgroup").write_text("1:name=systemd:/\n")
    for name in V1:
        (tmp_path / name).mkdir()
    offers = find_groups("r", proc=proc).offers()
    assert (offers.memory, offers.devices, offers.version) == (True, False, "v1")
    assert "may deny no devices" in offers.why_not


def test_a_new_runner_removes_groups_that_killed_runners_left(
    tmp_path: Path, written: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from admittance.runner.groups import machine_groups

    monkeypatch.setattr(machine_groups, "write", job_groups.write)
    monkeypatch.setattr(machine_groups, "_try_out", lambda _: "")
    machine = Machine(tmp_path, "/", processes="1", controllers="memory pids")
    for name in ("admittance-left", "admittance-runs/run", "another"):
        (machine.root / name).mkdir(parents=True)
    find_groups("r", proc=machine.proc)
    groups = {path.name for path in machine.root.iterdir() if path.is_dir()}
    assert groups == {"admittance-r", "admittance-runs", "another"}
    assert written


def test_groups_that_no_process_can_enter_are_none(
    tmp_path: Path, written: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from admittance.runner.groups import machine_groups

    monkeypatch.setattr(machine_groups, "write", job_groups.write)
    machine = Machine(tmp_path, "/", processes="1", controllers="memory pids")
    closed = machine.root / "admittance-r/trial/trial/cgroup.procs"
    closed.mkdir(parents=True)
    why = find_groups("r", proc=machine.proc).offers().why_not
    assert "no process can enter a group" in why
    assert "Is a directory" in why
    assert written


def test_a_group_that_cannot_be_made_is_a_reason_or_an_error(tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    (proc / "self").mkdir(parents=True)
    mount = f"30 1 0:2 / {tmp_path}/no rw - cgroup cgroup rw,memory\n"
    (proc / "self/mountinfo").write_text(mount)
    (proc / "self/cgroup").write_text("4:memory:/\n")
    offers = find_groups("r", proc=proc).offers()
    assert not offers.memory
    assert "/no: No such file or directory" in offers.why_not
    assert find_groups("r", "none").offers().why_not == "switched off by --cgroup none"
    (tmp_path / "no").write_text("")
    with pytest.raises(SetupError, match=r"--cgroup /x: cannot make groups in .*: Not a directory"):
        find_groups("r", "/x", proc)
    for path in ("x", "/x/../..", "/.."):
        with pytest.raises(SetupError, match="must be the absolute path of a control group"):
            limits_of(LimitTexts(cgroup=path), {})
    assert limits_of(LimitTexts(), {"ADMIT_CGROUP": "/x"}).cgroup == "/x"


async def test_leftovers_end_and_open_runs_go_on(groups: JobGroups) -> None:
    if not groups.offers().version:
        pytest.skip("there are no groups")
    executor = LocalExecutor({})
    executor.groups = groups
    for run in ("left", "open"):
        groups.make(run, "pod", Limits())
    left = start(groups, "sleep 69", run="left")
    runs = start(groups, "sleep 69", run="open")
    await executor.end_leftovers(lambda: {"open", "another"})
    assert (left.wait(), runs.poll(), groups.runs()) == (-9, None, ["open"])
    groups.kill("open")
    assert runs.wait() == -9


# A shim. ---------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_a_job_without_a_group_of_its_own_fails_to_start(
    bench: Bench,  # noqa: F811
    version: str,
) -> None:
    plan = GroupsPlan(version=version, folders={"memory": "/dev/null/group"})
    run = bench.start(sh("true"), groups=plan, limits=PodLimits(memory=MEBI))
    assert bench.outcome(run) == (
        "failed",
        "pod main-0 failed: cannot make its control group: Not a directory",
    )
    assert run.journal.outcome is not None
    assert run.journal.outcome.reason == "FailedToStart"


def test_a_job_over_its_memory_fails_although_its_shell_goes_on(
    bench: Bench,  # noqa: F811
    groups: JobGroups,
) -> None:
    if not groups.offers().memory:
        pytest.skip("these groups limit no memory")
    eats = f"{sys.executable} -S -c 'bytearray(64 << 20)'; echo $?; sleep 69; exit 0"
    plan = GroupsPlan(version=groups.offers().version, folders=groups.folders())
    run = bench.start(sh(eats), groups=plan, limits=PodLimits(memory=16 * MEBI))
    kind, message = bench.outcome(run)
    assert kind == "failed"
    assert message.startswith("pod main-0 failed: out of memory (limit 16Mi, peak 1")
    assert run.journal.outcome is not None
    assert (run.journal.outcome.reason, run.journal.outcome.exit_code) == ("OOMKilled", 137)
    assert groups.runs() == []
