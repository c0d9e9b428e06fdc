"""Limits on the quota of a queue that one person may hold: `perUser` and `perLabel` of a
ClusterQueue or LocalQueue.

A person is a user, or all workloads with one value of a label. What a person holds is a sum over
the workloads with quota, which each charge and each release changes by the amounts of one workload.
Of a family of variants the largest amount of each resource counts, because no two variants of a
family run at once. Source: `docs/spec/scheduling.md#3.10`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol
from weakref import WeakValueDictionary

from admittance.api.fields.units import amount, render
from admittance.api.queues import ClusterQueueSpec, LocalQueueSpec
from admittance.quota.catalog import Catalog
from admittance.quota.cell import Cell
from admittance.scheduling.state.equivalence import Key
from admittance.scheduling.state.requests import RequestShape

PODS: Final = "pods"
"""The resource that counts the pods of a workload in a queue that has quota of it."""


class LimitedQueue(Protocol):
    """The field of a ClusterQueue that the limits read."""

    @property
    def limits(self) -> PersonLimits | None: ...


class LimitedCharge(Protocol):
    """The quota with which a workload is charged."""

    @property
    def queue(self) -> LimitedQueue: ...
    @property
    def cells(self) -> list[tuple[Cell, int]]: ...


class LimitedWorkload(Protocol):
    """The fields of a workload that the limits read."""

    user: str
    labels: tuple[tuple[str, str], ...]
    local_queue: Key

    @property
    def family(self) -> Any: ...
    @property
    def charge(self) -> LimitedCharge | None: ...


class Limit(NamedTuple):
    """One limit. ``place``: the queue that has it, with its kind. ``label``: the key of the label
    that says which workloads are of one person; "": their user. ``most``: the most that one person
    may hold of each resource, in accounting units."""

    place: str
    label: str
    most: tuple[tuple[str, int], ...]


class Written(NamedTuple):
    """The limits in the manifests of a ClusterQueue (``own``) and of its LocalQueues."""

    own: tuple[Limit, ...]
    local: Mapping[Key, tuple[Limit, ...]]


class Person:
    """One person under one limit, and the limited amounts that the person holds (``held``).
    ``is_any``: it stands for any user."""

    __slots__ = ("__weakref__", "held", "is_any", "limit", "name")

    def __init__(self, limit: Limit, name: str, *, is_any: bool) -> None:
        self.limit = limit
        self.name = name
        self.is_any = is_any
        self.held = {resource: 0 for resource, _ in limit.most}

    def __str__(self) -> str:
        if self.is_any:
            return "one user"
        if self.limit.label:
            return f"label {self.limit.label}={self.name}"
        return f"user {self.name}" if self.name else "all workloads without a user together"


class Excess(NamedTuple):
    """Why a workload is over a limit: the ``person`` may hold ``most`` of the resource, and the
    workload asks for ``asked`` beyond what the person ``held`` at that moment."""

    person: Person
    resource: str
    asked: int
    held: int
    most: int

    @property
    def is_lasting(self) -> bool:
        """Whether the workload alone asks for more than its person may hold."""
        return self.asked > self.most

    def __str__(self) -> str:
        """The excess in words: ``user ada may hold 16 cpu in ClusterQueue research and holds 14;
        the workload asks for 4 more``."""
        asked, held, most = (
            render(self.resource, much) for much in (self.asked, self.held, self.most)
        )
        may = f"{self.person} may hold {most} {self.resource} in {self.person.limit.place}"
        if self.is_lasting:
            return f"{may}; the workload asks for {asked}"
        return f"{may} and holds {held}; the workload asks for {asked} more"


class PersonLimits:
    """The limits of one ClusterQueue and its LocalQueues, and what each person holds. ``partial``:
    workloads may start with fewer pods, down to minCount.

    Invariant: between two changes of the scheduler's state, the amounts of a person are the sum of
    what the workloads of the person, and their families, are charged for in the ClusterQueue."""

    __slots__ = ("_counted", "_persons", "_resources", "partial", "written")

    def __init__(self, written: Written, *, partial: bool) -> None:
        self.written = written
        self.partial = partial
        every = (written.own, *written.local.values())
        self._resources = frozenset(
            resource for limits in every for limit in limits for resource, _ in limit.most
        )
        self._persons: WeakValueDictionary[tuple[Limit, str], Person] = WeakValueDictionary()
        self._counted: dict[Any, tuple[tuple[Person, ...], dict[str, int]]] = {}

    # Persons. -------------------------------------------------------------------------------

    def persons_of(self, workload: LimitedWorkload) -> tuple[Person, ...]:
        """Returns the person of the workload under each limit that is about the workload."""
        persons = []
        for limit in (*self.written.own, *self.written.local.get(workload.local_queue, ())):
            name = workload.user
            if limit.label:
                value = next((value for key, value in workload.labels if key == limit.label), None)
                if value is None:
                    continue
                name = value
            person = self._persons.get((limit, name))
            if person is None:
                person = self._persons[limit, name] = Person(limit, name, is_any=False)
            persons.append(person)
        return tuple(persons)

    def persons(self, limits: Sequence[Limit]) -> list[Person]:
        """Returns the persons that hold quota under the given limits, by limit and name."""
        known = [person for person in list(self._persons.values()) if any(person.held.values())]
        return sorted(
            (person for person in known if person.limit in limits),
            key=lambda person: (limits.index(person.limit), person.name),
        )

    # What they hold. ------------------------------------------------------------------------

    def update(self, workload: LimitedWorkload) -> None:
        """Counts what the workload, or its family, holds now in place of what it held. Must be
        called after each change of its charge, family, user, labels or LocalQueue."""
        family = workload.family
        unit = workload if family is None else family
        persons, amounts = self._counted.pop(unit, ((), {}))
        _add(persons, amounts, -1)
        members: Iterable[LimitedWorkload] = (workload,)
        if family is not None:
            members = family.quota.members if family.quota is not None else ()
        amounts = self._largest(members)
        if amounts:
            persons = self.persons_of(next(iter(members)))
            self._counted[unit] = persons, amounts
            _add(persons, amounts, 1)

    def _largest(self, members: Iterable[LimitedWorkload]) -> dict[str, int]:
        """Returns of each limited resource the largest amount that a member holds here."""
        largest: dict[str, int] = {}
        for member in members:
            charge = member.charge
            if charge is None or charge.queue.limits is not self:
                continue
            total: dict[str, int] = {}
            for cell, much in charge.cells:
                resource = cell.fr[1]
                if resource in self._resources:
                    total[resource] = total.get(resource, 0) + much
            for resource, much in total.items():
                largest[resource] = max(largest.get(resource, 0), much)
        return largest

    # Questions. -----------------------------------------------------------------------------

    def excess(self, workload: LimitedWorkload, shape: RequestShape) -> Excess | None:
        """Returns the limit that keeps the workload from holding quota for the pods of ``shape``;
        None: no limit does. What the family of a variant holds already is not asked for again."""
        asked = self._asked(shape)
        family = workload.family
        if family is not None and family in self._counted:
            for resource, much in self._counted[family][1].items():
                if resource in asked:
                    asked[resource] = max(0, asked[resource] - much)
        excess: Excess | None = None
        for person in self.persons_of(workload):
            for resource, most in person.limit.most:
                more, held = asked.get(resource), person.held[resource]
                if more and held + more > most:
                    found = Excess(person, resource, more, held, most)
                    if found.is_lasting:
                        return found
                    excess = excess or found
        return excess

    def never(
        self, local_queue: Key, labels: Mapping[str, str], shape: RequestShape
    ) -> Excess | None:
        """Returns the limit that a workload of any user can never be within: its fewest pods alone
        ask for more; None: there is none."""
        asked = self._asked(self.fewest(shape))
        for limit in (*self.written.own, *self.written.local.get(local_queue, ())):
            if limit.label and limit.label not in labels:
                continue
            person = Person(limit, labels.get(limit.label, ""), is_any=not limit.label)
            for resource, most in limit.most:
                much = asked.get(resource, 0)
                if much > most:
                    return Excess(person, resource, much, 0, most)
        return None

    def fewest(self, shape: RequestShape) -> RequestShape:
        """Returns the shape with the fewest pods with which a workload may start."""
        return shape.fewest() if self.partial else shape

    def _asked(self, shape: RequestShape) -> dict[str, int]:
        asked: dict[str, int] = {}
        for totals in shape.totals:
            for resource, much in totals:
                if resource in self._resources:
                    asked[resource] = asked.get(resource, 0) + much
        if PODS in self._resources:
            asked[PODS] = sum(ps.count for ps in shape.pod_sets)
        return asked


def _add(persons: Iterable[Person], amounts: Mapping[str, int], sign: int) -> None:
    for person in persons:
        for resource, much in amounts.items():
            if resource in person.held:
                person.held[resource] += sign * much


# Manifests. ---------------------------------------------------------------------------------


def written_limits(catalog: Catalog, name: str) -> Written | None:
    """Returns the limits in the manifests of the ClusterQueue and its LocalQueues; None: they have
    none."""
    queue = catalog.cluster_queues.get(name)
    if queue is None:
        return None
    own = tuple(_limits(queue.spec, f"ClusterQueue {name}", queue.spec))
    local = {
        key: limits for key in catalog.locals_of(name) if (limits := local_limits(catalog, key))
    }
    return Written(own, local) if own or local else None


def local_limits(catalog: Catalog, key: Key) -> tuple[Limit, ...]:
    """Returns the limits in the manifest of a LocalQueue, of the resources of which its
    ClusterQueue has quota."""
    local = catalog.local_queues[key]
    queue = catalog.cluster_queues.get(local.spec.cluster_queue)
    if queue is None:
        return ()
    return tuple(_limits(local.spec, f"LocalQueue {key[0]}/{key[1]}", queue.spec))


def _limits(
    spec: ClusterQueueSpec | LocalQueueSpec, place: str, quotas: ClusterQueueSpec
) -> Iterator[Limit]:
    for label, limited in (("", spec.per_user), *sorted(spec.per_label.items())):
        covered = {name for group in quotas.resource_groups for name in group.covered_resources}
        most = [
            (resource, amount(resource, written))
            for resource, written in sorted(limited.items())
            if resource in covered
        ]
        if most:
            yield Limit(place, label, tuple(most))
