"""Finds the groups of this machine below which a runner may make groups for its runs."""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path
from typing import Final

from admittance.job_rules.limits import NO_GROUPS
from admittance.runner.groups import cgroup_v1, cgroup_v2
from admittance.runner.groups.cgroup_v1 import CgroupV1
from admittance.runner.groups.cgroup_v2 import CgroupV2, controllers_of, enable
from admittance.runner.groups.job_groups import JobGroups, Limits, NoGroups, write
from admittance.runner.groups.mounts import Mount, folder_of, mounts_in, own_groups
from admittance.runtime.errors import SetupError

MAIN: Final = "main"
"""The group for the processes of a runner: a group of version 2 with controllers for its groups has
no processes itself."""
PREFIX: Final = "admittance-"
TRIAL: Final = "trial"
"""The name of a run that has a group while the runner starts."""
TRIAL_LIMITS: Final = Limits(memory=1 << 30, processes=16, cpu=500, share=100)
TRIAL_DEVICE: Final = (1, 5)
"""The numbers of /dev/zero."""
TRIAL_SECONDS: Final = 5.0
"""Longest time to try out groups."""


def find_groups(runner: str, path: str = "", proc: Path = Path("/proc")) -> JobGroups:
    """Makes the group of the runner, and moves this process if version 2 asks for it. ``path``: the
    group below which it lies in each tree; "": the own group. Raises SetupError if the group
    ``path`` cannot be used."""
    if path == NO_GROUPS:
        return NoGroups("switched off by --cgroup none")
    try:
        mounts = mounts_in((proc / "self/mountinfo").read_text())
        own = own_groups((proc / "self/cgroup").read_text())
    except OSError as error:
        groups: JobGroups = NoGroups(f"the system has no {error.filename}")
    else:
        unified = next((mount for mount in mounts if not mount.controllers), None)
        if unified is not None and "memory" in controllers_of(unified.path):
            groups = _version_2(runner, path, unified, own.get("", "/"), proc)
        else:
            groups = _version_1(runner, path, mounts, own)
    if problem := _try_out(groups):
        groups.close()
        groups = NoGroups(problem)
    for folder in set(groups.folders().values()):
        _remove_empty(Path(folder))
    if path and not groups.offers().version:
        raise SetupError(f"--cgroup {path}: {groups.offers().why_not}")
    return groups


def _remove_empty(own: Path) -> None:
    """Removes groups of runners that were killed, beside the own group. Another runner makes its
    group again for its next run."""
    for other in own.parent.glob(f"{PREFIX}*"):
        if other != own:
            with contextlib.suppress(OSError):  # it has runs
                other.rmdir()


def _try_out(groups: JobGroups) -> str:
    """Why no process can enter a group, as a clause: otherwise every job would fail by it."""
    try:
        groups.make(TRIAL, TRIAL, TRIAL_LIMITS)
        if files := groups.doors(TRIAL, TRIAL):
            script = 'for file; do echo 0 > "$file" || exit 1; done'
            subprocess.run(["/bin/sh", "-c", script, "sh", *files], env={}, check=True,
                           capture_output=True, timeout=TRIAL_SECONDS)  # fmt: skip
    except subprocess.SubprocessError as error:
        said = getattr(error, "stderr", b"").decode(errors="replace").strip()
        return f"no process can enter a group: {said or error}"
    except OSError as error:
        return f"cannot use groups in {error.filename}: {error.strerror}"
    finally:
        groups.end(TRIAL, seconds=TRIAL_SECONDS)
    return ""


def _can_deny(groups: CgroupV1) -> bool:
    """Whether this process may keep a pod from devices, for which root needs CAP_SYS_ADMIN."""
    try:
        groups.make(TRIAL, TRIAL, Limits())
        return groups.deny_devices(TRIAL, TRIAL, [TRIAL_DEVICE])
    except OSError:
        return False
    finally:
        groups.end(TRIAL, seconds=TRIAL_SECONDS)


