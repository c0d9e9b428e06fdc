"""A runner on a full disk: jobs wait for room, and nothing else ends."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from admittance.job_rules.limits import JobLimits
from admittance.runner.host.data_folder import RunFolder
from integration.runner.harness import OWN_RULES, running_testbed, until


class FullDisk:
    """A disk on which a runner can write neither runs nor stop notes while it is full."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_full = False
        self.refused = 0
        for name in ("write", "note_stop"):
            self._guard(monkeypatch, name)

    def _guard(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        original = getattr(RunFolder, name)

        def guarded(run: RunFolder, value: Any) -> None:
            if self.is_full:
                self.refused += 1
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            original(run, value)

        monkeypatch.setattr(RunFolder, name, guarded)


async def test_jobs_start_and_stop_on_a_full_disk_without_an_end_of_the_runner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FullDisk(monkeypatch)
    monkeypatch.setattr("admittance.runner.upkeep.CHECK_SECONDS", 0.05)
    async with running_testbed(tmp_path) as testbed, testbed.runner():
        works = await testbed.admit("works", "sleep 60")
        await testbed.wait_for_fact("started", "works")
        disk.is_full = True
        evicted = await testbed.evict("works", works)
        assert (await testbed.wait_for_fact("stopped", "works")).revision == evicted
        # The runner tries again from time to time, and the job may take a while to stop.
        before = disk.refused
        assert before >= 1
        waits = await testbed.admit("waits", "echo hi")
        await until(lambda: disk.refused > before, "an attempt to start")
        evicted = await testbed.evict("waits", waits)
        assert (await testbed.wait_for_fact("stopped", "waits")).revision == evicted
        await testbed.admit("later", "echo hi")
        disk.is_full = False
        assert (await testbed.wait_for_fact("finished", "later")).succeeded


async def test_a_job_that_is_stopped_on_a_full_disk_before_its_start_never_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FullDisk(monkeypatch)
    monkeypatch.setattr("admittance.runner.upkeep.CHECK_SECONDS", 0.05)
    rules = msgspec.structs.replace(OWN_RULES, limits=JobLimits(pods=1, free_space=0))
    async with running_testbed(tmp_path) as testbed, testbed.runner(rules=rules):
        first = await testbed.admit("first", "sleep 60")
        await testbed.wait_for_fact("started", "first")
        second = await testbed.admit("second", f"touch {tmp_path}/started; sleep 60")
        await until(lambda: len(list(tmp_path.glob("a/runner/runs/*"))) == 2, "its folder")
        disk.is_full = True
        evicted = await testbed.evict("second", second)
        await until(lambda: disk.refused > 0, "an attempt to stop")
        await testbed.evict("first", first)
        await testbed.wait_for_fact("stopped", "first")
        before = disk.refused
        await until(lambda: disk.refused > before + 2, "further attempts")
        disk.is_full = False
        assert (await testbed.wait_for_fact("stopped", "second")).revision == evicted
        assert not (tmp_path / "started").exists()
