"""Computes the acts that one array requires, from stored objects. The module is pure.

The acts are in this order: delete elements, deactivate or finish them, activate them, set
priorities, submit missing elements in the order of their indexes, open gates, count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from admittance.acts import Act
from admittance.api.arrays import element_name, written_indexes
from admittance.api.workload import ARRAY_GATE, DELETED, FAILED, NO_RESULT, NOT_CREATED
from admittance.arrays.known_arrays import (
    ArrayMembers,
    Elements,
    KnownArray,
    KnownElement,
    places_of,
)
from admittance.events import facts, reasons
from admittance.events.subjects import WorkloadName
from admittance.workload.arrays.elements import submitted_manifest
from admittance.workload.stored import BY_ARRAY

WINDOW_MIN: Final = 1000
"""The fewest elements without a result that an array may have at a time."""
SUBMITTED_MAX: Final = 250
"""The most elements of one array that are submitted and not stored yet."""


def window_of(array: KnownArray) -> int:
    """The most elements without a result that the array may have at a time."""
    at_once = array.parallelism
    return WINDOW_MIN if at_once is None else max(2 * at_once, WINDOW_MIN)


def required_acts(members: ArrayMembers, taken: Callable[[str], bool | None]) -> list[Act]:
    """Returns the acts that the array requires now. ``taken``: whether a workload of the namespace
    has the name; None: an element of an earlier array has it, which is being deleted."""
    array = members.array
    name = members.name
    acts = [
        _deleted(name, element, "orphan")
        for uid, elements in members.elements.items()
        if array is None or uid != array.uid
        for element in elements.present.values()
        if not element.deleting or element.result
    ]
    if array is None:
        return acts
    elements = members.of(array.uid)
    elements.compare(array)
    if array.deleting:
        acts += [
            _deleted(name, element, "array")
            for element in elements.present.values()
            if not element.deleting or element.result
        ]
        if not elements.present:
            fact = facts.ElementsCounted(**_about(name, array), gone=True)
            acts.append(Act(fact, "gone", "gone", array.revision, at_once=True))
        return acts
    ends = array.finished or (array.fail_fast and _has_failure(array, elements))
    if ends:
        acts += _ended(name, elements)
    elif not array.active:
        acts += _deactivated(name, elements)
    else:
        acts += _activated(name, elements)
        acts += _reprioritized(name, array, elements)
        if not array.gated:
            acts += _submitted(members, array, elements, taken)
            acts += _released(name, array, elements)
    acts += _counted(name, array, elements, ends=ends)
    return acts


def _about(name: WorkloadName, workload: KnownArray | KnownElement) -> dict[str, Any]:
    own = workload.name if isinstance(workload, KnownElement) else name.name
    return {"namespace": name.namespace, "name": own, "uid": workload.uid}


def _deleted(name: WorkloadName, element: KnownElement, why: str) -> Act:
    return Act(facts.Deleted(**_about(name, element)), why, revision=element.revision)


def _has_failure(array: KnownArray, elements: Elements) -> bool:
    failures = (FAILED, DELETED)
    return any(letter in array.status.results for letter in failures) or any(
        letter in failures for letter in elements.fresh.values()
    )


def _deactivated(
    name: WorkloadName, elements: Elements, *, with_quota_only: bool = False
) -> Iterator[Act]:
    for element in elements.live.values():
        if not element.active or element.deleting:
            continue
        if element.holds_quota or not with_quota_only:
            fact = facts.Deactivated(**_about(name, element), reason=BY_ARRAY)
            yield Act(fact, "stopped", BY_ARRAY, element.revision)


def _ended(name: WorkloadName, elements: Elements) -> Iterator[Act]:
    """Yields the acts that end the elements of an array that has ended. An element with quota gives
    the quota back first, when its job has stopped."""
    yield from _deactivated(name, elements, with_quota_only=True)
    for element in elements.live.values():
        if not element.holds_quota:
            message = "Its array has ended"
            if element.cause:
                message += f". Before that it was deactivated: {element.cause}"
            fact = facts.Finished(
                **_about(name, element),
                succeeded=False,
                reason=reasons.ARRAY_ENDED,
                message=message,
            )
            yield Act(fact, "ended", "ended", element.revision)


def _activated(name: WorkloadName, elements: Elements) -> Iterator[Act]:
    for element in elements.live.values():
        if element.by_array and not element.active:
            fact = facts.Activated(**_about(name, element), reason=BY_ARRAY)
            yield Act(fact, "activated", BY_ARRAY, element.revision)


def _reprioritized(name: WorkloadName, array: KnownArray, elements: Elements) -> Iterator[Act]:
    for element in elements.live.values():
        if element.priority != array.priority:
            fact = facts.Reprioritized(**_about(name, element), priority=array.priority)
            yield Act(fact, "array", array.priority, element.revision)


def _submitted(
    members: ArrayMembers,
    array: KnownArray,
    elements: Elements,
    taken: Callable[[str], bool | None],
) -> Iterator[Act]:
    room = min(window_of(array) - len(elements.live), SUBMITTED_MAX)
    for index in array.indexes[elements.created(array) :]:
        if room <= 0:
            return
        if index in elements.seen:
            continue
        name = element_name(members.name.name, array.uid, index)
        match taken(name):
            case None:
                return  # The element of an earlier array is deleted first.
            case True:
                name = element_name(members.name.name, array.uid, index, taken=True)
        manifest = submitted_manifest(array.stored, name, index)
        fact = facts.Submitted(
            namespace=members.name.namespace, name=name, workload=msgspec.Raw(manifest)
        )
        yield Act(fact, "missing", array.uid)
        room -= 1


def _released(name: WorkloadName, array: KnownArray, elements: Elements) -> Iterator[Act]:
    """Yields the acts that open gates: those of the first elements that are not over."""
    room = array.parallelism
    if room is None:
        return
    for index in array.indexes[elements.first_open(array) :]:
        if room == 0:
            return
        if elements.is_over(index):
            continue
        room -= 1
        element = elements.live.get(index)
        if element is not None and element.gated:
            fact = facts.Released(**_about(name, element), gate=ARRAY_GATE)
            yield Act(fact, "open", ARRAY_GATE, element.revision)


def _counted(
    name: WorkloadName, array: KnownArray, elements: Elements, *, ends: bool
) -> Iterator[Act]:
    """Yields the act that stores the counts of the elements in the array, if they differ."""
    states = Counter(str(element.phase) for element in elements.live.values())
    missing = len(array.indexes) - len(elements.seen)
    if missing:
        states[NOT_CREATED] = missing
    places = places_of(array)
    by_letter: dict[str, list[int]] = {}
    for index, letter in elements.fresh.items():
        by_letter.setdefault(letter, []).append(places[index])
    results = {letter: written_indexes(sorted(each)) for letter, each in by_letter.items()}
    complete = ends or not missing
    is_over = complete and all(element.is_over for element in elements.live.values())
    if array.finished:
        over = is_over and NO_RESULT in array.status.results and not elements.live
    else:
        over = is_over and array.active
    created = elements.created(array)
    status = array.status
    shown = states if NO_RESULT in status.results else {}
    if not results and not over and created == status.created and dict(shown) == status.states:
        return
    fact = facts.ElementsCounted(
        **_about(name, array), created=created, results=results, states=dict(states), over=over
    )
    mark = created, tuple(results.items()), tuple(sorted(states.items())), over
    yield Act(fact, "counted", mark, at_once=over)
