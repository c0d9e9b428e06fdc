"""What a process writes, its services read without decoding it again."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from admittance.api.meta import ObjectMeta
from admittance.events.reader import Unreadable
from admittance.workload import bucket_reader
from admittance.workload.bucket_reader import WRITTEN_BYTES, WRITTEN_MAX, note_written, read
from admittance.workload.stored import StoredWorkload, encode
from support.cores.stepped_timers import a_workload

KEY = "workload.ns.w"


def written(workload: StoredWorkload) -> bytes:
    value = encode(workload)
    note_written(KEY, value, workload)
    return value


def test_a_written_workload_is_read_as_it_is() -> None:
    workload = a_workload()
    value = written(workload)
    assert read(KEY, bytes(bytearray(value))) is workload
    assert read(KEY, value) is workload


def test_a_value_of_another_writer_is_decoded() -> None:
    written(a_workload(uid="ours"))
    assert read(KEY, encode(a_workload(uid="theirs"))).metadata.uid == "theirs"


def test_a_written_workload_is_validated_when_it_is_read() -> None:
    value = written(replace(a_workload(), metadata=ObjectMeta(name="other", namespace="ns")))
    for _ in range(2):
        with pytest.raises(Unreadable, match="belongs to another workload: ns/other"):
            read(KEY, value)


def test_a_long_value_replaces_one_that_is_kept() -> None:
    written(a_workload())
    long = a_workload(spec=f'{{"queueName": "{"q" * WRITTEN_BYTES}"}}')
    value = written(long)
    assert read(KEY, value) is not long
    assert read(KEY, value) == long


def test_the_number_of_kept_workloads_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket_reader, "_written", {})
    first = a_workload()
    value = written(first)
    for number in range(WRITTEN_MAX):
        note_written(f"workload.ns.w{number}", value, first)
    assert read(KEY, value) is not first
