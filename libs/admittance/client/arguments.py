"""Checks the arguments of programs: one of a wrong type is named before anything is sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from admittance.client.errors import BadInput

AMOUNT: Final = (str, int, float)
_WORDS: Final[Mapping[object, str]] = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    datetime: "a datetime",
    AMOUNT: "a text or a number",
}


def expect(kind: type | tuple[type, ...], /, **given: object) -> None:
    """Raises BadInput for an argument that is neither None nor of the kind."""
    for name, value in given.items():
        if value is None:
            continue
        fits = isinstance(value, (int, float) if kind is float else kind)
        if not fits or isinstance(value, bool) or not _is_text(value):
            raise BadInput(f"{name} {_shown(value)} is not {_WORDS[kind]}")


def at_least(least: int, /, **given: object) -> None:
    """Raises BadInput for an argument that is neither None nor a whole number from ``least`` on."""
    expect(int, **given)
    for name, value in given.items():
        if isinstance(value, int) and value < least:
            raise BadInput(f"{name} {value} is less than {least}")


def pairs(name: str, given: Mapping[str, str] | None) -> Mapping[str, str]:
    """The texts by name. Raises BadInput."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise BadInput(f"{name} {_shown(given)} is not a dict")
    for key, value in given.items():
        for one in (key, value):
            if not isinstance(one, str) or not _is_text(one):
                raise BadInput(f"{name}: {_shown(one)} is not a text")
    return given


def words(name: str, given: str | Sequence[str]) -> Sequence[str]:
    """The texts of a list; of a text itself a list. Raises BadInput."""
    if isinstance(given, str):
        given = (given,)
    if not isinstance(given, Sequence):
        raise BadInput(f"{name} {_shown(given)} is not a list of texts")
    for one in given:
        if not isinstance(one, str) or not _is_text(one):
            raise BadInput(f"{name}: {_shown(one)} is not a text")
    return given


def _is_text(value: object) -> bool:
    """False for a text that UTF-8 cannot have."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return False
    return True


def _shown(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
