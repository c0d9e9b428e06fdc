"""A page that is not there, with names that are near."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Final

import msgspec

from admittance.web.views.accounts.log import LogRow
from admittance.web.views.words import Link

NEAR_MAX: Final = 5
LOG_ROWS: Final = 60
SIMILAR: Final = 0.5


class Missing(msgspec.Struct, frozen=True, kw_only=True):
    """``near``: pages that may be meant; ``log``: facts about what was there; ``more``: the page
    that takes longer."""

    title: str
    text: str
    near: tuple[Link, ...] = ()
    log: tuple[LogRow, ...] = ()
    more: Link | None = None


def missing_workload(
    namespace: str, name: str, log: Sequence[LogRow], near: tuple[Link, ...]
) -> Missing:
    """A workload that is not there. ``log``: the rows of its facts, the newest first; with some it
    was there, and was deleted."""
    if not log:
        text = f"There is no workload {name} in namespace {namespace}, or you may not see it."
        return Missing(title="Not found", text=text, near=near)
    gone = next((row for row in log if row.what == "deleted"), None)
    how = f" at {gone.time}{', ' + gone.text if gone.text else ''}" if gone is not None else ""
    text = f"The workload {name} of namespace {namespace} was deleted{how}."
    return Missing(title="Deleted", text=text, near=near, log=tuple(log[:LOG_ROWS]))


def near_names(name: str, names: Iterable[str]) -> list[str]:
    """The names that are most like the name, the nearest first, then those that contain it."""
    known = list(dict.fromkeys(names))
    near = get_close_matches(name, known, n=NEAR_MAX, cutoff=SIMILAR)
    within = [other for other in known if name and name in other and other not in near]
    return [*near, *within][:NEAR_MAX]


def near_keys(name: str, keys: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """The namespaces and names with the names that are most like the name, the nearest first."""
    known = list(dict.fromkeys(keys))
    near = near_names(name, [other for _, other in known])
    return sorted((key for key in known if key[1] in near), key=lambda key: near.index(key[1]))
