"""The file of a backup: a tar archive that is written and read part by part.

=====================  ===========================================================================
``backup.json``        `Head`: first, says what the file is
``<stream>/<n>``       the parts of the server's snapshot of a stream, from 0
``<stream>/since/<n>`` `SinceMessage` of the messages that were stored during the snapshot
``contents.json``      `Contents`: the streams, the consumers, and the SHA-256 of every member
``end``                SHA-256 of ``contents.json``: a file without it was cut
=====================  ===========================================================================

A file is checked as a whole (`check`) before anything is restored from it.
"""

from __future__ import annotations

import hashlib
import io
import re
import tarfile
from collections.abc import Callable, Container, Iterator
from datetime import datetime
from typing import IO, Any, Final

import msgspec

from admittance.client.errors import BadInput
from admittance.runtime.nats.protocol import frame
from admittance.runtime.nats_server.snapshots import Position

FORMAT: Final = 1
"""The version of the format of a backup file. A program reads backup files of its own format
version and of earlier versions.
"""
KIND: Final = "admittance-backup"
HEAD: Final = "backup.json"
CONTENTS: Final = "contents.json"
END: Final = "end"
_READ_AT_ONCE: Final = 1024 * 1024
_NAMES: Final = re.compile(rf"{HEAD}|{CONTENTS}|{END}|[A-Za-z0-9_]+/(since/)?(0|[1-9][0-9]*)", re.A)
"""The names of members."""
_ATTRIBUTES: Final = (b"x", b"g", b"X", b"L", b"K")
"""The types of members that say something about the next one."""
_CONSUMER: Final = re.compile(r"[A-Za-z0-9_=-]+", re.A)
_KEPT: Final = {HEAD: 64 * 1024, CONTENTS: 1024 * 1024 * 1024, END: 1024}
"""The most bytes of members that are kept in memory."""
SKIPPED_MAX: Final = 3_000_000
"""The most sequences of a stream that a backup has no messages for, since a restore fills them one
by one, 150,000 in a second. They are the revisions that were written and replaced while the backup
was taken: ten minutes of 5,000 in a second."""

_encode = msgspec.json.Encoder().encode


_FOREIGN: Final = (
    *(tarfile.TarError, EOFError, ValueError, OverflowError, MemoryError, RecursionError),
)
"""What `tarfile` raises for bytes that no program wrote as a tar archive."""


class Head(msgspec.Struct, frozen=True):
    """The first member of a backup. ``version``: the version of Admittance that made the backup."""

    kind: str = ""
    format: int = 0
    version: str = ""
    time: datetime | None = None


class SinceMessage(msgspec.Struct, frozen=True):
    """A message of a stream that was stored while the snapshot of the stream was taken."""

    sequence: int
    subject: str
    data: bytes
    headers: dict[str, str] | None = None


class StreamContents(msgspec.Struct, frozen=True):
    """One stream of the backup. ``config``, ``state``: the configuration and the state of the
    stream that the server gave with the snapshot. ``end``: the sequence that the restored stream
    must reach.
    """

    name: str
    config: dict[str, Any]
    state: dict[str, Any]
    parts: int
    since: int
    end: int


class Contents(msgspec.Struct, frozen=True):
    """What a backup file holds, in the order in which the parts are restored. ``digests``: by the
    name of each member the SHA-256 of its bytes.
    """

    streams: list[StreamContents]
    positions: list[Position]
    digests: dict[str, str]


class _Plain:
    """What `tarfile` needs of a file that it writes: a pipe has no position of its own."""

    def __init__(self, target: IO[bytes]) -> None:
        self._target = target
        self._written = 0

    def tell(self) -> int:
        return self._written

    def write(self, data: bytes) -> int:
        self._target.write(data)
        self._written += len(data)
        return len(data)


