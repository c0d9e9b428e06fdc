"""The status of an array: results and states of its elements. docs/spec/arrays.md#1."""

from __future__ import annotations

from collections import Counter
from typing import Final

from admittance.api.arrays import parse_indexes
from admittance.api.workload import (
    DELETED,
    ENDED,
    FAILED,
    NO_RESULT,
    NOT_CREATED,
    SUCCEEDED,
    ArrayStatus,
)

WORDS: Final = {
    SUCCEEDED: "succeeded",
    FAILED: "failed",
    DELETED: "deleted",
    ENDED: "ended by the array",
}
"""What the letters of results mean, in the order in which they are listed."""


def new_status(indexes: str) -> ArrayStatus:
    """The status of an array without elements."""
    total = len(parse_indexes(indexes))
    return ArrayStatus(results=NO_RESULT * total, states={NOT_CREATED: total})


def counted(array: ArrayStatus) -> list[str]:
    """The numbers of elements by result and state, such as ``3 succeeded`` and ``10 Running``."""
    counts = Counter(array.results)
    parts = [f"{counts[letter]} {word}" for letter, word in WORDS.items() if counts[letter]]
    return parts + [
        f"{count} {'not created yet' if state == NOT_CREATED else state}"
        for state, count in sorted(array.states.items())
        if count
    ]


def summary(array: ArrayStatus) -> str:
    """The numbers of elements as a sentence: ``100 elements: 3 succeeded, 10 Running``."""
    return f"{len(array.results)} elements: {', '.join(counted(array))}"
