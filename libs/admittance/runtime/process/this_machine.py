"""What identifies the machine of this process, and how many processors and how much memory the
machine, or the container of this process, has.

Functions with the parameter ``root`` take the folder below which /proc and /sys lie, so that tests
need no machine.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

from admittance.folders import MachineFacts

ROOT: Final = Path("/")
MI: Final = 1 << 20
UNLIMITED: Final = 1 << 60
"""A limit of version 1 of cgroups that is so large is none."""

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_MACHINE_ID: Final = Path("/etc/machine-id")
_MOUNTS: Final = Path("/proc/self/ns/mnt")


def machine_facts() -> MachineFacts:
    """The facts of this machine, as this process sees it; "" for what the system does not say."""
    identity = _text(_MACHINE_ID).strip()
    if identity:
        # machine-id(5): the number itself must not be shown to others.
        identity = hashlib.sha256(f"admittance {identity}".encode()).hexdigest()[:32]
    try:
        mounts = str(_MOUNTS.readlink())
    except OSError:
        mounts = ""
    return MachineFacts(
        host=os.uname().nodename,
        boot_id=_text(_BOOT_ID).strip(),
        mount_namespace=mounts,
        machine_id=identity,
    )


def cpu_milli(root: Path = ROOT) -> int:
    """The processors that this process may use, in thousandths; 0: not known. A limit of its cgroup
    counts, as in a container with ``--cpus``."""
    allowed = _allowed_processors(root)
    limit = min(_cpu_limits(root), default=0)
    return min(filter(None, (allowed * 1000, limit)), default=0)


def memory_bytes(root: Path = ROOT) -> int:
    """The memory of the machine, or the limit of the cgroup of this process, in whole MiB; 0: not
    known."""
    total = 0
    for line in _text(root / "proc/meminfo").splitlines():
        name, _, value = line.partition(":")
        if name == "MemTotal":
            total = _number(value.removesuffix(" kB").strip()) * 1024
    limit = min(_memory_limits(root), default=0)
    return min(filter(None, (total, limit)), default=0) // MI * MI


def _allowed_processors(root: Path) -> int:
    for line in _text(root / "proc/self/status").splitlines():
        name, _, value = line.partition(":")
        if name == "Cpus_allowed_list":
            return sum(map(_size_of_range, value.strip().split(",")))
    return 0


def _size_of_range(text: str) -> int:
    first, _, last = text.partition("-")
    return _number(last or first) - _number(first) + 1 if first else 0


def _cpu_limits(root: Path) -> Iterator[int]:
    for folder in _cgroups(root, "cpu"):
        quota, _, period = _text(folder / "cpu.max").strip().partition(" ")
        if not quota:
            quota = _text(folder / "cpu.cfs_quota_us").strip()
            period = _text(folder / "cpu.cfs_period_us").strip()
        if _number(quota) > 0 and _number(period) > 0:
            yield _number(quota) * 1000 // _number(period)


def _memory_limits(root: Path) -> Iterator[int]:
    for folder in _cgroups(root, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            limit = _number(_text(folder / name).strip())
            if 0 < limit < UNLIMITED:
                yield limit


def _cgroups(root: Path, controller: str) -> Iterator[Path]:
    """The folders of the cgroup of this process and of those above it."""
    mounted = root / "sys/fs/cgroup"
    for line in _text(root / "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            top = mounted
        elif controller in controllers.split(","):
            top = next(
                (mounted / name for name in (controllers, controller) if (mounted / name).is_dir()),
                mounted,
            )
        else:
            continue
        inner = PurePosixPath(path.lstrip("/"))
        for part in (inner, *inner.parents):
            yield top / part


def _text(path: Path) -> str:
    """The text of a file; "": it does not exist, or cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _number(text: str) -> int:
    """The number in the text; 0: there is none, as in ``max``."""
    return int(text) if text.isascii() and text.isdecimal() else 0
