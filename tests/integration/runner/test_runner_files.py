"""A runner brings files to a job and keeps those that it leaves, as the job's Unix user."""

from __future__ import annotations

import asyncio
import io
from hashlib import sha256

import pytest

from admittance.api.files import JOB_FILES, InputFile, JobFiles, written_files
from admittance.events.files import PART_BYTES, input_place, subjects_of_upload
from admittance.job_rules.options import unix_user
from admittance.job_rules.rules import JobRules
from admittance.runner.runs.file_transfers import FileTransfers
from admittance.runtime.bus.files import make_stream, read_file, store_file
from admittance.runtime.errors import BusUnavailable
from integration.runner.harness import NAMESPACE, RunnerTestbed, until
from support.needs import needs_root

pytestmark = pytest.mark.bus

UPLOAD = "train.0123456789ab"
BYTES = b"0123456789" * (PART_BYTES // 8)
ADA = 4_000_000_001


async def stored_input(testbed: RunnerTestbed, outputs: tuple[str, ...] = ()) -> dict[str, str]:
    """Stores an input of two parts; returns the annotation of a job with it."""
    await make_stream(testbed.bus)
    stored = await store_file(testbed.bus, NAMESPACE, UPLOAD, input_place(0), io.BytesIO(BYTES))
    assert (stored.size, stored.parts) == (len(BYTES), 2)
    file = InputFile(name="data/in", size=stored.size, parts=stored.parts, sha256=stored.sha256)
    return {JOB_FILES: written_files(JobFiles(upload=UPLOAD, inputs=(file,), outputs=outputs))}


@needs_root
async def test_a_job_of_another_unix_user_gets_its_input_and_leaves_its_output(
    testbed: RunnerTestbed,
) -> None:
    notes = await stored_input(testbed, ("out", "gone"))
    rules = JobRules(run_as={"*": unix_user(str(ADA))})
    async with testbed.runner(rules=rules):
        script = f'test "$(stat -c %u data/in)" = {ADA} && cp data/in out'
        await testbed.admit("train", script, annotations=notes)
        done = await testbed.wait_for_fact("finished", "train")
    assert done.succeeded, done.message
    out, gone = done.outputs
    assert (out.name, out.sha256) == ("out", sha256(BYTES).hexdigest())
    parts = read_file(testbed.bus, NAMESPACE, out.upload, out.place, out.parts)
    assert b"".join([part async for part in parts]) == BYTES
    assert (gone.name, gone.problem) == ("gone", "the job left no such file")


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("a part", "the input data/in cannot be brought: part 2 of 2 is not on the server"),
        ("bytes", "the input data/in cannot be brought: it is not the file of its SHA-256"),
    ],
)
async def test_a_job_without_its_right_input_fails_to_start_with_the_reason(
    testbed: RunnerTestbed, what: str, says: str
) -> None:
    notes = await stored_input(testbed)
    if what == "a part":
        subject = subjects_of_upload(NAMESPACE, UPLOAD).replace(">", "i0-1")
        await testbed.bus.api("STREAM.PURGE.ADMITTANCE_FILES", {"filter": subject})
    else:
        notes[JOB_FILES] = notes[JOB_FILES].replace(sha256(BYTES).hexdigest(), "a" * 64)
    async with testbed.runner() as runner:
        await testbed.admit("train", "true", annotations=notes)
        done = await testbed.wait_for_fact("finished", "train")
        assert (done.succeeded, done.reason) == (False, "FailedToStart")
        assert done.message == f"{says}; submit the job again"
        (run,) = (runner.folder / "runner" / "runs").iterdir()
        await until((run / "said").exists, "the end of the run")
        assert not (run / "inputs").exists()


async def test_a_job_that_waits_for_its_inputs_is_stopped_like_any_other(
    testbed: RunnerTestbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = await stored_input(testbed)
    asked = asyncio.Event()

    async def away(*_: object) -> None:
        asked.set()
        raise BusUnavailable("the server is away")

    monkeypatch.setattr(FileTransfers, "_read", away)
    async with testbed.runner() as runner:
        revision = await testbed.admit("train", "true", annotations=notes)
        await asyncio.wait_for(asked.wait(), 10)
        (run,) = (runner.folder / "runner" / "runs").iterdir()
        assert not (run / "shim").exists()
        await testbed.evict("train", revision)
        await testbed.wait_for_fact("stopped", "train")
        assert await testbed.said("started", "train") is None
