"""The elements of an array: how many are in which state, and a page of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from admittance.api.arrays import element_name
from admittance.api.workload import (
    DELETED,
    ENDED,
    FAILED,
    NO_RESULT,
    NOT_CREATED,
    SUCCEEDED,
    ArrayStatus,
)
from admittance.web.paths import elements_path, workload_path
from admittance.web.views.words import Link, Word, state
from admittance.workload.arrays.elements import indexes_of
from admittance.workload.stored import StoredWorkload

ROWS: Final = 50
"""The elements of one page."""
RESULTS: Final[Mapping[str, Word]] = {
    SUCCEEDED: Word("Succeeded", "finished"),
    FAILED: Word("Failed", "rejected"),
    DELETED: Word("Deleted", "off"),
    ENDED: Word("Ended by the array", "off"),
}
OPEN: Final = "open"
CREATED_NOT: Final = Word("Not created yet", "off")
KINDS: Final[Mapping[str, str]] = {
    "succeeded": SUCCEEDED,
    "failed": FAILED,
    "deleted": DELETED,
    "ended": ENDED,
    OPEN: NO_RESULT,
}
"""The words by which the page shows only some elements; open: those without a result."""


class ElementsQuery(NamedTuple):
    """Which elements a page shows: of a kind of `KINDS`, "" for all, after the first ``skip``."""

    kind: str = ""
    skip: int = 0


class Count(msgspec.Struct, frozen=True, kw_only=True):
    """How many elements are in a state. ``share``: in percent of all; ``only``: the page with only
    these, None: with this state there is none."""

    word: Word
    count: str
    share: float
    x: float
    only: Link | None = None


class ElementRow(msgspec.Struct, frozen=True, kw_only=True):
    """An element. ``name``: None if it does not exist any more, or not yet."""

    index: int
    word: Word
    name: Link | None = None


class Elements(msgspec.Struct, frozen=True, kw_only=True):
    """``say``: how the array stands, for its sentence."""

    say: str
    total: str
    counts: tuple[Count, ...]
    rows: tuple[ElementRow, ...]
    range: str
    earlier: Link | None
    later: Link | None
    every: Link | None


def to_read(array: StoredWorkload, wanted: ElementsQuery) -> list[str]:
    """The names of the elements of the page that exist and have no result, so that their phases are
    not in the array. Elements are created in the order of their indexes."""
    meta, status = array.metadata, array.status.array or ArrayStatus()
    created = frozenset(indexes_of(array)[: status.created])
    return [
        element_name(meta.name, meta.uid, index)
        for index, letter in _page(array, wanted)[0]
        if letter == NO_RESULT and index in created
    ]


def build(array: StoredWorkload, wanted: ElementsQuery, phases: Mapping[str, str]) -> Elements:
    """The view of an array. ``phases``: of the elements without a result that exist, by name."""
    meta, status = array.metadata, array.status.array or ArrayStatus()
    rows, total = _page(array, wanted)
    path = elements_path(meta.namespace, meta.name)
    before, after = max(0, wanted.skip - ROWS), wanted.skip + ROWS
    last = wanted.skip + len(rows)
    return Elements(
        say=_say(status),
        total=f"{len(status.results):,}",
        counts=tuple(_counts(status, meta.namespace, meta.name)),
        rows=tuple(_row(array, index, letter, phases) for index, letter in rows),
        range=f"{wanted.skip + 1:,} to {last:,} of {total:,}" if rows else "none",
        earlier=Link("Earlier", elements_path(meta.namespace, meta.name, wanted.kind, before))
        if wanted.skip
        else None,
        later=Link("Later", elements_path(meta.namespace, meta.name, wanted.kind, after))
        if after < total
        else None,
        every=Link("All elements", path) if wanted.kind else None,
    )


def _page(array: StoredWorkload, wanted: ElementsQuery) -> tuple[Sequence[tuple[int, str]], int]:
    """Index and result of the elements of a page, and how many elements of its kind there are."""
    status = array.status.array or ArrayStatus()
    every = zip(indexes_of(array), status.results, strict=True)
    letter = KINDS.get(wanted.kind)
    chosen = [each for each in every if letter is None or each[1] == letter]
    return chosen[wanted.skip : wanted.skip + ROWS], len(chosen)


def _row(array: StoredWorkload, index: int, letter: str, phases: Mapping[str, str]) -> ElementRow:
    meta = array.metadata
    name = element_name(meta.name, meta.uid, index)
    link = Link(name, workload_path(meta.namespace, name))
    if letter != NO_RESULT:
        return ElementRow(index=index, word=RESULTS[letter], name=link)
    if name not in phases:
        return ElementRow(index=index, word=CREATED_NOT)
    return ElementRow(index=index, word=state(phases[name]), name=link)


def _counts(status: ArrayStatus, namespace: str, name: str) -> Iterable[Count]:
    """The states with elements, those with a result first."""
    found: list[tuple[Word, int, str]] = [
        (RESULTS[letter], status.results.count(letter), kind)
        for kind, letter in KINDS.items()
        if letter != NO_RESULT
    ]
    for phase, count in sorted(status.states.items(), key=lambda each: each[0] == NOT_CREATED):
        found.append((CREATED_NOT if phase == NOT_CREATED else state(phase), count, OPEN))
    every, x = max(1, len(status.results)), 0.0
    for word, count, kind in found:
        if count:
            share = round(100 * count / every, 2)
            only = Link(word.text, elements_path(namespace, name, kind))
            yield Count(word=word, count=f"{count:,}", share=share, x=round(x, 2), only=only)
            x += share


def _say(status: ArrayStatus) -> str:
    done, every = status.results.count(SUCCEEDED), len(status.results)
    if status.results.count(NO_RESULT) == every:
        return f"None of its {every:,} elements has ended."
    bad = sum(status.results.count(letter) for letter in (FAILED, DELETED, ENDED))
    failed = f", and {bad:,} did not" if bad else ""
    return f"Of its {every:,} elements {done:,} have succeeded{failed}."
