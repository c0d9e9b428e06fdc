"""The history of the bucket has each revision, and what it lacks is counted."""

from __future__ import annotations

import pytest

from admittance.doctor.finding import NOTE, OK
from admittance.doctor.history import bucket_history_findings
from admittance.events import subjects
from admittance.runtime.bus import bucket, streams
from admittance.runtime.bus.bucket_history import ensure_history, read_state, revision_of
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.bus.history import read_messages
from support.requests import eventually

pytestmark = [pytest.mark.bus, pytest.mark.servers("real")]

KEY = "workload.ns.w"
SUBJECT = f"$KV.{subjects.BUCKET}.{KEY}"


async def put(bus: Bus, value: bytes, **headers: str) -> int:
    return await bus.publish(Outgoing(SUBJECT, value, headers or None))


async def reached(bus: Bus, revision: int) -> None:
    async def has_it() -> bool:
        state = await read_state(bus)
        return state is not None and state.reached >= revision

    await eventually(has_it)


async def test_every_revision_is_kept_also_of_deleted_and_expired_keys(bus: Bus) -> None:
    await put(bus, b"0")
    begins = await put(bus, b"1")
    await ensure_history(bus, days=42)
    await put(bus, b"2")
    await put(bus, b"", **{"KV-Operation": "PURGE", "Nats-Rollup": "sub"})
    last = await put(bus, b"3", **{"Nats-TTL": "1s"})
    await reached(bus, last + 1)  # the marker of the expired value
    kept = await read_messages(bus, [SUBJECT], stream=subjects.HISTORY)
    found = [(revision_of(message.headers), message.data) for message in kept]
    assert found == [
        (begins, b"1"),
        (begins + 1, b"2"),
        (begins + 2, b""),
        (last, b"3"),
        (last + 1, b""),
    ]
    state = await read_state(bus)
    assert state is not None
    assert (state.begins, state.missing) == (begins, 0)
    [finding] = await bucket_history_findings(bus)
    assert (finding.state, finding.found[:12]) == (OK, "4 revisions ")


async def test_lists_of_the_bucket_never_have_old_revisions(bus: Bus) -> None:
    # A mirror in place of a source would answer about every second of these requests.
    await ensure_history(bus, days=42)
    for value in (b"1", b"2", b"3"):
        last = await put(bus, value)
    await reached(bus, last)
    for _ in range(30):
        [entry] = await bucket.read_page(bus, "workload.*.*", after=0, limit=10)
        assert entry.revision == last


async def test_a_history_is_deleted_by_the_setting_and_begins_anew_with_a_new_bucket(
    bus: Bus,
) -> None:
    await put(bus, b"1")
    await ensure_history(bus, days=7)
    await ensure_history(bus, days=0)
    assert await read_state(bus) is None
    [finding] = await bucket_history_findings(bus)
    assert (finding.state, finding.found[:5]) == (NOTE, "none:")
    await ensure_history(bus, days=7)
    await bus.api(f"STREAM.DELETE.{streams.KV_LOG}")
    await streams.ensure(bus)
    assert await read_state(bus) is None
    await ensure_history(bus, days=7)
    state = await read_state(bus)
    assert state is not None
    assert (state.begins, state.last) == (0, 0)


async def test_a_server_that_refuses_the_history_is_used_without_it(bus: Bus) -> None:
    await ensure_history(bus, days=7, replicas=3)
    assert await read_state(bus) is None
