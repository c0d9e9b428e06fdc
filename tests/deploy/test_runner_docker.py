"""The runner with a container engine: the image runs, its end is known, nothing is left over."""

from __future__ import annotations

import io
import os
import re
import shutil
import signal
import subprocess
import tarfile
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from admittance.events.placement import PlacementPart
from admittance.job_rules.machine_options import MachineTexts, machine_of_texts
from admittance.job_rules.rules import JobRules, UnixUsers
from admittance.runner.host.docker_executor import DockerExecutor
from admittance.runner.inventory.device_files import is_character_device
from admittance.runner.plans.engine_orders import probe_docker
from admittance.runtime.errors import SetupError
from integration.runner.harness import RunnerTestbed, running_testbed, until
from support.servers import within

DOCKER = shutil.which("docker") or ""


def docker(*words: str, data: bytes = b"") -> str:
    done = subprocess.run([DOCKER, *words], input=data, capture_output=True, check=True, timeout=60)
    return done.stdout.decode().strip()


def engine_answers() -> bool:
    try:
        docker("version", "--format", "{{.Server.Version}}")
    except (OSError, subprocess.SubprocessError):
        return False
    return True


pytestmark = [
    pytest.mark.deploy,
    pytest.mark.skipif(not DOCKER or not engine_answers(), reason="no container engine answers"),
]


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    """An image of this machine's shell, since none may be there to pull."""
    name = f"admittance-runner-test:{uuid.uuid4().hex[:8]}"
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        libraries: set[str] = set()
        for program in ("sh", "sleep"):
            path = Path(shutil.which(program) or "").resolve()
            tar.add(path, f"bin/{program}")
            linked = subprocess.run(["ldd", path], capture_output=True, text=True, check=True)
            libraries.update(re.findall(r"(/\S+)", linked.stdout))
        for library in libraries:
            tar.add(Path(library).resolve(), library.lstrip("/"))
    docker("import", "--change", 'ENTRYPOINT ["/bin/sh", "-c"]', "-", name, data=packed.getvalue())
    yield name
    docker("rmi", "--force", name)


@pytest.fixture
async def testbed(tmp_path: Path) -> AsyncIterator[RunnerTestbed]:
    async with running_testbed(tmp_path) as testbed:
        yield testbed


def containers(testbed: RunnerTestbed) -> list[str]:
    runner = (testbed.tmp / "a/runner/id").read_text()
    listed = docker("ps", "--all", "--format", '{{.Label "admittance.run"}}')
    return [each for each in listed.splitlines() if each.startswith(runner)]


def a_container(image: str, script: str, **more: Any) -> list[dict[str, Any]]:
    return [{"name": "c", "image": image, "args": [script], **more}]


async def test_the_image_runs_with_its_environment_and_ends(
    testbed: RunnerTestbed, image: str
) -> None:
    async with testbed.runner(executor="docker"):
        env = [{"name": "GREETING", "value": "hello $(ADMITTANCE_POD)"}]
        script = 'echo "$GREETING"; exit $JOB_COMPLETION_INDEX'
        await testbed.admit("train", "", count=2, containers=a_container(image, script, env=env))
        finished = await testbed.wait_for_fact("finished", "train", 60.0)
        assert finished.message == "pod main-1 failed: exit code 1"
        outputs = sorted((testbed.tmp / "a/runner/runs").glob("*/out/*.log"))
        assert [path.read_text() for path in outputs] == ["hello main-0\n", "hello main-1\n"]
        assert containers(testbed) == []


async def test_a_container_runs_as_the_unix_user_of_the_rules_and_of_allowed_images(
    testbed: RunnerTestbed, image: str
) -> None:
    repository = image.partition(":")[0]
    rules = JobRules(run_as={"*": UnixUsers(5000, 6000)}, images=(f"{repository}:*",))
    async with testbed.runner(executor="docker", rules=rules):
        script = "while read -r key uid rest; do echo $key $uid; done </proc/self/status"
        await testbed.admit("train", "", containers=a_container(image, script))
        assert (await testbed.wait_for_fact("finished", "train", 60.0)).succeeded
        (output,) = (testbed.tmp / "a/runner/runs").glob("*/out/*.log")
        status = dict(line.split(" ", 1) for line in output.read_text().splitlines() if " " in line)
        assert 5000 <= int(status["Uid:"]) <= 6000
        assert status["Uid:"] == status["Gid:"]
        await testbed.admit("other", "", containers=a_container("busybox:stable", script))
        refused = await testbed.wait_for_fact("finished", "other", 60.0)
        assert refused.reason == "FailedToStart"
        assert "may not run the image busybox:stable" in refused.message


async def test_a_container_over_its_memory_fails_with_its_limit(
    testbed: RunnerTestbed, image: str
) -> None:
    limits = {"resources": {"requests": {"memory": "16Mi", "cpu": "100m"}}}
    async with testbed.runner(executor="docker"):
        eats = "x=0123456789abcdef; while :; do x=$x$x; done"
        await testbed.admit("train", "", containers=a_container(image, eats, **limits))
        finished = await testbed.wait_for_fact("finished", "train", 60.0)
        assert (finished.succeeded, finished.reason) == (False, "OOMKilled")
        assert "out of memory (limit 16Mi, peak not known)" in finished.message
        await testbed.admit("killed", "", containers=a_container(image, "kill -9 $$", **limits))
        assert (await testbed.wait_for_fact("finished", "killed", 60.0)).reason == "Failed"


