"""The file of a backup: each written backup is readable, and a damaged file is refused."""

from __future__ import annotations

import io
import stat
import tarfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from admittance.backup import archive
from admittance.backup.archive import ArchiveWriter, Head, SinceMessage, StreamContents, check
from admittance.cli.system.backup import open_target
from admittance.client.errors import BadInput, RequestFailed
from admittance.runtime.nats_server.snapshots import Position

HEAD = Head(archive.KIND, archive.FORMAT, "0.1.0", datetime(2026, 11, 23, tzinfo=UTC))
LATER = [SinceMessage(8, "$KV.admittance.workload.ns.w", b"\x00value", {"Nats-TTL": "5s"})]
STATE = {"messages": 7, "bytes": 700, "first_seq": 1, "last_seq": 7}
STREAM = StreamContents("KV_admittance", {"name": "KV_admittance"}, STATE, 2, 1, 9)
POSITION = Position("workload-controller-4-1", {"ack_policy": "all"}, 31)


def a_backup(
    head: Head = HEAD,
    stream: StreamContents = STREAM,
    later: list[SinceMessage] = LATER,
    position: Position = POSITION,
) -> bytes:
    made = io.BytesIO()
    writer = ArchiveWriter(made, head)
    writer.add("KV_admittance/0", b"first part")
    writer.add("KV_admittance/1", b"second part")
    writer.add("KV_admittance/since/0", msgspec.json.encode(later))
    writer.finish([stream], [position])
    return made.getvalue()


def a_tar(*members: tarfile.TarInfo, begin: bytes = b"") -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for member in members:
            tar.addfile(member, io.BytesIO(begin.ljust(member.size, b"x")))
    return made.getvalue()


def a_member(name: str, kind: bytes = tarfile.REGTYPE, **more: Any) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type = kind
    for key, value in more.items():
        setattr(member, key, value)
    return member


def with_header(tar: bytes, fields: dict[int, bytes]) -> bytes:
    """The tar archive with other bytes in the header of its first member, and a right checksum."""
    made = bytearray(tar)
    for place, field in fields.items():
        made[place : place + len(field)] = field
    made[148:156] = b"%06o\x00 " % (sum(made[:148]) + 8 * 32 + sum(made[156:512]))
    return bytes(made)


def of_size(size: int) -> bytes:
    return b"\x80" + size.to_bytes(11, "big")


A_SPARSE_FILE = with_header(
    a_tar(a_member("KV_admittance/0", tarfile.GNUTYPE_SPARSE, size=512)),
    {386: b"00000000000\x00" + b"00000001000\x00", 483: of_size(4 << 40)},
)
"""A file of 512 bytes that says it is one of 4 TB."""
A_LONG_ATTRIBUTE = with_header(a_tar(a_member("x", tarfile.XHDTYPE)), {124: of_size(1 << 70)})


def test_long_attributes_of_a_member_are_not_read() -> None:
    """`tarfile` searches them in a time that grows with the square of their length."""
    long = tarfile.TarInfo("././@PaxHeader")
    long.type, long.size = tarfile.XHDTYPE, 8 << 20
    file = io.BytesIO(long.tobuf(tarfile.USTAR_FORMAT) + b"0" * long.size + a_backup())
    with pytest.raises(BadInput, match="a member has attributes"):
        check("FILE", file)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        *(
            (
                a_tar(a_member("KV_admittance/0", kind, linkname="/etc/passwd")),
                "is not a plain file",
            )
            for kind in (b"1", b"2", b"3", b"4", b"5", b"6")
        ),
        (A_LONG_ATTRIBUTE, ""),
        (A_SPARSE_FILE, "KV_admittance/0 is not a plain file"),
        *(
            (a_tar(a_member(name)), f"a backup has no member {name!r}")
            for name in (
                "/etc/passwd",
                "../x",
                "KV_admittance/../0",
                "KV_admittance/01",
                "a",
                "é/0",
            )
        ),
        (a_tar(a_member("backup.json", size=70_000)), "backup.json is too long"),
        (a_tar(a_member("backup.json")), "backup.json: "),
        (a_tar(a_member("backup.json", size=9), begin=b"[[[[[[[["), "backup.json: "),
        (a_backup(position=Position("a b", {}, 1)), "'a b' is not the name of a consumer"),
        *(
            (a_backup(stream=replace(STREAM, **{key: value})), f"KV_admittance: {why}")
            for key, value, why in [
                ("config", {}, "its configuration is of another stream"),
                ("state", {"last_seq": 7}, "its state is missing"),
                ("state", {**STATE, "first_seq": "1"}, "its state is missing"),
                ("parts", 10**12, "KV_admittance/2 is missing"),
                ("since", 2, "KV_admittance/since/1 is missing"),
                ("end", 7, "its end is at 7, its last message at 8"),
                ("end", 10**15, "999,999,999,999,992 of its sequences are missing, at most"),
            ]
        ),
        (
            a_backup(
                stream=replace(STREAM, end=4_000_000),
                later=[replace(LATER[0], sequence=place) for place in (2_000_000, 4_000_000)],
            ),
            "KV_admittance: 3,999,991 of its sequences are missing, at most 3,000,000 are filled",
        ),
        *(
            (a_backup(later=[replace(LATER[0], **{key: value})]), f"KV_admittance: {why}")
            for key, value, why in [
                ("subject", "admit.workload.finished.ns.w", "message 8 does not belong to it"),
                ("subject", "$KV.admittance_claims.x", "message 8 does not belong to it"),
                ("subject", "$KV.admittance.a b", "a message cannot be read"),
                ("headers", {"A": "b\r\nPUB x 0"}, "a message cannot be read"),
                ("sequence", 7, "message 7 does not belong to it"),
                ("sequence", 10**15, "its end is at 9, its last message at 1,000,000,000,000,000"),
            ]
        ),
    ],
)
def test_a_hostile_file_is_refused_with_one_line(content: bytes, why: str) -> None:
    with pytest.raises(BadInput) as refused:
        check("FILE", io.BytesIO(content))
    (line,) = refused.value.lines
    assert line.startswith("FILE is damaged: ")
    assert why in line