class ArchiveWriter:
    """Writes a backup to ``target``."""

    def __init__(self, target: IO[bytes], head: Head) -> None:
        # A stream of `tarfile` (mode "w|") that is dropped after an error would write once more.
        self._plain = _Plain(target)
        plain: Any = self._plain
        self._tar = tarfile.TarFile(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT)
        self._digests: dict[str, str] = {}
        self.add(HEAD, _encode(head))

    def add(self, name: str, data: bytes) -> None:
        """Adds a member."""
        self._digests[name] = hashlib.sha256(data).hexdigest()
        self._add(name, data)

    def _add(self, name: str, data: bytes) -> None:
        member = tarfile.TarInfo(name)
        member.size = len(data)
        member.mode = 0o600
        self._tar.addfile(member, io.BytesIO(data))

    def size(self) -> int:
        """The number of bytes written so far."""
        return self._plain.tell()

    def finish(self, streams: list[StreamContents], positions: list[Position]) -> None:
        """Adds the last two members, ``contents.json`` and ``end``."""
        contents = _encode(Contents(streams, positions, self._digests))
        self._add(CONTENTS, contents)
        self._add(END, hashlib.sha256(contents).hexdigest().encode())
        self._tar.close()


class Archive:
    """A checked backup. Made by `check`."""

    def __init__(
        self, tar: tarfile.TarFile, members: dict[str, tarfile.TarInfo], head: Head, text: bytes
    ) -> None:
        self._tar = tar
        self._members = members
        self.head = head
        self.contents = msgspec.json.decode(text, type=Contents)

    def parts(self, stream: StreamContents) -> Iterator[bytes]:
        """The parts of the stream's snapshot, in order."""
        for number in range(stream.parts):
            yield self._read(f"{stream.name}/{number}")

    def since(self, stream: StreamContents) -> Iterator[SinceMessage]:
        """The messages that were stored during the stream's snapshot, in order."""
        for number in range(stream.since):
            page = self._read(f"{stream.name}/since/{number}")
            yield from msgspec.json.decode(page, type=list[SinceMessage])

    def _read(self, name: str) -> bytes:
        file = self._tar.extractfile(self._members[name])
        assert file is not None, "a member is a file"
        return file.read()


def check(name: str, source: IO[bytes], reach: Callable[[int], None] = lambda _: None) -> Archive:
    """Reads the whole backup file and compares its members with their digests. ``name``: for
    errors. ``reach`` is called with the bytes read so far. Raises BadInput.
    """
    try:
        return _check(name, source, reach)
    except _FOREIGN as error:
        raise _cut(name) if "unexpected end" in str(error) else _damaged(name, str(error)) from None
    except OSError as error:
        raise BadInput(f"cannot read {name}: {error.strerror or error}") from None


def _check(name: str, source: IO[bytes], reach: Callable[[int], None]) -> Archive:
    tar = _open(name, source)
    members: dict[str, tarfile.TarInfo] = {}
    digests: dict[str, str] = {}
    small: dict[str, bytes] = {}
    for member in tar:
        reach(member.offset)
        if _NAMES.fullmatch(member.name) is None:
            raise _damaged(name, f"a backup has no member {member.name!r}")
        # A sparse file of some bytes may stand for terabytes of zeros, and a link for another file.
        if not member.isreg() or member.sparse is not None:
            raise _damaged(name, f"{member.name} is not a plain file")
        if member.size > _KEPT.get(member.name, member.size):
            raise _damaged(name, f"{member.name} is too long")
        file = tar.extractfile(member)
        assert file is not None, "a plain file can be read"
        digest = hashlib.sha256()
        kept = []
        while data := file.read(_READ_AT_ONCE):
            digest.update(data)
            if member.name in _KEPT:
                kept.append(data)
        if member.name in _KEPT:
            small[member.name] = b"".join(kept)
        members[member.name] = member
        digests[member.name] = digest.hexdigest()
        if member.name == HEAD:
            # Other versions of the format may have other members, so the version is checked first.
            head = _head(name, small[HEAD])
    if HEAD not in small:
        raise BadInput(f"{name} is not a backup of Admittance")
    if END not in small or CONTENTS not in small:
        raise _cut(name)
    if digests.pop(CONTENTS) != small[END].decode("utf-8", "replace"):
        raise _damaged(name, f"{CONTENTS} has another checksum")
    del digests[END]
    try:
        archive = Archive(tar, members, head, small[CONTENTS])
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise _damaged(name, f"{CONTENTS}: {error}") from None
    listed = archive.contents.digests
    for member_name in sorted(listed.keys() | digests.keys()):
        if member_name not in digests:
            raise _damaged(name, f"{member_name} is missing")
        if listed.get(member_name) != digests[member_name]:
            raise _damaged(name, f"{member_name} has another checksum")
    for position in archive.contents.positions:
        if _CONSUMER.fullmatch(position.name) is None:
            raise _damaged(name, f"{position.name!r} is not the name of a consumer")
    for stream in archive.contents.streams:
        if why := _fault(archive, stream, listed.keys()):
            raise _damaged(name, f"{stream.name}: {why}")
    return archive


