"""The heap of the competing classes of a queue: by direct calls."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from admittance.scheduling.state.equivalence import ClassEntry, ClassHeap
from support.builders import NOON


@dataclass
class FakeClass:
    """A class with this priority and these places of workloads, the first one first."""

    priority: int = 0
    places: list[tuple[int, str, str]] = field(default_factory=lambda: [(0, "uid", "w")])
    item: Any = None

    @property
    def key(self) -> tuple[int, str, None]:
        return self.priority, "kind", None

    def first(self) -> ClassEntry[Any] | None:
        if not self.places:
            return None
        seconds, uid, name = self.places[0]
        return NOON + timedelta(seconds=seconds), uid, ("ns", name), name


def heap_of(*classes: Any) -> ClassHeap[Any]:
    heap: ClassHeap[Any] = ClassHeap()
    for cls in classes:
        assert heap.put(cls)
    return heap


def first(heap: ClassHeap[Any]) -> str:
    entry = heap.first()
    return entry[3] if entry is not None else ""


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(FakeClass(1, [(9, "z", "a")]), FakeClass(0, [(0, "a", "b")]), id="priority"),
        pytest.param(FakeClass(0, [(1, "z", "a")]), FakeClass(0, [(2, "a", "b")]), id="age"),
        pytest.param(FakeClass(0, [(1, "y", "a")]), FakeClass(0, [(1, "z", "b")]), id="uid"),
        pytest.param(FakeClass(0, [(1, "y", "a")]), FakeClass(0, [(1, "y", "b")]), id="name"),
    ],
)
def test_the_first_class_has_the_first_place(one: Any, other: Any) -> None:
    assert first(heap_of(one, other)) == "a"
    one.item = other.item = None
    assert first(heap_of(other, one)) == "a"


@pytest.mark.parametrize("place", [(1, "uid", "w"), (0, "other", "w"), (0, "uid", "v")])
def test_a_class_is_put_again_only_at_another_place(place: tuple[int, str, str]) -> None:
    cls: Any = FakeClass()
    heap = heap_of(cls)
    assert not heap.put(cls)
    cls.places = [place]
    assert heap.put(cls)
    assert not heap.put(cls)
    assert (first(heap), len(heap.heap)) == (place[2], 2 if place < (0, "uid", "w") else 1)


def test_an_empty_class_is_not_put_and_is_skipped() -> None:
    cls, other, empty = FakeClass(1), FakeClass(0, [(0, "uid", "v")]), FakeClass(2, [])
    heap = heap_of(cls, other)
    assert not heap.put(empty)  # type: ignore[arg-type]
    cls.places = []
    assert first(heap) == "v"
    other.places = []
    assert first(heap) == ""
    assert heap.heap == []


def test_outdated_items_are_removed_when_they_are_too_many() -> None:
    cls: Any = FakeClass()
    heap: ClassHeap[Any] = ClassHeap()
    lengths = []
    for seconds in range(133):
        cls.places = [(seconds, "uid", "w")]
        heap.put(cls)
        lengths.append(len(heap.heap))
    # At most 64 items at first, then 64 beside twice as many as were left.
    assert lengths == [*range(1, 65), *range(1, 67), *range(1, 4)]