@pytest.mark.skipif(
    not all(map(is_character_device, ("/dev/fuse", "/dev/net/tun"))),
    reason="the machine lacks a device",
)
async def test_a_container_has_its_own_devices_and_no_others(
    testbed: RunnerTestbed, image: str
) -> None:
    resource = "example.com/port"
    ports = [f"{testbed.tmp}/port{number}" for number in (0, 1)]
    for path, device in zip(ports, ("/dev/fuse", "/dev/net/tun"), strict=True):
        os.symlink(device, path)  # noqa: PTH211  (the paths are text)
    given = machine_of_texts(MachineTexts(devices=(f"{resource}={ports[0]}x3,{ports[1]}",)), {})
    # Two slices of a device are named twice for the second pod.
    units = tuple(
        f"{ports[number]}{part}" for number, part in ((0, "::0"), (1, ""), (0, "::1"), (0, "::2"))
    )
    script = (
        f"for d in {' '.join(ports)}; do (: <$d) 2>/dev/null && echo opens $d; done; "
        "echo has $ADMITTANCE_DEVICES"
    )
    async with testbed.runner(executor="docker", user="m-1", given=given) as runner:
        id = (runner.folder / "runner/id").read_text()
        for name, count, devices in (("has", 2, {resource: units}), ("none", 1, {})):
            part = PlacementPart(
                runner="m-1", id=id, pod_set="main", first=0, count=count, devices=devices
            )
            containers = a_container(image, script)
            await testbed.admit(name, "", count=count, placement=(part,), containers=containers)
            assert (await testbed.wait_for_fact("finished", name, 60.0)).succeeded
    logs = (testbed.tmp / "a/runner/runs").glob("*/out/*.log")
    said = {f"{log.parts[-3].split('.')[1]} {log.stem}": log.read_text() for log in logs}
    opens = [f"opens {path}\n" for path in ports]
    assert said == {
        "has main-0": f"{opens[0]}{opens[1]}has {','.join(ports)}\n",
        "has main-1": f"{opens[0]}has {ports[0]}\n",
        "none main-0": "has\n",
    }


async def test_an_evicted_container_is_stopped(testbed: RunnerTestbed, image: str) -> None:
    async with testbed.runner(executor="docker"):
        script = "trap '' TERM; echo ready; while :; do sleep 0.1; done"
        admitted = await testbed.admit("train", "", containers=a_container(image, script))
        await until(lambda: containers(testbed), "the container")
        await testbed.evict("train", admitted)
        await testbed.wait_for_fact("stopped", "train", 60.0)
        assert containers(testbed) == []


async def test_a_container_that_exits_0_because_it_is_stopped_has_stopped(
    testbed: RunnerTestbed, image: str
) -> None:
    async with testbed.runner(executor="docker"):
        script = "trap 'exit 0' TERM; echo on; while :; do sleep 0.1; done"
        admitted = await testbed.admit("train", "", containers=a_container(image, script), grace=20)
        (out,) = await until(
            lambda: sorted((testbed.tmp / "a/runner/runs").glob("*/out/*.log")), "the output", 60.0
        )
        await until(lambda: "on" in out.read_text(), "the container")
        evicted = await testbed.evict("train", admitted)
        assert (await testbed.wait_for_fact("stopped", "train", 60.0)).revision == evicted
        assert await testbed.said("finished", "train") is None


def test_the_engine_reports_whether_a_container_has_ended(tmp_path: Path, image: str) -> None:
    def ended(name: str) -> bool:
        probe = probe_docker(DOCKER, f"{name}.cid")
        return subprocess.run(probe, check=False, cwd=tmp_path, timeout=60).returncode == 0

    def start(name: str, script: str) -> str:
        path = str(tmp_path / f"{name}.cid")
        return docker("run", "--detach", "--cidfile", path, image, script)

    runs, over = start("runs", "sleep 60"), start("over", "true")
    try:
        docker("wait", over)
        assert (ended("none"), ended("runs"), ended("over")) == (False, False, True)
        docker("rm", over)
        assert ended("over"), "also when the engine has removed it"
    finally:
        docker("rm", "--force", runs)


async def test_a_killed_shim_leaves_no_container(testbed: RunnerTestbed, image: str) -> None:
    async with testbed.runner(executor="docker"):
        script = "while :; do sleep 0.1; done"
        await testbed.admit("train", "", containers=a_container(image, script))
        await until(lambda: containers(testbed), "the container")
        (shim,) = sorted((testbed.tmp / "a/runner/runs").glob("*/shim"))
        os.kill(int(shim.read_text().split()[0]), signal.SIGKILL)
        assert (await testbed.wait_for_fact("stopped", "train", 60.0)).reason == "NodeFailures"
        assert containers(testbed) == []


async def test_without_an_engine_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    with pytest.raises(SetupError, match="no container engine"):
        await within(DockerExecutor().check())