def _fault(archive: Archive, stream: StreamContents, members: Container[str]) -> str:
    """Why the stream cannot be restored as the contents say; "" if it can. A restore trusts what
    this function has seen."""
    if stream.config.get("name") != stream.name:
        return "its configuration is of another stream"
    state = [stream.state.get(key) for key in ("messages", "bytes", "first_seq", "last_seq")]
    if not all(isinstance(number, int) and number >= 0 for number in state):
        return "its state is missing"
    for kind, count in (("", stream.parts), ("since/", stream.since)):
        names = (f"{stream.name}/{kind}{number}" for number in range(count))
        if absent := next((name for name in names if name not in members), ""):
            return f"{absent} is missing"
    last, skipped = int(stream.state["last_seq"]), 0
    subject = f"${stream.name.replace('_', '.', 1)}."
    try:
        for message in archive.since(stream):
            if not message.subject.startswith(subject) or not last < message.sequence:
                return f"message {message.sequence:,} does not belong to it"
            frame(message.subject, "", b"", message.headers)
            skipped += message.sequence - last - 1
            last = message.sequence
    except (msgspec.MsgspecError, UnicodeError, ValueError, KeyError) as error:
        return f"a message cannot be read ({error})"
    if stream.end < last:
        return f"its end is at {stream.end:,}, its last message at {last:,}"
    skipped += stream.end - last
    if skipped > SKIPPED_MAX:
        return f"{skipped:,} of its sequences are missing, at most {SKIPPED_MAX:,} are filled"
    return ""


def _check_headers(name: str, source: IO[bytes]) -> None:
    """Raises BadInput if a member has headers of its own for a long name or other attributes, which
    no backup has: `tarfile` would read them as a whole, in a time that grows with the square of
    their length."""
    source.seek(0)
    while len(header := source.read(tarfile.BLOCKSIZE)) == tarfile.BLOCKSIZE:
        try:
            member = tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape")
        except tarfile.TarError:
            return
        if member.type in _ATTRIBUTES:
            raise _damaged(name, "a member has attributes")
        size = max(0, member.size)
        source.seek(-(-size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE, io.SEEK_CUR)


def _open(name: str, source: IO[bytes]) -> tarfile.TarFile:
    size = source.seek(0, io.SEEK_END)
    _check_headers(name, source)
    source.seek(0)
    try:
        return tarfile.open(fileobj=source, mode="r:")
    except tarfile.TarError:
        if not size:
            raise BadInput(f"{name} is empty") from None
        raise BadInput(f"{name} is not a backup of Admittance") from None


def _head(name: str, data: bytes) -> Head:
    try:
        head = msgspec.json.decode(data, type=Head)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise _damaged(name, f"{HEAD}: {error}") from None
    if head.kind != KIND:
        raise BadInput(f"{name} is not a backup of Admittance")
    if not 1 <= head.format <= FORMAT:
        raise BadInput(
            f"{name} has format {head.format}, made by Admittance {head.version or '?'}; this "
            f"program reads formats up to {FORMAT}: restore with that version"
        )
    return head


def _cut(name: str) -> BadInput:
    return BadInput(f"{name} was cut: its end is missing; take another backup, or copy it again")


def _damaged(name: str, why: str) -> BadInput:
    return BadInput(f"{name} is damaged: {why}; nothing was restored")
