"""Decompresses S2, the format in which nats-server compresses a snapshot.

S2 extends the framing and block formats of Snappy: a stream is a sequence of chunks, and a block
may repeat the last offset. The checksums of chunks (CRC-32C) are not compared: a loop in Python
would take longer than everything else. The parts of a backup have SHA-256 digests of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

_STREAM_BEGINS: Final = 0xFF
_COMPRESSED: Final = 0x00
_UNCOMPRESSED: Final = 0x01
_SKIPPABLE: Final = 0x80
"""The first of the types of chunks that a reader may skip."""
_NAMES: Final = (b"S2sTwO", b"sNaPpY")
_CHECKSUM: Final = 4
BLOCK_MAX: Final = 4 * 1024 * 1024
"""The most bytes of a block after decompression, as S2 sets it."""


class Corrupt(ValueError):
    """The bytes are not a complete S2 stream, or not what a snapshot contains."""


class Decompressor:
    """Decompresses one stream that comes in parts."""

    def __init__(self) -> None:
        self._rest = b""
        self._begun = False

    def feed(self, part: bytes) -> Iterator[bytes]:
        """Yields the decompressed blocks that the part completes. Raises Corrupt."""
        data = self._rest + part
        place, size = 0, len(data)
        while size - place >= 4:
            kind = data[place]
            begin = place + 4
            end = begin + int.from_bytes(data[place + 1 : begin], "little")
            if end > size:
                break
            if kind == _STREAM_BEGINS:
                if data[begin:end] not in _NAMES:
                    raise Corrupt("not an S2 stream")
                self._begun = True
            elif not self._begun:
                raise Corrupt("not an S2 stream")
            elif kind == _COMPRESSED:
                yield decompress_block(data[begin + _CHECKSUM : end])
            elif kind == _UNCOMPRESSED:
                yield data[begin + _CHECKSUM : end]
            elif kind < _SKIPPABLE:
                raise Corrupt(f"a chunk of the unknown type {kind}")
            place = end
        if not self._begun and data[:1] not in (b"", b"\xff"):
            raise Corrupt("not an S2 stream")
        self._rest = data[place:]

    def end(self) -> None:
        """Ends the stream. Raises Corrupt if it is not complete."""
        if self._rest or not self._begun:
            raise Corrupt("the end is missing")


def decompress_block(data: bytes) -> bytes:
    """The decompressed bytes of one block. Raises Corrupt."""
    try:
        return _decompress_block(data)
    except IndexError:
        raise Corrupt("a block ends too early") from None


def _decompress_block(data: bytes) -> bytes:
    wanted, place, shift = 0, 0, 0
    while True:
        byte = data[place]
        place += 1
        wanted |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if wanted > BLOCK_MAX:
        raise Corrupt("a block is too long")
    size = len(data)
    made = bytearray()
    filled = offset = 0
    while place < size:
        tag = data[place]
        kind = tag & 3
        if kind == 0:  # literal bytes
            length = tag >> 2
            place += 1
            if length >= 60:
                width = length - 59
                length = int.from_bytes(data[place : place + width], "little")
                place += width
            length += 1
            if place + length > size:
                raise Corrupt("a block ends too early")
            made += data[place : place + length]
            place += length
            filled += length
            continue
        if kind == 1:  # a copy of 4 to 11 bytes, or a repetition of the last offset
            near = (tag & 0xE0) << 3 | data[place + 1]
            length = tag >> 2 & 7
            place += 2
            if near:
                offset = near
            elif length >= 5:
                width = length - 4
                low = int.from_bytes(data[place : place + width], "little")
                length = low + (4, 1 << 8, 1 << 16)[width - 1]
                place += width
            length += 4
        elif kind == 2:
            length = 1 + (tag >> 2)
            offset = data[place + 1] | data[place + 2] << 8
            place += 3
        else:
            length = 1 + (tag >> 2)
            offset = int.from_bytes(data[place + 1 : place + 5], "little")
            place += 5
        begin = filled - offset
        if offset == 0 or begin < 0 or filled + length > wanted:
            raise Corrupt("a copy from outside the block")
        if offset >= length:
            made += made[begin : begin + length]
        else:
            piece = bytes(made[begin:])
            made += (piece * (length // offset + 1))[:length]
        filled += length
    if filled != wanted:
        raise Corrupt("a block has another length than it says")
    return bytes(made)
