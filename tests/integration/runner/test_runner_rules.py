"""A runner starts only what its rules allow, and its jobs reach nothing of it or of each other."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from admittance.events.subjects import STREAM
from admittance.job_rules.limits import JobLimits
from admittance.job_rules.options import unix_user
from admittance.job_rules.rules import JobRules
from integration.runner.harness import OWN_RULES, RunnerTestbed, until
from support.needs import needs_root

pytestmark = pytest.mark.bus

ROOT = Path(__file__).parents[3]
OF_SHELLS = {"PWD", "SHLVL", "_", "OLDPWD"}
OF_PLACED_JOBS = {"ADMITTANCE_DEVICES_NVIDIA_COM_GPU", "ADMITTANCE_HOSTS"}
ADA, BOB = 4_000_000_001, 4_000_000_002
RULES = JobRules(
    run_as={"user:ada": unix_user(str(ADA)), "user:bob": unix_user(str(BOB))},
)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every Unix user may enter: that of a test is not."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def output_of(folder: Path, name: str) -> str:
    (log_file,) = (folder / "runner" / "runs").glob(f"team.{name}.*/out/main-0.log")
    return log_file.read_text()


async def result(testbed: RunnerTestbed, name: str, script: str, **wants: Any) -> Any:
    await testbed.admit(name, script, **wants)
    return await testbed.wait_for_fact("finished", name)


@needs_root
async def test_job_runs_as_the_unix_user_of_its_submitter(
    testbed: RunnerTestbed,
) -> None:
    script = "id -u; id -g; echo $HOME; pwd; touch mine; echo gone >>/dev/stderr"
    async with testbed.runner(rules=RULES) as runner:
        done = await result(testbed, "train", script, submitted_by="ada")
        assert done.succeeded, done.message
        uid, gid, home, cwd, *more = output_of(runner.folder, "train").splitlines()
    assert (int(uid), int(gid), home) == (ADA, ADA, "/")
    assert cwd.endswith("scratch/main-0")
    assert more == ["gone"]


@needs_root
async def test_jobs_read_neither_the_runner_nor_jobs_of_others(
    testbed: RunnerTestbed, open_folder: Path
) -> None:
    creds = open_folder / "runner.creds"
    creds.write_text("SECRET-OF-THE-RUNNER\n")
    creds.chmod(0o600)
    testbed.tmp = open_folder
    async with testbed.runner("data", rules=RULES) as runner:
        root = runner.folder / "runner"
        keep = "echo a; echo a >file; chmod 644 file; while [ ! -e gone ]; do sleep 0.05; done"
        revision = await testbed.admit("ada", keep, submitted_by="ada")
        run = root / "runs" / f"team.ada.{revision}"
        await until((run / "scratch" / "main-0" / "file").exists, "the file of the job")
        targets = [creds, root / "secret", run / "spec.json", run / "out" / "main-0.log"]
        targets += [run / "scratch" / "main-0" / "file", run / "journal", root / "id"]
        script = "".join(f"cat {target}; " for target in targets)
        script += f"ls {root} {root}/runs {run}/scratch/main-0; cat /proc/{os.getpid()}/environ"
        done = await result(testbed, "bob", script, submitted_by="bob")
        assert not done.succeeded
        lines = output_of(runner.folder, "bob").splitlines()
        own = await result(testbed, "peek", f"cat {run}/scratch/main-0/file", submitted_by="ada")
        (run / "scratch" / "main-0" / "gone").touch()
        await testbed.wait_for_fact("finished", "ada")
    assert len(lines) == len(targets) + 4
    assert all("Permission denied" in line for line in lines)
    assert own.succeeded, own.message


@needs_root
async def test_stopped_job_of_another_unix_user_ends(
    testbed: RunnerTestbed, open_folder: Path
) -> None:
    testbed.tmp = open_folder
    async with testbed.runner("data", rules=RULES):
        revision = await testbed.admit("train", "sleep 1000", submitted_by="ada")
        await testbed.wait_for_fact("started", "train")
        await testbed.evict("train", revision)
        await testbed.wait_for_fact("stopped", "train")


@needs_root
async def test_program_that_another_unix_user_may_not_run_is_named(
    testbed: RunnerTestbed, open_folder: Path
) -> None:
    testbed.tmp = open_folder
    program = open_folder / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o700)
    containers = [{"name": "c", "command": [str(program)]}]
    async with testbed.runner("data", rules=RULES):
        done = await result(testbed, "train", "", containers=containers, submitted_by="ada")
    assert not done.succeeded
    assert "Permission denied" in done.message


async def test_job_without_a_unix_user_ends_with_the_option_to_add(
    testbed: RunnerTestbed,
) -> None:
    own = unix_user(str(os.geteuid()))
    async with testbed.runner(rules=JobRules(run_as={"user:ada": own})):
        assert (await result(testbed, "ada", "true", submitted_by="ada")).succeeded
        done = await result(testbed, "eve", "true", submitted_by="eve")
    assert (done.succeeded, done.reason) == (False, "FailedToStart")
    assert "name one with --run-as user:eve=UNIX_USER" in done.message
    assert await testbed.count("started") == 1


async def test_working_folder_outside_the_rules_is_refused(
    testbed: RunnerTestbed, tmp_path: Path
) -> None:
    allowed, link = tmp_path / "work", tmp_path / "work" / "link"
    allowed.mkdir()
    link.symlink_to("/etc")

    def in_folder(folder: Path) -> list[dict[str, Any]]:
        return [{"name": "c", "command": ["/bin/sh", "-c", "pwd"], "workingDir": str(folder)}]

    rules = JobRules(run_as=OWN_RULES.run_as, folders=(str(allowed),))
    async with testbed.runner(rules=rules):
        assert (await result(testbed, "good", "", containers=in_folder(allowed))).succeeded
        assert (await result(testbed, "scratch", "pwd")).succeeded
        done = await result(testbed, "bad", "", containers=in_folder(link))
    assert "may not start jobs in the folder /etc" in done.message


async def test_runner_of_other_namespaces_receives_and_claims_nothing(
    testbed: RunnerTestbed,
) -> None:
    def of(*namespaces: str) -> JobRules:
        return JobRules(run_as=OWN_RULES.run_as, namespaces=namespaces)

    await testbed.admit("before", "true")
    async with testbed.runner("a", rules=of("x", "y")) as other:
        name = (other.folder / "runner" / "id").read_text()
        info = await testbed.bus.api(f"CONSUMER.INFO.{STREAM}.runner-{name}")
        assert set(info["config"]["filter_subjects"]) == {
            f"admit.workload.{what}.{space}.*" for what in ("admitted", "evicted") for space in "xy"
        }
        async with testbed.runner("b", rules=of("team")) as ours:
            assert (await testbed.wait_for_fact("finished", "before")).succeeded
            assert (await result(testbed, "later", "true")).succeeded
            assert (ours.folder / "runner" / "runs").exists()
        assert not list((other.folder / "runner" / "runs").iterdir())


async def test_job_gets_no_variables_of_its_runner(
    testbed: RunnerTestbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", tempfile.gettempdir())
    secrets = {"ADMIT_NATS_TOKEN": "planted-1", "AWS_SECRET_ACCESS_KEY": "planted-2"}
    for name, value in secrets.items():
        monkeypatch.setenv(name, value)
    script = "env; echo =; cat /proc/$PPID/environ"
    async with testbed.runner() as runner:
        assert (await result(testbed, "train", script)).succeeded
        output = output_of(runner.folder, "train")
    assert "planted" not in output
    assert "ADMIT_" not in output
    page = (ROOT / "docs" / "runner.md").read_text().partition("\n## ")[0]
    named = set(re.findall(r"`([A-Z_]{4,})`", page)) - OF_PLACED_JOBS - {"SIGTERM"}
    names = {line.partition("=")[0] for line in output.partition("\n=\n")[0].splitlines()}
    assert names - OF_SHELLS == named


@needs_root
async def test_jobs_have_no_rights_to_gain_and_a_limit_of_processes(
    testbed: RunnerTestbed, open_folder: Path
) -> None:
    testbed.tmp = open_folder
    rules = replace(RULES, limits=JobLimits(processes=77))
    script = "grep NoNewPrivs /proc/self/status; grep 'Max processes' /proc/self/limits"
    async with testbed.runner("data", rules=rules) as runner:
        done = await result(testbed, "train", script, submitted_by="ada")
        assert done.succeeded, done.message
        _, privileges, _, _, soft, hard, _ = output_of(runner.folder, "train").split()
    assert (privileges, soft, hard) == ("1", "77", "77")


async def test_jobs_beyond_the_limit_of_pods_wait_and_say_so(testbed: RunnerTestbed) -> None:
    rules = replace(OWN_RULES, limits=JobLimits(pods=2))
    hold = "while [ ! -e gone ]; do sleep 0.02; done"
    async with testbed.runner(rules=rules) as runner:
        await testbed.admit("first", hold, count=2)
        await testbed.wait_for_fact("started", "first")
        second = await testbed.admit("second", "true")
        third = await testbed.admit("third", "true", count=2)
        large = await result(testbed, "large", "true", count=3)
        assert (large.succeeded, large.reason) == (False, "FailedToStart")
        assert "runs 3 pods at once" in large.message

        reply = await testbed.bus.request("admit.api.logs.team", b'{"name":"third"}', 5.0)
        assert b"at most 2 pods of namespace team at once (--pod-limit)" in reply
        await testbed.evict("second", second)
        await testbed.wait_for_fact("stopped", "second")
        assert await testbed.said("started", "second") is None

        for pod in ("main-0", "main-1"):
            [scratch] = (runner.folder / "runner/runs").glob(f"team.first.*/scratch/{pod}")
            (scratch / "gone").touch()
        finished = await testbed.wait_for_fact("finished", "third")
        assert (finished.succeeded, finished.revision) == (True, third)
