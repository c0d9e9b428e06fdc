"""A differential scenario as its file has it. Source: the format that ``differential/README.md``
tells.

What the format does not know is skipped, as everywhere on our wire; but an unknown step would
change what comes out, so it is refused.
"""

from __future__ import annotations

import gzip
import zlib
from typing import Any, Final

import msgspec

STEPS: Final = ("create", "settle", "finish", "delete", "update", "check")
_GZIP: Final = b"\x1f\x8b"
SIZE_MAX: Final = 256 * 1024 * 1024
"""Bytes of a scenario when unpacked: a small file may unpack to very much."""


class BadScenario(ValueError):
    """What was given is no scenario, or none that can be played; the text says why, in one line."""


class Scenario(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One scenario. ``expected``: the answers, one per settle step; None: it came without them."""

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
