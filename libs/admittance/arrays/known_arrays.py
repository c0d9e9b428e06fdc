"""What the array-controller keeps in memory about arrays and their elements. The module is pure."""

from __future__ import annotations

from functools import lru_cache
from sys import intern
from typing import Final, NamedTuple

from msgspec.structs import replace

from admittance.api.workload import (
    ARRAY_GATE,
    DELETED,
    NO_RESULT,
    ArrayStatus,
    gate_names,
)
from admittance.events import reasons
from admittance.events.subjects import WorkloadName
from admittance.phases import Phase
from admittance.workload.arrays.elements import array_of, indexes_of, result_of
from admittance.workload.conditions import Type, find_true, gated_by, is_true
from admittance.workload.phase import holds_quota, is_reserved
from admittance.workload.stored import BY_ARRAY, StoredWorkload, WorkloadStatus, head

_NO_STATUS: Final = WorkloadStatus()


class KnownArray(NamedTuple):
    """What is kept of a stored array. ``stored``: the array without its status. ``indexes``: in
    their order. ``gated``: an admission gate of the array is closed."""

    stored: StoredWorkload
    revision: int
    uid: str
    indexes: tuple[int, ...]
    parallelism: int | None
    fail_fast: bool
    priority: int
    active: bool
    finished: bool
    deleting: bool
    gated: bool
    status: ArrayStatus


class KnownElement(NamedTuple):
    """What is kept of a stored element. ``result``: its letter (`ArrayStatus`); "": it has none.
    ``by_array``: the array has deactivated the element. ``gated``: the gate of arrays is closed.
    ``cause``: why it is deactivated, such as MaximumExecutionTimeExceeded; "": it is active, or a
    user or the array has stopped it."""

    name: str
    uid: str
    revision: int
    result: str
    phase: str
    priority: int
    active: bool
    holds_quota: bool
    deleting: bool
    by_array: bool
    gated: bool
    cause: str = ""

    @property
    def is_over(self) -> bool:
        """Whether the element leaves its place to a later one. What the array has stopped goes on
        with the array."""
        stopped = not self.active and not self.by_array and not self.holds_quota
        return bool(self.result) or stopped


def array_from(stored: StoredWorkload, revision: int) -> KnownArray:
    """Returns what is kept of a stored array."""
    spec, array = head(stored), array_of(stored)
    status = stored.status.array
    assert status is not None, "a stored workload with the role array has status.array"
    return KnownArray(
        stored=replace(stored, status=_NO_STATUS),
        revision=revision,
        uid=stored.metadata.uid,
        indexes=indexes_of(stored),
        parallelism=array.parallelism,
        fail_fast=array.fail_fast,
        priority=spec.priority or 0,
        active=spec.active,
        finished=is_true(stored, Type.FINISHED),
        deleting=stored.metadata.deletion_timestamp is not None,
        gated=bool(gated_by(stored)),
        status=status,
    )


def element_from(stored: StoredWorkload, revision: int) -> KnownElement:
    """Returns what is kept of a stored element."""
    spec, meta = head(stored), stored.metadata
    return KnownElement(
        name=meta.name,
        uid=meta.uid,
        revision=revision,
        result=result_of(stored),
        phase=_phase(stored),
        priority=spec.priority or 0,
        active=spec.active,
        holds_quota=holds_quota(stored),
        deleting=meta.deletion_timestamp is not None,
        by_array=stored.status.stopped_by == BY_ARRAY,
        gated=ARRAY_GATE in gate_names(gated_by(stored)),
        cause=_cause(stored),
    )


def _cause(stored: StoredWorkload) -> str:
    evicted = find_true(stored, Type.EVICTED)
    if evicted is None or head(stored).active:
        return ""
    before, _, cause = evicted.reason.partition(reasons.DEACTIVATED_DUE_TO)
    return cause if not before else ""


