"""Reads the snapshot of a stream as nats-server will read it, and counts its messages.

nats-server says what is wrong with a snapshot only when it restores it. So a snapshot is read to
its end before it counts as complete: `SnapshotReader` decompresses the parts and follows the
archive in them. nats-server 2.15 writes an archive of its own with one entry per message; earlier
servers write a tar archive of the files of the stream.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from struct import Struct
from typing import Any, Final

import msgspec

from admittance.backup.s2 import Corrupt, Decompressor

MAGIC: Final = b"NATSARC1"
"""First bytes of an archive of nats-server 2.15 and later."""
STATE: Final = "state.json"
MESSAGE_SIZE: Final = 22 + 8
"""The bytes that nats-server counts for a message beside its subject, headers and data."""
HEADERS_SIZE: Final = 4
"""The bytes that nats-server counts for the length of headers."""
ENTRY_MAX: Final = 128 * 1024 * 1024
"""The most bytes of an entry: more than the longest message that nats-server takes (64 MiB)."""
_CUT: Final = "the end is missing"


class Announced:
    """The messages that the server announced: their number, bytes, and first and last sequence."""

    def __init__(self, state: Mapping[str, Any]) -> None:
        self.messages = int(state["messages"])
        self.size = int(state["bytes"])
        self.first = int(state["first_seq"])
        self.last = int(state["last_seq"])


class SnapshotReader:
    """Reads one snapshot of the stream ``name``, part by part.

    ``messages``, ``size``: number and bytes of the messages read so far whose sequences the server
    announced. An archive of nats-server before 2.15 may contain deleted messages too.
    """

    def __init__(self, name: str, state: Mapping[str, Any]) -> None:
        self._name = name
        self._announced = Announced(state)
        self._decompressor = Decompressor()
        self._start = b""
        self._archive: _Archive | None = None

    @property
    def messages(self) -> int:
        return self._archive.messages if self._archive is not None else 0

    @property
    def size(self) -> int:
        return self._archive.size if self._archive is not None else 0

    def feed(self, part: bytes) -> None:
        """Reads the next part. Raises Corrupt."""
        for block in self._decompressor.feed(part):
            if self._archive is not None:
                self._archive.feed(block)
                continue
            self._start += block
            if len(self._start) >= len(MAGIC):
                kind = _Entries if self._start.startswith(MAGIC) else _Files
                self._archive = kind(self._name, self._announced)
                self._archive.feed(self._start)

    def end(self) -> None:
        """Ends the snapshot. Raises Corrupt if it is not complete."""
        self._decompressor.end()
        if self._archive is None or not self._archive.ended:
            raise Corrupt(_CUT)

    def missing(self, *, removed: int = 0) -> str:
        """What is missing of the announced messages, as in ``7 of 9 messages``; "" if nothing is.
        ``removed``: how many messages the server may have removed meanwhile."""
        wanted = self._announced
        if self.messages + removed < wanted.messages:
            return f"{self.messages:,} of {wanted.messages:,} messages"
        if not removed and self.size < wanted.size:
            return f"{self.size:,} of {wanted.size:,} bytes"
        return ""


class _Archive(ABC):
    """Reads the decompressed blocks of an archive."""

    def __init__(self, name: str, announced: Announced) -> None:
        self._name = name
        self._announced = announced
        self._buffer = bytearray()
        self.ended = False
        self.messages = 0
        self.size = 0

    def feed(self, block: bytes) -> None:
        if self.ended:
            return
        self._buffer += block
        del self._buffer[: self._read(self._buffer)]

    @abstractmethod
    def _read(self, buffer: bytearray) -> int:
        """Reads what is complete, and returns how many bytes of the buffer that was. Raises
        Corrupt."""

    def _add(self, sequence: int, size: int) -> None:
        if self._announced.first <= sequence <= self._announced.last:
            self.messages += 1
            self.size += size


class _Entries(_Archive):
    """The archive of nats-server 2.15: the state of the stream, then each message as an entry of
    its own, then an empty entry as the end (``server/archive/archive.go``)."""

    _begun = False

    def _read(self, buffer: bytearray) -> int:
        place = 0 if self._begun else len(MAGIC)
        self._begun = True
        try:
            while not self.ended:
                place = self._entry(buffer, place)
        except IndexError:
            pass  # The entry is not complete yet.
        return place

    def _entry(self, buffer: bytearray, place: int) -> int:
        """Reads the entry at the place, and returns the place after it. Raises IndexError if the
        entry is not complete."""
        name, place = _number(buffer, place)
        time, place = _number(buffer, place)
        sequence, place = _number(buffer, place)
        headers, place = _number(buffer, place)
        data, place = _number(buffer, place)
        if name + headers + data > ENTRY_MAX:
            raise Corrupt("the archive is damaged")
        end = place + name + headers + data
        if end > len(buffer):
            raise IndexError
        if sequence:
            more = HEADERS_SIZE + headers if headers else 0
            self._add(sequence, MESSAGE_SIZE + name + more + data)
        elif not (name or time or headers or data):
            self.ended = True
        elif buffer[place : place + name] != STATE.encode():
            raise Corrupt(f"an entry {bytes(buffer[place : place + name])!r}")
        return end


def _number(buffer: bytearray, place: int) -> tuple[int, int]:
    """A number of variable length, and the place after it."""
    byte = buffer[place]
    place += 1
    if byte < 0x80:
        return byte, place
    number, shift = byte & 0x7F, 7
    while True:
        byte = buffer[place]
        place += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, place
        shift += 7
        if shift > 63:
            raise Corrupt("the archive is damaged")


_TAR: Final = 512
_META: Final = "meta.inf"
_ERRORS: Final = "errors.txt"
_RECORD: Final = Struct("<IQqH")
"""Begin of a stored message: its length, sequence, time, and the length of its subject."""
_HAS_HEADERS: Final = 1 << 31
_NO_MESSAGE: Final = 3 << 62
"""Bits of the sequence of a message that was erased, and of a record about a deleted message."""


class _Meta(msgspec.Struct):
    name: str = ""


class _Files(_Archive):
    """The tar archive of earlier nats-servers: the files of the stream."""

    def __init__(self, name: str, announced: Announced) -> None:
        super().__init__(name, announced)
        self._has_meta = False

    def _read(self, buffer: bytearray) -> int:
        place = 0
        while len(buffer) - place >= _TAR:
            header = bytes(buffer[place : place + _TAR])
            if not any(header):
                if not self._has_meta:
                    raise Corrupt(f"the archive has no {_META}")
                self.ended = True
                break
            name, kind, size = _member(header)
            if size > ENTRY_MAX:
                raise Corrupt(f"{name} is too long")
            begin = place + _TAR
            end = begin + -(-size // _TAR) * _TAR
            if end > len(buffer):
                break
            if kind in (b"0", b"\x00"):
                self._file(name, bytes(buffer[begin : begin + size]))
            elif kind not in (b"x", b"g"):  # attributes such as the exact time
                raise Corrupt(f"{name!r} is not a file")
            place = end
        return place

    def _file(self, name: str, content: bytes) -> None:
        if name == _META:
            self._has_meta = True
            try:
                stream_name = msgspec.json.decode(content, type=_Meta).name
            except (msgspec.MsgspecError, UnicodeError) as error:
                raise Corrupt(f"{_META}: {error}") from None
            if stream_name != self._name:
                raise Corrupt(f"it is a snapshot of {stream_name}")
        elif name == _ERRORS:
            why = content.decode("utf-8", "replace")
            raise Corrupt(f"the server could not read the stream: {why}")
        elif name.startswith("msgs/") and name.endswith(".blk"):
            self._block(name, content)

    def _block(self, name: str, content: bytes) -> None:
        place, size = 0, len(content)
        while place < size:
            if place + _RECORD.size > size:
                raise Corrupt(f"{name} ends inside a message")
            length, sequence, _, _ = _RECORD.unpack_from(content, place)
            length &= ~_HAS_HEADERS
            if length < _RECORD.size or place + length > size:
                raise Corrupt(f"{name} ends inside a message")
            place += length
            if not sequence & _NO_MESSAGE:
                self._add(sequence, length)


def _member(header: bytes) -> tuple[str, bytes, int]:
    """The name, the kind and the size of a member of a tar archive. Raises Corrupt."""
    try:
        total = int(header[148:156].strip(b" \x00") or b"0", 8)
        size = int(header[124:136].strip(b" \x00") or b"0", 8)
    except ValueError:
        raise Corrupt("the archive is damaged") from None
    if sum(header[:148]) + 8 * 32 + sum(header[156:]) != total:
        raise Corrupt("the archive is damaged")
    name = header[:100].split(b"\x00", 1)[0].decode("utf-8", "replace")
    return name, header[156:157], size


def read_snapshot(name: str, state: Mapping[str, Any], parts: Iterable[bytes]) -> SnapshotReader:
    """Reads a whole snapshot. Raises Corrupt."""
    reader = SnapshotReader(name, state)
    for part in parts:
        reader.feed(part)
    reader.end()
    return reader
