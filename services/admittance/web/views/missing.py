"""A page that is not there, with names that are near."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

import msgspec

from admittance.web.views.words import Link

NEAR_MAX: Final = 5
SIMILAR: Final = 0.5


class Missing(msgspec.Struct, frozen=True, kw_only=True):
    """``near``: pages that may be meant."""

    title: str
    text: str
    near: tuple[Link, ...] = ()


def near_names(name: str, names: Iterable[str]) -> list[str]:
    """The names that are most like the name, the nearest first, then those that contain it."""
    known = list(dict.fromkeys(names))
    near = get_close_matches(name, known, n=NEAR_MAX, cutoff=SIMILAR)
    within = [other for other in known if name and name in other and other not in near]
    return [*near, *within][:NEAR_MAX]