def _version_1(runner: str, path: str, mounts: list[Mount], own: dict[str, str]) -> JobGroups:
    folders: dict[str, str] = {}
    missing: list[str] = []
    problems: list[str] = []
    for name in cgroup_v1.CONTROLLERS:
        mount = next((mount for mount in mounts if name in mount.controllers), None)
        if mount is None:
            missing.append(name)
            continue
        parent = _given(path, mount) if path else folder_of(mount, own.get(name, "/"))
        folder = Path(parent, PREFIX + runner)
        try:
            folder.mkdir(parents=bool(path), exist_ok=True)
        except OSError as error:
            problems.append(_problem(folder, error))
        else:
            folders[name] = str(folder)
    if not folders:
        return NoGroups((problems or ["the machine has no control groups"])[0])
    if missing:
        problems.append(f"the machine has no controller {', '.join(missing)}")
    groups = CgroupV1(folders, "; ".join(problems))
    if "devices" in folders and not _can_deny(groups):
        denying = folders.pop("devices")
        problems.append(f"this process may deny no devices in {denying}")
        with contextlib.suppress(OSError):
            Path(denying).rmdir()
        groups = CgroupV1(folders, "; ".join(problems))
    return groups if folders else NoGroups("; ".join(problems))


def _version_2(runner: str, path: str, mount: Mount, own: str, proc: Path) -> JobGroups:
    base = Path(_given(path, mount) if path else folder_of(mount, own))
    try:
        if path:
            _make_below(Path(mount.path), base)
        elif base.name == MAIN:
            base = base.parent
        elif (base / "cgroup.type").exists():  # the root of all groups may have processes
            if base.name.endswith(".service"):
                return NoGroups(
                    f"the unit {base.name} has no DelegateSubgroup={MAIN}, which needs systemd "
                    "254: name a group with --cgroup"
                )
            problem = _move_processes(base, proc)
            if problem and not _may_hold_groups(base.parent):
                return NoGroups(problem)
            base = base.parent if problem else base
        controllers = [name for name in cgroup_v2.CONTROLLERS if name in controllers_of(str(base))]
        if not controllers:
            return NoGroups(f"the group {base} has no controllers")
        enable(str(base), controllers)
        folder = base / (PREFIX + runner)
        folder.mkdir(exist_ok=True)
        enable(str(folder), controllers)
    except OSError as error:
        return NoGroups(_problem(Path(error.filename or base), error))
    missing = [name for name in cgroup_v2.CONTROLLERS if name not in controllers]
    why = f"the group {base} has no controller {', '.join(missing)}" if missing else ""
    return CgroupV2(str(folder), controllers, why)


def _given(path: str, mount: Mount) -> str:
    """The folder of a group that is named by its path in the tree, or by its folder."""
    path = os.path.normpath(path)
    if Path(path).is_relative_to(mount.path):
        return path
    return f"{mount.path}/{path.strip('/')}".rstrip("/")


def _make_below(root: Path, folder: Path) -> None:
    """Makes a group with all groups above it, and gives them the controllers of the root."""
    for above in reversed(folder.parents):
        if above.is_relative_to(root):
            above.mkdir(exist_ok=True)
            wanted = [name for name in controllers_of(str(above)) if name in cgroup_v2.CONTROLLERS]
            with contextlib.suppress(OSError):  # what matters are the controllers of the last group
                enable(str(above), wanted)
    folder.mkdir(exist_ok=True)


def _may_hold_groups(folder: Path) -> bool:
    """Whether this process may make groups with controllers in a group that has no processes, such
    as a slice of systemd."""
    return (
        os.access(folder / "cgroup.procs", os.W_OK)
        and (folder / "cgroup.type").exists()
        and not (folder / "cgroup.procs").read_text().strip()
        and "memory" in (folder / "cgroup.subtree_control").read_text().split()
    )


def _move_processes(base: Path, proc: Path) -> str:
    """Moves the processes of the own group into a group in it; returns why that cannot be done."""
    pids = [int(pid) for pid in (base / "cgroup.procs").read_text().split()]
    others = [pid for pid in pids if not _is_below(pid, os.getpid(), proc)]
    if others:
        return (
            f"the group {base} has other processes, such as {others[0]}: start the runner by "
            "systemd, or name a group with --cgroup"
        )
    (base / MAIN).mkdir(exist_ok=True)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # it has ended
            write(str(base / MAIN / "cgroup.procs"), str(pid))
    return ""


def _is_below(pid: int, above: int, proc: Path) -> bool:
    """Whether a process is ``above`` or was started by it or one of its children."""
    while pid > 1:
        if pid == above:
            return True
        try:
            pid = int((proc / str(pid) / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except (OSError, IndexError, ValueError):
            return False
    return False


def _problem(folder: Path, error: OSError) -> str:
    return f"cannot make groups in {folder.parent}: {error.strerror}"
