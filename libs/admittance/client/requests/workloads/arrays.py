"""Arrays: how their elements have ended, and which of them waits. docs/spec/arrays.md."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Final, NamedTuple

from admittance.api.arrays import element_name
from admittance.api.workload import DELETED, ENDED, FAILED, NO_RESULT, SUCCEEDED
from admittance.client.errors import NotFound, TimedOut, Unavailable
from admittance.client.kinds import WORKLOAD
from admittance.client.requests.link import Link
from admittance.client.requests.objects import (
    AT_ONCE,
    BucketObject,
    array_named,
    elements_named,
    follow,
    lookup,
    places_of,
)
from admittance.runtime import clock
from admittance.workload.arrays.elements import indexes_of
from admittance.workload.conditions import Type, gated_by, is_true
from admittance.workload.phase import Phase, phase
from admittance.workload.stored import StoredWorkload

LOOKED_AT: Final = 1024
"""The most elements that are read to find one that waits."""


class ElementsEnded(NamedTuple):
    """How elements of an array have ended. ``failed``: the indexes of those that did not
    succeed."""

    elements: int
    failed: tuple[int, ...]


async def wait_for_elements(
    link: Link, typed: str, namespace: str, timeout: float | None
) -> ElementsEnded:
    """Waits until all elements of a name like ``sweep[10-20]`` have a result, by the counts of the
    array. Raises NotFound, and TimedOut after ``timeout`` seconds."""
    named = elements_named(typed)
    assert named is not None, "the caller has asked"
    name, indexes = named
    array = await array_named(link, name, namespace)
    places = places_of(array, indexes)
    uid = array.workload().metadata.uid
    left = len(places)
    try:
        async with asyncio.timeout(timeout), aclosing(follow(link, namespace, name)) as states:
            async for stored in states:
                workload = stored.workload() if stored is not None else None
                if workload is None or workload.metadata.uid != uid:
                    raise NotFound(f'array "{name}" was deleted')
                status = workload.status.array
                results = status.results if status is not None else ""
                left = sum(results[place] == NO_RESULT for place in places.values())
                if not left or is_true(workload, Type.FINISHED):
                    failed = [i for i, place in places.items() if results[place] != SUCCEEDED]
                    return ElementsEnded(len(places), tuple(failed))
    except TimeoutError:
        raise TimedOut(
            f"{left} of {len(places)} elements of {typed} have no result after "
            f"{round(timeout or 0.0, 1):g} s; `admit explain workload {name}` says why"
        ) from None
    raise Unavailable(f'array "{name}": the connection to the bus ended')


def failed_indexes(array: StoredWorkload) -> tuple[int, ...]:
    """The indexes of the elements of an array that have a result and did not succeed."""
    status = array.status.array
    results = status.results if status is not None else ""
    bad = (FAILED, DELETED, ENDED)
    return tuple(
        index for index, letter in zip(indexes_of(array), results, strict=True) if letter in bad
    )


async def first_waiting(link: Link, array: BucketObject) -> BucketObject | None:
    """The first element that waits for quota; None: there is none, as far as was looked."""
    workload = array.workload()
    status = workload.status.array
    assert status is not None, "a stored array has counts"
    uid = workload.metadata.uid
    waiting = [
        index
        for index, letter in zip(indexes_of(workload), status.results, strict=True)
        if letter == NO_RESULT
    ]
    for first in range(0, min(len(waiting), LOOKED_AT), AT_ONCE):
        keys = (
            WORKLOAD.object_key(array.namespace, element_name(array.name, uid, index))
            for index in waiting[first : first + AT_ONCE]
        )
        for stored in await asyncio.gather(*(lookup(link, key) for key in keys)):
            if stored is None or not stored.is_workload():
                continue
            element = stored.workload()
            waits = phase(element, clock.now()) in (Phase.PENDING, Phase.BACKOFF)
            if waits and not gated_by(element):
                return stored
    return None
