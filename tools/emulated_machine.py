"""Runs tests as root on an emulated machine with cgroup v2: ``make test-cgroup2 KERNEL=FILE``.

Needs ``qemu-system-x86_64``, a static ``busybox``, and the file of a Linux kernel that can boot
without modules, such as the ``vmlinuz`` of Debian's package linux-image-cloud-amd64. The machine
has no disk and no network: everything is in its first file system, made of this Python, the
packages of its environment and this tree. It takes some minutes, because nothing is accelerated.
"""

from __future__ import annotations

import argparse
import gzip
import os
import re
import shutil
import stat
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
TESTS: Final = ("tests/unit/runner/machines/test_job_groups.py", "-rs")
SECONDS: Final = 1200
MEMORY: Final = "2048"
DONE: Final = "emulated machine: status "
LEFT_OUT: Final = frozenset(
    (
        *("__pycache__", ".git", ".venv", "test", "idlelib", "tkinter", "ensurepip", "lib2to3"),
        *("turtledemo", "site-packages", "moto", "botocore", "boto3", "mypy", "mypyc", "pip"),
        *("setuptools", "grimp", "opentelemetry", "lightkube", "promql_parser"),
    )
)
"""Folders that the tests of groups do not need."""
INIT: Final = f"""#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /tmp /usr/bin
/bin/busybox --install -s /bin
/bin/busybox --install -s /usr/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t cgroup2 cgroup2 /sys/fs/cgroup
ifconfig lo 127.0.0.1 up
cd /app
export HOME=/tmp PYTHONDONTWRITEBYTECODE=1
export PYTHONPATH=/app/libs:/app/services:/app/tests:/app:/packages
@PYTHON@ -m pytest -p no:cacheprovider --override-ini addopts= -q @TESTS@
echo "{DONE}$?"
poweroff -f
"""


def files_below(folder: Path) -> Iterator[Path]:
    """The files of a folder and of the folders in it that tests need."""
    for entry in sorted(folder.iterdir()):
        if entry.name in LEFT_OUT:
            continue
        if entry.is_dir() and not entry.is_symlink():
            yield from files_below(entry)
        elif entry.suffix != ".pyc" and "__mypyc" not in entry.name:
            yield entry


def libraries_of(program: Path) -> set[Path]:
    """The shared libraries that a program or a module of Python needs."""
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=False)
    return {Path(path) for path in re.findall(r"(/\S+)", listed.stdout) if Path(path).is_file()}


class Archive:
    """The first file system of a machine, in the form that Linux reads (cpio, "newc")."""

    def __init__(self, file: gzip.GzipFile) -> None:
        self._file = file
        self._known: set[str] = set()

    def add(self, name: str, data: bytes, mode: int = 0o644) -> None:
        """Adds a file with the folders above it. ``name``: its path without the first slash."""
        for above in reversed(Path(name).parents[:-1]):
            self._entry(str(above), b"", stat.S_IFDIR | 0o755)
        self._entry(name, data, stat.S_IFREG | mode)

    def add_file(self, path: Path, name: str) -> None:
        """Adds a file of this machine, and the file itself if the path is a link."""
        self.add(name, path.read_bytes(), stat.S_IMODE(path.stat().st_mode) | 0o444)

    def close(self) -> None:
        """Ends the archive."""
        self._entry("TRAILER!!!", b"", 0)

    def _entry(self, name: str, data: bytes, mode: int) -> None:
        if name in self._known:
            return
        self._known.add(name)
        word = name.encode() + b"\0"
        numbers = (len(self._known), mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(word), 0)
        head = b"070701" + b"".join(b"%08x" % number for number in numbers) + word
        self._file.write(head + b"\0" * (-len(head) % 4))
        self._file.write(data + b"\0" * (-len(data) % 4))


def write_archive(path: Path, tests: list[str]) -> None:
    """Writes the first file system of a machine that runs the tests."""
    python = Path(sys.executable).resolve()
    library = Path(sysconfig.get_path("stdlib"))
    packages = Path(sysconfig.get_path("purelib"))
    init = INIT.replace("@PYTHON@", str(python)).replace("@TESTS@", " ".join(tests))
    with gzip.open(path, "wb", 1) as file:
        archive = Archive(file)
        archive.add("init", init.encode(), 0o755)
        archive.add_file(Path(shutil.which("busybox") or ""), "bin/busybox")
        archive.add_file(python, str(python)[1:])
        needed = libraries_of(python)
        for folder, target in ((library, str(library)[1:]), (packages, "packages"), (ROOT, "app")):
            for found in files_below(folder):
                archive.add_file(found, f"{target}/{found.relative_to(folder)}")
                needed |= libraries_of(found) if found.suffix == ".so" else set()
        for found in sorted(needed):
            archive.add_file(found, str(found)[1:])
        archive.close()


def main() -> int:
    """Runs the tests; returns the exit status of pytest."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("kernel", type=Path, help="the file of a Linux kernel")
    parser.add_argument("tests", nargs="*", default=list(TESTS), help="words for pytest")
    given = parser.parse_args()
    for program in ("qemu-system-x86_64", "busybox"):
        if shutil.which(program) is None:
            sys.exit(f"error: {program} is not installed")
    if not given.kernel.is_file():
        sys.exit(f"error: there is no kernel {given.kernel}")
    with tempfile.TemporaryDirectory(prefix="admit-machine-") as folder:
        archive = Path(folder, "initrd.gz")
        write_archive(archive, given.tests)
        return boot(given.kernel, archive)


def boot(kernel: Path, archive: Path) -> int:
    """Prints what the machine prints, up to its end; returns the exit status of its tests."""
    words = ["qemu-system-x86_64", "-accel", "tcg", "-m", MEMORY, "-nographic", "-no-reboot"]
    words += ["-kernel", str(kernel), "-initrd", str(archive)]
    words += ["-append", "console=ttyS0 quiet panic=-1 random.trust_cpu=on"]
    status = 1
    with subprocess.Popen(words, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as machine:
        timer = subprocess.Popen(["/bin/sh", "-c", f"sleep {SECONDS}; kill {machine.pid}"])
        assert machine.stdout is not None
        for line in machine.stdout:
            text = line.decode(errors="replace").rstrip()
            if DONE in text:
                status = int(text.rpartition(DONE)[2])
            sys.stdout.write(f"{text}\n")
            sys.stdout.flush()
        timer.kill()
        timer.wait()
    return status


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main())
