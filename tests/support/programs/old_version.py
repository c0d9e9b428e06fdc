"""The services of an earlier version, from the history of the repository."""

from __future__ import annotations

import asyncio
import io
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from admittance.services import SERVICES
from support.processes.service_process import variables
from support.servers import within

ROOT = Path(__file__).resolve().parents[3]


def unpack(packed: tarfile.TarFile, folder: Path) -> None:
    """Extracts an archive. Python 3.11.2 knows no filters, and later releases want one."""
    packed.extraction_filter = getattr(tarfile, "data_filter", None)
    packed.extractall(folder)


def build_wheel(commit: str, folder: Path) -> Path:
    """The folder with the modules of the wheel of a commit. Skips the test if the commit is not in
    this clone."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    made = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=False)
    if made.returncode:
        pytest.skip(f"commit {commit} is not in this clone: {made.stderr.decode().strip()}")
    source, site = folder / "source", folder / "site"
    with tarfile.open(fileobj=io.BytesIO(made.stdout)) as packed:
        unpack(packed, source)
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel"]
    built = subprocess.run(build, cwd=source, capture_output=True, check=False, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    (wheel,) = (source / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as packed_wheel:
        packed_wheel.extractall(site)
    show = "from importlib.util import find_spec; print(find_spec('admittance.scheduler').origin)"
    env = {**os.environ, "PYTHONPATH": str(site)}
    shown = subprocess.check_output([sys.executable, "-c", show], cwd=folder, env=env, text=True)
    assert shown.startswith(str(site)), shown
    return site


class OldService:
    """A service of the earlier version as a process. ``site``: the folder of `build_wheel`."""

    def __init__(
        self, site: Path, service: str, url: str, folder: Path, instance: str, **env: str
    ) -> None:
        self.service = service
        self._command = [sys.executable, "-m", SERVICES[service].package]
        self._env = {
            **os.environ,
            **variables(url, folder, instance, **env),
            "PYTHONPATH": str(site),
        }
        self._log = folder / f"{service}-{instance}.log"
        self._process: asyncio.subprocess.Process

    async def start(self) -> None:
        with self._log.open("wb") as log:
            # Not in the repository, whose modules would come first.
            self._process = await asyncio.create_subprocess_exec(
                *self._command, env=self._env, cwd=self._log.parent, stdout=log, stderr=log
            )

    @property
    def log(self) -> str:
        return self._log.read_text()

    @property
    def status(self) -> int | None:
        """The exit status; None: it runs."""
        return self._process.returncode

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        if self.status is None:
            self._process.send_signal(signal.SIGCONT)

    async def kill(self) -> None:
        """kill -9, at once."""
        if self.status is None:
            self._process.kill()
        await within(self._process.wait())
