"""Reads a differential scenario. Source: ``differential/README.md``.

Unknown fields are skipped, as everywhere on our wire; an unknown step would change the result, so
it is refused.
"""

from __future__ import annotations

import gzip
import zlib
from typing import Any, Final

import msgspec

STEPS: Final = ("create", "settle", "finish", "delete", "update", "check")
_GZIP: Final = b"\x1f\x8b"
SIZE_MAX: Final = 256 * 1024 * 1024
"""Bytes of an unpacked scenario: a small file may unpack to a huge one."""


class BadScenario(ValueError):
    """Not a scenario, or one that cannot be run; the text says why, in one line."""


class Scenario(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One scenario. ``expected``: one result per settle step; None: not given."""

    name: str
    objects: list[dict[str, Any]]
    steps: list[dict[str, Any]]
    fair_sharing: bool = False
    family: str = ""
    expected: list[dict[str, Any]] | None = None


def read(data: bytes) -> Scenario:
    """The scenario in the bytes of a file, packed or not. Raises BadScenario."""
    if data.startswith(_GZIP):
        data = _unpacked(data)
    try:
        scenario = msgspec.json.decode(data, type=Scenario)
    except msgspec.ValidationError as error:
        raise BadScenario(f"no scenario: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadScenario(f"no JSON: {error}") from None
    name = scenario.name
    if not name or "/" in name or "\0" in name or name.startswith("."):
        raise BadScenario(f"the name {name!r} is no name of a scenario")
    for index, step in enumerate(scenario.steps):
        _check(index, step)
    return scenario


def _unpacked(data: bytes) -> bytes:
    unpacking = zlib.decompressobj(wbits=31)
    try:
        found = unpacking.decompress(data, SIZE_MAX)
    except zlib.error as error:
        raise BadScenario(f"broken gzip: {error}") from None
    if unpacking.unconsumed_tail:
        raise BadScenario(f"it unpacks to more than {SIZE_MAX:,} bytes")
    if not unpacking.eof:
        raise BadScenario("broken gzip: it ends too early")
    if unpacking.unused_data:
        # Several members in one file are rare, and legal.
        try:
            return gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise BadScenario(f"broken gzip: {error}") from None
    return found


def _check(index: int, step: dict[str, Any]) -> None:
    if len(step) != 1:
        raise BadScenario(f"step {index}: a step has one key, this has {len(step)}")
    (what,) = step
    if what not in STEPS:
        raise BadScenario(f"step {index}: no step {what!r}; there are {', '.join(STEPS)}")
