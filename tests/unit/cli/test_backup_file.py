"""The file of a backup: what is written is read, and a damaged file is refused as a whole."""

from __future__ import annotations

import io
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest

from admittance.cli.backup import archive
from admittance.cli.backup.archive import ArchiveWriter, Head, SinceMessage, StreamContents, check
from admittance.cli.backup.backup import open_target
from admittance.cli.support.errors import AnswerIsNo, BadInput
from admittance.runtime.snapshots import Position

HEAD = Head(archive.KIND, archive.FORMAT, "0.1.0", datetime(2026, 11, 23, tzinfo=UTC))
LATER = [SinceMessage(8, "$KV.admittance.workload.ns.w", b"\x00value", {"Nats-TTL": "5s"})]
STREAM = StreamContents("KV_admittance", {"name": "KV_admittance"}, {"last_seq": 7}, 2, 1, 9)
POSITION = Position("workload-controller-4-1", {"ack_policy": "all"}, 31)


def a_backup(head: Head = HEAD) -> bytes:
    made = io.BytesIO()
    writer = ArchiveWriter(made, head)
    writer.add("KV_admittance/0", b"first part")
    writer.add("KV_admittance/1", b"second part")
    writer.add("KV_admittance/since/0", archive._encode(LATER))
    writer.finish([STREAM], [POSITION])
    return made.getvalue()


def test_a_backup_is_read_as_it_was_written() -> None:
    found = check("FILE", io.BytesIO(a_backup()))
    assert found.head == HEAD
    assert found.contents.streams == [STREAM]
    assert found.contents.positions == [POSITION]
    assert list(found.parts(STREAM)) == [b"first part", b"second part"]
    assert list(found.since(STREAM)) == LATER


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
            found = check("FILE", io.BytesIO(changed))
        except BadInput as error:
            assert len(error.lines) == 1
            digests.add(error.lines[0].partition(":")[0])
        else:
            # The byte is in the padding between members, which is no content.
            assert found.contents.streams == [STREAM]
            assert list(found.parts(STREAM)) == [b"first part", b"second part"]
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
    full = pytest.raises(AnswerIsNo, match="/dev/full: No space left")
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
    with pytest.raises(AnswerIsNo) as failed, open_target(str(target)) as file:
        file.write(b"new")
        raise OSError(28, "No space left on device")
    assert failed.value.lines == (f"{target}: No space left on device; the backup was not written",)
    assert target.read_text() == "an earlier backup"
    assert list(tmp_path.iterdir()) == [target]


def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    with (
        pytest.raises(AnswerIsNo) as failed,
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
