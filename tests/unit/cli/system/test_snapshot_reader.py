"""Snapshots are read to their end: what a server cannot restore is no complete snapshot."""

from __future__ import annotations

import io
import tarfile
from struct import pack
from typing import Any

import pytest

from admittance.backup.s2 import Corrupt, Decompressor, decompress_block
from admittance.backup.snapshot_reader import MAGIC, read_snapshot

STATE: dict[str, Any] = {"messages": 2, "bytes": 83, "first_seq": 5, "last_seq": 6}
BEGIN = b"\xff\x06\x00\x00S2sTwO"


def chunk(kind: int, data: bytes) -> bytes:
    return bytes([kind]) + (len(data) + 4).to_bytes(3, "little") + b"sum." + data


def snapshot(*blocks: bytes) -> bytes:
    return BEGIN + b"".join(chunk(1, block) for block in blocks)


def varint(number: int) -> bytes:
    made = b""
    while number >= 0x80:
        made += bytes([number & 0x7F | 0x80])
        number >>= 7
    return made + bytes([number])


def entry(name: bytes, sequence: int, headers: bytes, data: bytes, time: int = 300) -> bytes:
    numbers = len(name), time, sequence, len(headers), len(data)
    return b"".join(map(varint, numbers)) + name + headers + data


def record(sequence: int, subject: bytes, data: bytes) -> bytes:
    return pack("<IQqH", 22 + len(subject) + len(data) + 8, sequence, 7, len(subject)) + (
        subject + data + b"checksum"
    )


def archive_of_files(**more: bytes) -> bytes:
    blocks = record(4, b"a", b"x" * 30) + record(5, b"abc", b"1" * 8) + record(6, b"abc", b"2" * 9)
    erased = record(1 << 63 | 6, b"", b"") + record(1 << 62 | 5, b"", b"")
    files = {"meta.inf": b'{"name": "S"}', "msgs/1.blk": blocks, "msgs/2.blk": erased, **more}
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name.replace("__", "/"))
            member.size, member.mtime = len(content), 7.5
            tar.addfile(member, io.BytesIO(content))
    return made.getvalue()


ENTRIES = (
    MAGIC
    + entry(b"state.json", 0, b"", b"{}")
    + entry(b"abc", 5, b"", b"1" * 8)
    + entry(b"abc", 6, b"h" * 200, b"2" * 300)
    + bytes(5)
)


@pytest.mark.parametrize(
    ("archive", "size"), [(ENTRIES, 41 + 537), (archive_of_files(), 83)], ids=["2.15", "2.12"]
)
def test_a_snapshot_is_complete_at_its_end_only(archive: bytes, size: int) -> None:
    whole = snapshot(archive[:100], archive[100:])
    for width in (1, 7, 1000, len(whole)):
        parts = [whole[place : place + width] for place in range(0, len(whole), width)]
        contents = read_snapshot("S", STATE, parts)
        assert (contents.messages, contents.size, contents.missing()) == (2, size, "")
    for length in range(0, len(archive) - 512 * 20 if len(archive) > 9999 else len(archive), 3):
        with pytest.raises(Corrupt):
            read_snapshot("S", STATE, [snapshot(archive[:length])])
    for length in range(0, len(whole) - 1, 37):
        with pytest.raises(Corrupt):
            read_snapshot("S", STATE, [whole[:length]])


def test_what_the_server_announced_and_did_not_send_is_said() -> None:
    parts = [snapshot(ENTRIES)]
    missing = {**STATE, "messages": 1_003}
    assert read_snapshot("S", missing, parts).missing() == "2 of 1,003 messages"
    assert read_snapshot("S", missing, parts).missing(removed=1_001) == ""
    longer = {**STATE, "bytes": 579}
    assert read_snapshot("S", longer, parts).missing() == "578 of 579 bytes"
    assert read_snapshot("S", {**STATE, "last_seq": 5}, parts).missing() == "1 of 2 messages"


@pytest.mark.parametrize(
    ("archive", "why"),
    [
        (b"x" * 600, "the archive is damaged"),
        (
            archive_of_files(**{"errors.txt": b"no block 3"}),
            "could not read the stream: no block 3",
        ),
        (archive_of_files(**{"msgs__3.blk": b"x" * 30}), "msgs/3.blk ends inside a message"),
        (archive_of_files(**{"meta.inf": b'{"name": "T"}'}), "it is a snapshot of T"),
        (bytes(1024), "the archive has no meta.inf"),
        (MAGIC + entry(b"other", 0, b"", b"{}"), "an entry b'other'"),
        (MAGIC + b"\xff" * 11, "the archive is damaged"),
        (MAGIC + b"\xff\xff\xff\x7f" + bytes(4), "the archive is damaged"),
        (ENTRIES[:-5], "the end is missing"),
    ],
)
def test_what_is_wrong_with_a_snapshot_is_said(archive: bytes, why: str) -> None:
    with pytest.raises(Corrupt, match=why):
        read_snapshot("S", STATE, [snapshot(archive)])


@pytest.mark.parametrize(
    ("block", "text"),
    [
        (b"\x05\x10abcde", b"abcde"),
        (b"\x41\xf0\x40" + b"y" * 65, b"y" * 65),
        (b"\x09\x08abc\x09\x03", b"abcabcabc"),  # overlaps itself
        (b"\x07\x08abc\x01\x03", b"abcabca"),
        (b"\x06\x08abc\x0a\x03\x00", b"abcabc"),
        (b"\x06\x08abc\x0b\x03\x00\x00\x00", b"abcabc"),
        (b"\x0b\x08abc\x01\x03\x01\x00", b"abcabcabcab"),  # the last offset again
        (b"\x10\x08abc\x01\x03\x15\x00\x01", b"abc" + b"abca" + b"bcabcabca"),
        (b"\x87\x03\x00z\x01\x01\x19\x00\x7e\x00", b"z" * 391),
    ],
)
def test_a_block_of_s2_is_decompressed(block: bytes, text: bytes) -> None:
    assert decompress_block(block) == text
    reader = Decompressor()
    assert list(reader.feed(BEGIN + chunk(0xFE, b"padding") + chunk(0, block))) == [text]
    reader.end()


@pytest.mark.parametrize(
    "block",
    [
        *(b"", b"\x05", b"\x05\x10abc", b"\x05\x08abc", b"\x04\x00a\x01\x02"),
        *(
            b"\x04\x00a\x01",
            b"\x04\x00a\x02\x01",
            b"\x04\x00a\x00b\x01\x00",
            b"\xff\xff\xff\xff\x0f",
        ),
    ],
)
def test_a_damaged_block_is_refused(block: bytes) -> None:
    with pytest.raises(Corrupt):
        decompress_block(block)


@pytest.mark.parametrize(
    "data", [b"x" * 9, chunk(1, b"x"), b"\xff\x02\x00\x00ab", BEGIN + b"\x02abc"]
)
def test_what_is_not_s2_is_refused(data: bytes) -> None:
    reader = Decompressor()
    with pytest.raises(Corrupt):
        list(reader.feed(data))
        reader.end()