def test_a_backup_is_read_as_it_was_written() -> None:
    report = check("FILE", io.BytesIO(a_backup()))
    assert report.head == HEAD
    assert report.contents.streams == [STREAM]
    assert report.contents.positions == [POSITION]
    assert list(report.parts(STREAM)) == [b"first part", b"second part"]
    assert list(report.since(STREAM)) == LATER


def test_a_file_that_was_cut_is_refused_wherever_it_was_cut() -> None:
    whole = a_backup()
    end = whole.rstrip(b"\x00")
    for length in range(0, len(end), 97):
        with pytest.raises(BadInput) as refused:
            check("FILE", io.BytesIO(whole[:length]))
        (line,) = refused.value.lines
        assert line.startswith("FILE ")


def test_a_changed_byte_is_found_wherever_it_is() -> None:
    whole = a_backup()
    digests = set()
    for place in range(0, len(whole), 61):
        changed = whole[:place] + bytes([whole[place] ^ 0x20]) + whole[place + 1 :]
        try:
            report = check("FILE", io.BytesIO(changed))
        except BadInput as error:
            assert len(error.lines) == 1
            digests.add(error.lines[0].partition(":")[0])
        else:
            # The byte is in the padding between members, which is no content.
            assert report.contents.streams == [STREAM]
            assert list(report.parts(STREAM)) == [b"first part", b"second part"]
    assert "FILE is damaged" in digests


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "FILE is empty"),
        (b"x" * 4096, "FILE is not a backup of Admittance"),
        (a_backup(Head("other", 1)), "FILE is not a backup of Admittance"),
        (
            a_backup(Head(archive.KIND, 2, "9.0.0")),
            "FILE has format 2, made by Admittance 9.0.0; this program reads formats up to 1: "
            "restore with that version",
        ),
    ],
)
def test_a_foreign_file_is_refused_with_one_line(content: bytes, why: str) -> None:
    with pytest.raises(BadInput) as refused:
        check("FILE", io.BytesIO(content))
    assert refused.value.lines == (why,)


def test_the_file_belongs_to_its_user_only_and_replaces_an_earlier_one(tmp_path: Path) -> None:
    target = tmp_path / "backup"
    target.write_text("an earlier backup")
    with open_target(str(target)) as file:
        file.write(b"new")
        assert target.read_text() == "an earlier backup"
    assert target.read_bytes() == b"new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


def test_a_device_is_written_and_never_replaced() -> None:
    full = pytest.raises(RequestFailed, match="/dev/full: No space left")
    with full, open_target("/dev/full") as file:
        file.write(b"x")
    with open_target("/dev/null") as file:
        file.write(b"x")
    assert Path("/dev/full").is_char_device()
    assert Path("/dev/null").is_char_device()


def test_the_file_of_a_link_is_replaced_and_the_link_stays(tmp_path: Path) -> None:
    link = tmp_path / "latest"
    link.symlink_to("monday")
    with open_target(str(link)) as file:
        file.write(b"backup")
    assert link.is_symlink()
    assert (tmp_path / "monday").read_bytes() == b"backup"


def test_a_backup_that_fails_leaves_the_earlier_file(tmp_path: Path) -> None:
    target = tmp_path / "backup"
    target.write_text("an earlier backup")
    with pytest.raises(RequestFailed) as failed, open_target(str(target)) as file:
        file.write(b"new")
        raise OSError(28, "No space left on device")
    assert failed.value.lines == (f"{target}: No space left on device; the backup was not written",)
    assert target.read_text() == "an earlier backup"
    assert list(tmp_path.iterdir()) == [target]


def test_the_size_of_a_backup_is_that_of_the_file() -> None:
    made = io.BytesIO()
    writer = ArchiveWriter(made, HEAD)
    writer.finish([STREAM], [POSITION])
    assert writer.size() == len(made.getvalue())


def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    with (
        pytest.raises(RequestFailed) as failed,
        Path("/dev/full").open("wb", buffering=0) as full,
        open_target(str(tmp_path / "backup")),
    ):
        ArchiveWriter(full, HEAD).finish([STREAM], [POSITION])
    (line,) = failed.value.lines
    assert "No space left on device; the backup was not written" in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", ["missing/backup", "."])
def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path, place: str) -> None:
    with pytest.raises(BadInput) as refused, open_target(str(tmp_path / place)):
        pass
    assert len(refused.value.lines) == 1
