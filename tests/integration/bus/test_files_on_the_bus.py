"""Parts of files are written once, and removed when no workload needs them any more."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from datetime import timedelta

import msgspec
import pytest

from admittance.api.meta import ObjectMeta
from admittance.control.controller import Controller
from admittance.control.workloads import VersionedWorkload
from admittance.events.files import PART_BYTES, PARTS, part_subject
from admittance.events.subjects import workload_key
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.bus.files import (
    FileMissing,
    make_stream,
    read_file,
    store_file,
    stored_uploads,
)
from admittance.runtime.errors import Full
from admittance.workload.stored import StoredWorkload
from admittance.workload_controller import job_files
from admittance.workload_controller.job_files import JobFilesKeeper

pytestmark = pytest.mark.bus

BYTES = b"0123456789" * PART_BYTES


@pytest.fixture
async def files(bus: Bus) -> AsyncIterator[Bus]:
    await make_stream(bus)
    await make_stream(bus)  # by two leaders
    yield bus


async def store(bus: Bus, upload: str, data: bytes = b"data") -> None:
    await store_file(bus, "n", upload, "i0", io.BytesIO(data))


async def test_a_file_of_many_parts_comes_back_and_no_part_is_replaced(files: Bus) -> None:
    stored = await store_file(files, "n", "w.1", "i0", io.BytesIO(BYTES))
    assert (stored.size, stored.parts) == (len(BYTES), 10)
    assert stored == await store_file(files, "n", "w.1", "i0", io.BytesIO(BYTES))
    with pytest.raises(Full, match="per subject"):
        await files.publish(Outgoing(part_subject("n", "w.1", "i0", 3), b"other"))
    parts = read_file(files, "n", "w.1", "i0", 10)
    assert b"".join([part async for part in parts]) == BYTES
    with pytest.raises(FileMissing, match="part 11 of 11 is not on the server"):
        _ = [part async for part in read_file(files, "n", "w.1", "i0", 11)]


def submitted(controller: Controller, name: str, upload: str) -> None:
    spec = msgspec.Raw(msgspec.json.encode({"podSets": [], "note": upload}))
    workload = StoredWorkload(
        api_version="kueue.x-k8s.io/v1beta2",
        kind="Workload",
        metadata=ObjectMeta(name=name, namespace="n"),
        spec=spec,
    )
    key = workload_key("n", name)
    controller.workloads.keep(key, VersionedWorkload(workload, 1, 1))


async def test_files_go_with_their_workload_and_forgotten_ones_after_an_hour(
    files: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller = Controller(b"secret")
    keeper = JobFilesKeeper(files, controller, limit=1, bound=1 << 30, replicas=1)
    submitted(controller, "kept", "kept.1")
    submitted(controller, "gone", "gone.1")
    submitted(controller, "again", "again.2")
    for upload in ("kept.1", "gone.1", "again.1", "again.2", "never.1"):
        await store(files, upload)
    await files.publish(Outgoing(PARTS.replace("*", "junk"), b""))
    await keeper.check()
    assert len(await stored_uploads(files)) == 6
    controller.workloads.gone(workload_key("n", "gone"))
    await keeper.check()
    left = {upload for _, upload in await stored_uploads(files)}
    assert left == {"kept.1", "again.1", "again.2", "never.1", "junk"}
    later = clock.now() + job_files.UNNAMED + timedelta(minutes=1)
    monkeypatch.setattr(clock, "now", lambda: later)
    await keeper.check()
    assert {upload for _, upload in await stored_uploads(files)} == {"kept.1", "again.2"}


async def test_no_files_are_taken_above_the_bound(files: Bus) -> None:
    await store(files, "w.1")
    for limit, bound, says in (
        (1, 1 << 30, ""),
        (1, 1, "no more are taken"),
        (0, 1 << 30, "takes no files"),
    ):
        keeper = JobFilesKeeper(files, Controller(b"secret"), limit=limit, bound=bound, replicas=1)
        [answer] = keeper.endpoints().values()
        reply = await answer(b"{}", "admit.api.files.n")
        assert says in reply.error
        assert bool(reply.error) == bool(says)
        states = [finding.state for finding in keeper.findings()]
        assert states == ([] if not limit else ["wrong" if says else "ok"])
