"""Reads bytes that any program may have written: returns the value, or raises `Unreadable` with the
reason.

Any program may write a message to the log or a value to a bucket. If an unreadable value crashed a
service, the service would crash again at every start. So all values are read through a `Reader`, or
through a function that raises only `Unreadable`, and an unreadable value is *set aside*: its place
and the reason are reported, and the service continues with all other values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from admittance.events.names import BadToken

LEVELS_MAX: Final = 100
"""The most levels of nested lists and objects. The stack limits a recursive decoder, so without
this limit the same bytes could be readable in one function and not in another.
"""
YEARS: Final = range(1900, 9000)
"""Years of a valid time. Outside these years, adding a delay to a time could exceed Python's range
of dates.
"""
SEQUENCE_MAX: Final = 2**63 - 1
REASON_MAX: Final = 300
"""The most characters of a reason."""
BROKEN: Final = (
    msgspec.MsgspecError,
    UnicodeError,
    RecursionError,
    OverflowError,
    BadToken,
    ValueError,
)
"""Exceptions that decoders raise for wrong bytes."""

_NO_BRACKETS: Final = bytes(set(range(256)) - set(b'[]{}"'))
"""All bytes but brackets and quotes."""

T = TypeVar("T")


class Unreadable(ValueError):
    """The error for bytes that cannot be read as the expected type; its text is one line."""


class SetAside(NamedTuple):
    """An unreadable value. ``stream``: the bucket or stream with the value; ``place``: its key or
    subject; ``sequence``: its revision or sequence in that bucket or stream.
    """

    stream: str
    place: str
    sequence: int
    reason: str


class BucketEntry(NamedTuple):
    """The value of a bucket key since ``revision``; ``value`` None: the key is deleted."""

    key: str
    value: bytes | None
    revision: int
    headers: Mapping[str, str] = {}


def one_line(text: str, most: int = REASON_MAX) -> str:
    """The text as one line of at most ``most`` characters, without characters that JSON cannot
    hold."""
    return " ".join(text.split()).encode("utf-8", "backslashreplace").decode()[:most]


def reason_of(error: BaseException) -> str:
    """The text of the error as one line of limited length, without characters that JSON cannot
    hold."""
    return one_line(str(error)) or type(error).__name__


def check_depth(data: bytes) -> None:
    """Raises Unreadable when JSON is nested deeper than `LEVELS_MAX`. Bytes that are not JSON may
    pass: no decoder reads them."""
    if data.count(b"[") + data.count(b"{") <= LEVELS_MAX:
        return
    # Every service reads every workload, and a loop in Python over the bytes of a large one takes
    # a tenth of a second. So only methods of bytes look at all of them.
    if b"\\" in data:
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Two quotes beside each other are removed: the number of quotes before any other byte stays
    # even outside of strings, and odd inside.
    left = data.translate(None, _NO_BRACKETS).replace(b'""', b"")
    if b'"' in left:
        left = b"".join(left.split(b'"')[::2])
    brackets = left
    for _ in range(LEVELS_MAX // 2):
        # Removes one or two levels.
        before, left = left, left.replace(b"[]", b"").replace(b"{}", b"")
        if not left:
            return
        if left == before:
            break
    level = 0
    for bracket in brackets:
        level += 1 if bracket in b"[{" else -1
        if level > LEVELS_MAX:
            raise Unreadable(f"the JSON is nested more than {LEVELS_MAX} levels deep")


def decode_readable(decode: Callable[[bytes], T], data: bytes) -> T:
    """The result of ``decode(data)``. Raises only Unreadable."""
    check_depth(data)
    try:
        return decode(data)
    except Unreadable:
        raise
    except BROKEN as error:
        raise Unreadable(reason_of(error)) from error


class Reader(Generic[T]):
    """Decodes JSON to values of one type."""

    __slots__ = ("_decode", "_kind")

    def __init__(self, kind: type[T]) -> None:
        self._kind = kind
        self._decode: Callable[[Any], T] = msgspec.json.Decoder(kind).decode

    def __call__(self, data: bytes | None) -> T:
        """The value in data. Raises Unreadable."""
        try:
            return decode_readable(self._decode, data or b"")
        except Unreadable as error:
            raise Unreadable(
                f"the value is not a valid {self._kind.__name__}: {error}"
            ) from error.__cause__


def check_times(where: str, times: Iterable[datetime | None]) -> None:
    """Raises Unreadable if the value has a time without a zone or outside `YEARS`."""
    for time in times:
        if time is not None and (time.tzinfo is None or time.year not in YEARS):
            when = time.isoformat()
            raise Unreadable(
                f"{where}: the time {when} has no zone, or its year is not from 1900 to 8999"
            )


def number(text: str | bytes | None, most: int = SEQUENCE_MAX) -> int | None:
    """The sequence or revision in a header or a value; None: not a number, or above ``most``."""
    if text is None or not text.isascii() or not text.isdigit() or len(text) > 19:
        return None
    value = int(text)
    return value if value <= most else None
