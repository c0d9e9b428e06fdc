"""Programs that a runner starts beside jobs, and that are missing for a short time."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from admittance.runner.disk import trash
from admittance.runner.host import docker_executor
from admittance.runner.host.docker_executor import DockerExecutor


async def test_a_client_of_the_engine_that_is_being_replaced_holds_back_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(docker_executor, "PROBLEM_SECONDS", 0.0)
    client = tmp_path / "docker"
    client.write_text("#!/bin/sh\n")
    client.chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    executor = DockerExecutor({})
    await executor.check()
    client.rename(tmp_path / "docker.new")
    executor.doubt()
    why = f"(cannot start {client}: No such file or directory), so no job starts"
    assert (await executor.problem()).endswith(why)
    (tmp_path / "docker.new").rename(client)
    assert await executor.problem() == ""


async def test_trash_stays_while_no_program_can_remove_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trash, "REMOVE", ("/nowhere/sh",))
    left = trash.trash_of(tmp_path) / "left"
    left.mkdir(parents=True)
    await trash.TrashRemover(tmp_path).empty()
    assert left.is_dir()
