"""Programs that a runner starts beside jobs, and that are missing for a short time."""

from __future__ import annotations

import stat
from pathlib import Path

import msgspec
import pytest

from admittance.events.facts import Admitted
from admittance.events.placement import PlacementPart
from admittance.events.shapes import PodSetToRun
from admittance.events.stored.machines import Device
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


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("podman version 4.3.1", "--device $(ADMITTANCE_ENGINE_DEVICE_0)"),
        ("Docker version 27.5.1, build 9f9e405", '--gpus "device=$(ADMITTANCE_ENGINE_DEVICES)"'),
    ],
)
async def test_the_command_docker_may_be_that_of_podman(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, words: str
) -> None:
    client = tmp_path / "docker"
    client.write_text(f"#!/bin/sh\necho {version}\n")
    client.chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    executor = DockerExecutor({})
    await executor.check()
    gpu = Device(resource="nvidia.com/gpu", index=0, id="GPU-1", minor=0)
    assert executor.take_devices("r1", (gpu,)) == ()
    part = PlacementPart(
        runner="m", id="r1", pod_set="main", first=0, count=1, devices={gpu.resource: (gpu.id,)}
    )
    template = msgspec.Raw(b'{"spec": {"containers": [{"name": "c", "image": "x"}]}}')
    pod_set = PodSetToRun(name="main", count=1, template=template, parts=(part,))
    fact = Admitted(namespace="ns", name="w", uid="u", revision=1, pod_sets=(pod_set,))
    (planned,) = executor.run_plan(fact, "mark").sets
    assert words in " ".join(planned.main[0].argv)


async def test_trash_stays_while_no_program_can_remove_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trash, "REMOVE", ("/nowhere/sh",))
    left = trash.trash_of(tmp_path) / "left"
    left.mkdir(parents=True)
    await trash.TrashRemover(tmp_path).empty()
    assert left.is_dir()
