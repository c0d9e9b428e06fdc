"""Arrays: the set of indexes, and the names that an array gives to its elements.
docs/spec/arrays.md#1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from hashlib import sha1
from itertools import chain
from typing import Final

ARRAY_SIZE_MAX: Final = 10_000
"""The most indexes of an array."""
INDEX_MAX: Final = 999_999_999
INDEXES_LENGTH_MAX: Final = 110_000
"""The most characters of a set of indexes: the most indexes, of nine digits and a comma each."""
ARRAY_NAME_MAX: Final = 50
"""The most characters of the name of an array: the value of a label has at most 63."""

ARRAY_LABEL: Final = "admittance.dev/array"
"""Label of an element: the name of its array."""
INDEX_LABEL: Final = "admittance.dev/array-index"
"""Label of an element: its index."""

INDEX_ENV: Final = "ADMITTANCE_ARRAY_INDEX"
COUNT_ENV: Final = "ADMITTANCE_ARRAY_COUNT"
MIN_ENV: Final = "ADMITTANCE_ARRAY_MIN"
MAX_ENV: Final = "ADMITTANCE_ARRAY_MAX"
ARRAY_ENV: Final = (INDEX_ENV, COUNT_ENV, MIN_ENV, MAX_ENV)
"""The variables of each container of an element."""

_HASH: Final = 5


class BadIndexes(ValueError):
    """The error that a text is not a set of indexes; its text says why, in one line."""


@lru_cache(maxsize=64)
def parse_indexes(text: str) -> tuple[int, ...]:
    """The indexes of a text like ``0-99``, ``1,3,7`` or ``0-20:5``, in their order. Raises
    BadIndexes."""
    if len(text) > INDEXES_LENGTH_MAX:
        raise BadIndexes(
            f"the set of indexes has {len(text)} characters, {INDEXES_LENGTH_MAX} are allowed"
        )
    ranges: list[range] = []
    for part in text.split(","):
        each = _range(part.strip())
        if ranges and each[0] <= ranges[-1][-1]:
            raise BadIndexes(
                f"{part.strip()} does not come after {ranges[-1][-1]}: write indexes in order"
            )
        ranges.append(each)
    count = sum(map(len, ranges))
    if count > ARRAY_SIZE_MAX:
        raise BadIndexes(
            f"{_shown(text)} are {count:,} indexes, {ARRAY_SIZE_MAX:,} are allowed: submit several "
            "arrays"
        )
    return tuple(chain.from_iterable(ranges))


def _range(part: str) -> range:
    span, colon, step = part.partition(":")
    low, dash, high = span.partition("-")
    numbers = [low, *([high] if dash else []), *([step] if colon else [])]
    if not all(map(_is_index, numbers)) or (colon and not dash):
        raise BadIndexes(
            f"{_shown(part)} is not an index like 3, a range like 0-99, or one with a step like "
            "0-20:5"
        )
    first, last, by = int(low), int(high or low), int(step or 1)
    if first > last:
        raise BadIndexes(f"the range {part} is empty")
    if not by:
        raise BadIndexes(f"the range {part} has the step 0")
    return range(first, last + 1, by)


def _is_index(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= len(str(INDEX_MAX))


def _shown(text: str) -> str:
    return f'"{text}"' if len(text) <= 40 else f'"{text[:40]}…"'


def split_parallelism(text: str) -> tuple[str, int | None]:
    """The set of indexes and the parallelism of a text like ``0-99%10``; None: without ``%``.
    Raises BadIndexes."""
    indexes, percent, most = text.partition("%")
    parse_indexes(indexes)
    if not percent:
        return indexes, None
    if not _is_index(most) or not int(most):
        raise BadIndexes(
            f'"%{most}" is not a number of elements at once from 1 to {INDEX_MAX}, such as %10'
        )
    return indexes, int(most)


def ranges_of(indexes: Iterable[int]) -> Iterator[tuple[int, int]]:
    """The ranges, first and last index, of indexes in ascending order."""
    first = last = None
    for index in indexes:
        if last is not None and first is not None and index != last + 1:
            yield first, last
            first = index
        elif first is None:
            first = index
        last = index
    if first is not None and last is not None:
        yield first, last


def written_indexes(indexes: Iterable[int]) -> str:
    """The set of indexes as a text that `parse_indexes` reads; "": of no index."""
    return ",".join(
        str(first) if first == last else f"{first}-{last}" for first, last in ranges_of(indexes)
    )


def element_name(array: str, uid: str, index: int, *, taken: bool = False) -> str:
    """The name of an element. ``uid``: that of the array. ``taken``: another workload has the usual
    name, so the name ends in a hash."""
    name = f"{array}-{index}"
    if not taken:
        return name
    digest = sha1(f"{uid}\n{index}".encode(), usedforsecurity=False).hexdigest()
    return f"{name}-{digest[:_HASH]}"
