"""`ArrayActs` keeps all arrays, and returns the acts that they require. The module is pure.

Acts are computed from stored objects, so nothing has to survive a restart, and two leaders do no
harm: a repeated fact changes nothing, and the rule of the gates holds for each of them
(docs/spec/arrays.md#2). The acts of an array are computed again only when the array or one of its
elements has changed, or when an act has had no effect in time."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from typing import Final

from admittance.acts import Act, ParentActs, SentActs
from admittance.arrays.known_arrays import (
    ArrayMembers,
    KnownArray,
    array_from,
    element_from,
)
from admittance.arrays.required_acts import required_acts
from admittance.events import facts
from admittance.events.base import Fact
from admittance.events.reader import BROKEN, reason_of
from admittance.events.subjects import WorkloadName, workload_key, workload_name
from admittance.object_errors import ObjectError
from admittance.workload.arrays.elements import ElementOf, element_of
from admittance.workload.stored import ARRAY, StoredWorkload, head

COALESCE: Final = timedelta(seconds=1)
"""Shortest time between two counts of one array."""
GATHER: Final = timedelta(milliseconds=100)
"""Delay before a count is published, in which further changes join it."""


class ArrayActs(ParentActs):
    """All arrays, and the acts that they require. ``now`` is always the wall clock with a time
    zone. Call `acts` only after all stored objects were applied: before, an element may seem to
    have no array, and `acts` would delete it."""

    def __init__(
        self,
        *,
        coalesce: timedelta = COALESCE,
        gather: timedelta = timedelta(0),
        errors: list[ObjectError] | None = None,
    ) -> None:
        """``errors``: gets the exceptions by bugs that concern one array; None: such an exception
        is raised."""
        super().__init__(SentActs(facts.ElementsCounted, coalesce, gather))
        self._errors = errors
        self._arrays: dict[WorkloadName, ArrayMembers] = {}
        self._names: dict[WorkloadName, ElementOf | None] = {}
        self._ordinary: set[str] = set()
        self._set_aside: set[WorkloadName] = set()
        self.unreadable: dict[WorkloadName, str] = {}
        """The arrays with acts that cannot be computed, each with the reason: a stored value is
        wrong."""

    # What changes. ------------------------------------------------------------------

    def apply(self, key: str, stored: StoredWorkload | None, revision: int, now: datetime) -> None:
        """Records the stored workload with the key ``key``; None: the workload was deleted. Raises
        ValueError if ``key`` is not the key of a workload."""
        name = workload_name(key)
        self._ordinary.discard(key)
        self._set_aside.discard(name)
        before = self._names.get(name)
        element = element_of(stored) if stored is not None else None
        if before is not None and before != element:
            self._drop_element(name, before)
        if stored is None:
            self._names.pop(name, None)
        else:
            self._names[name] = element
            self._sent.through(stored.status.log.fact, now)
            if element is not None:
                self._put_element(name, element, stored, revision)
        array = None
        if stored is not None and head(stored).role == ARRAY:
            array = array_from(stored, revision)
        self._put_array(name, array)

    def ordinary(self, key: str) -> None:
        """Records that the workload with the key ``key`` is neither an array nor an element. The
        caller need not decode the value of such a workload. Raises ValueError if ``key`` is not the
        key of a workload."""
        if key in self._ordinary:
            return
        name = workload_name(key)
        self._set_aside.discard(name)
        before = self._names.pop(name, None)
        if before is not None:
            self._drop_element(name, before)
        self._ordinary.add(key)
        self._put_array(name, None)

    def set_aside(self, key: str) -> None:
        """Records that the workload with the key ``key`` cannot be read. No acts are computed for
        an array of this name, since its elements must not seem to have no array."""
        name = workload_name(key)
        self._ordinary.discard(key)
        self._names.setdefault(name, None)
        self._set_aside.add(name)

    def _put_element(
        self, name: WorkloadName, element: ElementOf, stored: StoredWorkload, revision: int
    ) -> None:
        owner = WorkloadName(name.namespace, element.array)
        members = self._arrays.setdefault(owner, ArrayMembers(owner))
        members.of(element.uid).put(element.number, element_from(stored, revision))
        self._changed[owner] = None

    def _drop_element(self, name: WorkloadName, element: ElementOf) -> None:
        owner = WorkloadName(name.namespace, element.array)
        members = self._arrays[owner]
        elements = members.of(element.uid)
        elements.drop(element.number, name.name)
        is_known = members.array is not None and members.array.uid == element.uid
        if not elements.present and not is_known:
            del members.elements[element.uid]
        self._changed[owner] = None
        self._forget_empty(members)

    def _put_array(self, name: WorkloadName, array: KnownArray | None) -> None:
        members = self._arrays.get(name)
        if array is not None:
            if members is None:
                members = self._arrays[name] = ArrayMembers(name)
            members.array = array
        elif members is None:
            return
        elif members.array is not None:
            gone = members.elements.get(members.array.uid)
            if gone is not None and not gone.present:
                del members.elements[members.array.uid]
            members.array = None
        self._changed[name] = None
        self._forget_empty(members)

    def _forget_empty(self, members: ArrayMembers) -> None:
        if members.array is None and not members.elements:
            del self._arrays[members.name]
            self._forget_acts(members.name)
            self.unreadable.pop(members.name, None)

    # Acts. --------------------------------------------------------------------------

    def parent_of(self, fact: Fact) -> WorkloadName | None:
        """Returns the name of the array that an act is about; None: it is not known any more."""
        about = WorkloadName(fact.namespace, fact.name)
        element = self._names.get(about)
        if element is not None:
            return WorkloadName(fact.namespace, element.array)
        if isinstance(fact, facts.Submitted):
            return self._submitted_for(about)
        return about if about in self._arrays else None

    def _submitted_for(self, about: WorkloadName) -> WorkloadName | None:
        """The array of an element that is not stored yet: its name begins the element's."""
        array = about.name
        while "-" in array:
            array = array.rpartition("-")[0]
            owner = WorkloadName(about.namespace, array)
            if owner in self._arrays:
                return owner
        return None

    def states(self) -> dict[str, int]:
        """The number of arrays in each of `ARRAY_STATES`."""
        states = dict.fromkeys(ARRAY_STATES, 0)
        # The arrays are copied at once, because metrics are read from another thread.
        for members in tuple(self._arrays.values()):
            if members.name in self.unreadable or members.name in self._set_aside:
                states["unreadable"] += 1
            elif (array := members.array) is not None:
                over = array.finished or array.deleting
                states["ended" if over else "active" if array.active else "inactive"] += 1
        return states

    def unfinished(self) -> int:
        """The number of elements without a result."""
        return sum(
            len(elements.live)
            for members in tuple(self._arrays.values())
            for elements in tuple(members.elements.values())
        )

    def __contains__(self, name: object) -> bool:
        members = self._arrays.get(name)  # type: ignore[call-overload]
        return members is not None and members.array is not None

    def __len__(self) -> int:
        return sum(1 for members in self._arrays.values() if members.array is not None)

    # Steps. -------------------------------------------------------------------------

    def _acts_of(self, name: WorkloadName, now: datetime) -> list[Act]:
        members = self._arrays.get(name)
        if members is None or name in self._set_aside:
            return []
        try:
            required = required_acts(members, partial(self._taken, name.namespace))
        except Exception as error:
            # An array with a broken object must not block the other arrays.
            if not isinstance(error, (*BROKEN, TypeError)):
                if self._errors is None:
                    raise
                about = f"array {name.namespace}/{name.name}"
                self._errors.append(ObjectError("find the acts of an array", about, error))
            self.unreadable[name] = reason_of(error)
            return []
        self.unreadable.pop(name, None)
        due_acts, again = self._sent.to_publish(name, required, now)
        self._times.set(name, again)
        return due_acts

    def _taken(self, namespace: str, name: str) -> bool | None:
        about = WorkloadName(namespace, name)
        if about not in self._names:
            return workload_key(namespace, name) in self._ordinary
        element = self._names[about]
        if element is None:
            return True
        members = self._arrays.get(WorkloadName(namespace, element.array))
        array = members.array if members is not None else None
        return None if array is None or array.uid != element.uid else True


ARRAY_STATES: Final = {
    "active": "elements wait or run, or are still to be created",
    "inactive": "it is deactivated",
    "ended": "it has finished or is being deleted",
    "unreadable": "a stored value is wrong, so it gets no elements",
}
"""The states of an array, each with its meaning."""