def _phase(stored: StoredWorkload) -> str:
    """The phase of an element, without those that end by time alone: the counts of an array change
    with the stored elements."""
    evicted = find_true(stored, Type.EVICTED)
    if not head(stored).active:
        rejected = reasons.DEACTIVATED_DUE_TO_ADMISSION_CHECK
        is_rejected = evicted is not None and evicted.reason == rejected
        return Phase.REJECTED if is_rejected else Phase.DEACTIVATED
    if is_reserved(stored) and evicted is not None:
        return Phase.EVICTING
    if is_true(stored, Type.ADMITTED):
        return Phase.RUNNING if is_true(stored, Type.PODS_READY) else Phase.ADMITTED
    return Phase.QUOTA_RESERVED if is_reserved(stored) else Phase.PENDING


class Elements:
    """The elements of one array that exist, and what is known of those that do not any more.

    ``present``: by index; ``live``: those without a result. ``seen``: the indexes with an element
    now or before. ``fresh``: results that the stored array may not have yet, by index."""

    def __init__(self) -> None:
        self.present: dict[int, KnownElement] = {}
        self.live: dict[int, KnownElement] = {}
        self.seen: set[int] = set()
        self.fresh: dict[int, str] = {}
        self.is_compared = False
        self._results: str | None = None
        self._next = 0
        self._first = 0

    def put(self, index: int, element: KnownElement) -> None:
        """Records a stored element."""
        before = self.present.get(index)
        if before is not None and before.name != element.name and before.result:
            return  # Two workloads with the index: the one with a result counts.
        self.present[index] = element
        self.seen.add(index)
        if element.result:
            self.live.pop(index, None)
            self.fresh[index] = element.result
        else:
            self.live[index] = element

    def drop(self, index: int, name: str) -> None:
        """Records that an element does not exist any more."""
        gone = self.present.get(index)
        if gone is None or gone.name != name:
            return
        del self.present[index]
        self.live.pop(index, None)
        if not gone.result:
            self.fresh[index] = DELETED

    def compare(self, array: KnownArray) -> None:
        """Compares the elements with the stored array: results that the array has are not fresh any
        more. The first time, also finds the elements that were deleted before this leader began."""
        results = array.status.results
        if not self.is_compared:
            self.is_compared = True
            created = array.status.created
            for place, index in enumerate(array.indexes):
                if index in self.present:
                    created = max(created, place + 1)
            for place, index in enumerate(array.indexes[:created]):
                if index not in self.seen and results[place] == NO_RESULT:
                    self.seen.add(index)
                    self.fresh[index] = DELETED
        if results != self._results:
            # An element may be created and deleted in one write of the workload-controller.
            self._results = results
            self.seen.update(
                index for place, index in enumerate(array.indexes) if results[place] != NO_RESULT
            )
        if self.fresh:
            places = places_of(array)
            for index in [i for i in self.fresh if results[places[i]] != NO_RESULT]:
                del self.fresh[index]

    def first_open(self, array: KnownArray) -> int:
        """The place of the first element without a result in the stored array."""
        results = array.status.results
        place = results.find(NO_RESULT, self._first)
        self._first = len(results) if place < 0 else place
        return self._first

    def is_over(self, index: int) -> bool:
        """Whether the element with the index leaves its place to a later one. One that was created
        before and is not present has a result; one that is missing has not."""
        element = self.live.get(index)
        return element.is_over if element is not None else index in self.seen

    def created(self, array: KnownArray) -> int:
        """How many elements have been created, in the order of the indexes."""
        while self._next < len(array.indexes) and array.indexes[self._next] in self.seen:
            self._next += 1
        return self._next


def places_of(array: KnownArray) -> dict[int, int]:
    """The place of each index of an array."""
    return places_of_indexes(array.indexes)


@lru_cache(maxsize=64)
def places_of_indexes(indexes: tuple[int, ...]) -> dict[int, int]:
    """The place of each index. Arrays with the same indexes share them."""
    return {index: place for place, index in enumerate(indexes)}


class ArrayMembers:
    """An array and the elements that name it, by the uid of the array that they name. ``array``
    None: the array does not exist."""

    __slots__ = ("array", "elements", "name")

    def __init__(self, name: WorkloadName) -> None:
        self.name = name
        self.array: KnownArray | None = None
        self.elements: dict[str, Elements] = {}

    def of(self, uid: str) -> Elements:
        """The elements that name the array with the uid."""
        uid = intern(uid)
        return self.elements.setdefault(uid, Elements())
