"""`FamilyActs`: knows all families of variants, and returns the acts after which each family
matches the family policy. The module is pure.

An act is a fact that the variant-controller publishes. Acts are computed from stored objects, so
nothing has to survive a restart: a new leader publishes the acts that are still required.
The acts of a family are computed again only when the family or its queue has changed,
or at the time in `LookTimes`."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from admittance.acts import Act, ParentActs, SentActs
from admittance.events import facts
from admittance.events.base import Fact
from admittance.events.reader import BROKEN, reason_of
from admittance.events.subjects import WorkloadName, workload_name
from admittance.object_errors import ObjectError
from admittance.variants.known_families import (
    NO_QUEUE,
    FamilyQueues,
    KnownFamily,
    KnownParent,
    NameClaims,
    family_of,
    parent_of,
    variant_of,
)
from admittance.variants.required_acts import required_acts
from admittance.workload.stored import PARENT, StoredWorkload, head

COALESCE: Final = timedelta(milliseconds=100)
"""Shortest time between two acts `Aggregated` for one parent."""
GATHER: Final = timedelta(milliseconds=100)
"""Delay before the act `Aggregated` is published for a parent. Most changes of variants also change
the parent, and then the workload-controller updates the parent's rows without this act."""


FAMILY_STATES: Final = {
    "waiting": "no variant is admitted",
    "backoff": "its backoff is not over",
    "inactive": "it is held, gated or deactivated",
    "admitted": "a variant is admitted",
    "stopping": "its job is being stopped",
    "migrating": "its job is being stopped, and a better variant is admitted next",
    "ended": "it has finished or is being deleted",
    "unreadable": "stored values are wrong, so it gets no variants",
}
"""The states of a family of variants, each with its meaning."""


def _state_of(parent: KnownParent) -> str:
    state = parent.state
    if parent.ended:
        return "ended"
    if state.migrating_to:
        return "migrating"
    if state.stopping:
        return "stopping"
    if state.admitted:
        return "admitted"
    if not state.active:
        return "inactive"
    return "backoff" if state.waits else "waiting"


class FamilyActs(ParentActs):
    """All families of variants, and the acts that the families require. ``now`` is always the wall
    clock with a time zone.

    ``enabled``: whether the feature gate ConcurrentAdmission is on. Call `acts` only after all
    stored objects were applied: before, a variant may seem to have no parent, and `acts` would
    delete it."""

    def __init__(
        self,
        *,
        enabled: bool = True,
        coalesce: timedelta = COALESCE,
        gather: timedelta = timedelta(0),
        errors: list[ObjectError] | None = None,
    ) -> None:
        """``errors``: gets the exceptions by bugs that concern one family, which is then set aside
        as unreadable; None: such an exception is raised."""
        super().__init__(SentActs(facts.Aggregated, coalesce, gather))
        self._errors = errors
        self._queues = FamilyQueues(enabled=enabled)
        self._families: dict[WorkloadName, KnownFamily] = {}
        self._family_of: dict[WorkloadName, WorkloadName | None] = {}
        self._names = NameClaims()
        self._open: dict[WorkloadName, str] = {}
        self.unreadable: dict[WorkloadName, str] = {}
        """The families with stored values that cannot be read, each with the reason; no acts are
        computed for them. Stored values that cannot be read were written by hand or by a newer
        version of Admittance."""

    # What changes. ------------------------------------------------------------------

    def apply(self, key: str, stored: StoredWorkload | None, revision: int, now: datetime) -> None:
        """Records the stored workload with the key ``key``; None: the workload was deleted.

        Raises ValueError if ``key`` is not the key of a workload."""
        name = workload_name(key)
        self._apply(name, stored, family_of(stored) if stored is not None else None, revision)
        if stored is not None:
            self._sent.through(stored.status.log.fact, now)
        else:
            self._family_of.pop(name, None)

    def regular(self, key: str) -> None:
        """Records that the workload with the key ``key`` is regular: it belongs to no family. The
        caller need not decode the value of a regular workload, which saves time, because most
        workloads are regular.

        Raises ValueError if ``key`` is not the key of a workload."""
        name = workload_name(key)
        if name not in self._family_of or self._family_of[name] is not None:
            self._apply(name, None, None, 0)

    def _apply(
        self,
        name: WorkloadName,
        stored: StoredWorkload | None,
        owner: WorkloadName | None,
        revision: int,
    ) -> None:
        before = self._family_of.get(name)
        if before is not None:
            self._forget(name, before)
        self._family_of[name] = owner
        if stored is not None and owner is not None:
            self._keep(name, owner, stored, revision)
        for family in (before, owner, *self._names.claimants(name)):
            if family is not None:
                self._changed[family] = None
        if before is not None and before != owner:
            self._drop(before)

    def apply_object(self, kind: str, namespace: str, name: str, obj: Any, _: datetime) -> None:
        """Records a stored ClusterQueue or LocalQueue; None: the object was deleted. Objects of
        other kinds are ignored."""
        self._changed.update(dict.fromkeys(self._queues.apply(kind, namespace, name, obj)))

    def _keep(
        self, name: WorkloadName, owner: WorkloadName, stored: StoredWorkload, revision: int
    ) -> None:
        family = self._families.setdefault(owner, KnownFamily(owner))
        if head(stored).role == PARENT:
            family.parent = parent_of(stored, revision)
            self._queues.join(owner, family.parent.state.queue)
        else:
            family.variants[name.name] = variant_of(stored, revision)

    def _forget(self, name: WorkloadName, owner: WorkloadName) -> None:
        family = self._families[owner]
        if family.variants.pop(name.name, None) is None and family.parent is not None:
            self._queues.leave(owner, family.parent.state.queue)
            family.parent = None

    def _drop(self, name: WorkloadName) -> None:
        family = self._families.get(name)
        if family is None or family.parent is not None or family.variants:
            return
        self._forget_acts(name)
        self._names.set(name, ())
        for kept in (self._families, self._open, self.unreadable):
            kept.pop(name, None)

    # Acts. ------------------------------------------------------------------------

    def parent_of(self, fact: Fact) -> WorkloadName | None:
        """Returns the name of the family that a fact is about; None: the family does not exist any
        more."""
        about = WorkloadName(fact.namespace, fact.name)
        for family in self._names.claimants(about):
            if self._sent.has(family, fact):
                return family
        return self._family_of.get(about)

    def gates_open(self) -> dict[str, int]:
        """The number of families with a variant that may preempt, by ClusterQueue."""
        # The queues with open gates are copied at once, because metrics are read from another
        # thread.
        return Counter(tuple(self._open.values()))

    def queues(self) -> list[str]:
        """The names of the ClusterQueues in which workloads get variants."""
        return self._queues.with_policy()

    def states(self) -> dict[str, int]:
        """The number of families in each of `FAMILY_STATES`."""
        states = dict.fromkeys(FAMILY_STATES, 0)
        # The families are copied at once, because metrics are read from another thread.
        for family in tuple(self._families.values()):
            parent = family.parent
            if parent is not None:
                unreadable = family.name in self.unreadable
                states["unreadable" if unreadable else _state_of(parent)] += 1
        return states

    def __contains__(self, name: object) -> bool:
        family = self._families.get(name)  # type: ignore[call-overload]
        return family is not None and family.parent is not None

    def __len__(self) -> int:
        return sum(1 for family in self._families.values() if family.parent is not None)

    # Steps. -------------------------------------------------------------------------

    def _acts_of(self, name: WorkloadName, now: datetime) -> list[Act]:
        family = self._families.get(name)
        if family is None:
            return []
        context = (
            self._queues.context_of(name.namespace, family.parent.state.queue)
            if family.parent is not None
            else NO_QUEUE
        )
        try:
            result = required_acts(family, context, partial(self._taken, name.namespace), now)
        except Exception as error:
            # A family with a broken object must not block the other families.
            if not isinstance(error, (*BROKEN, TypeError)):
                if self._errors is None:
                    raise
                about = f"family {name.namespace}/{name.name}"
                self._errors.append(ObjectError("find the acts of a family", about, error))
            self.unreadable[name] = reason_of(error)
            return []
        self.unreadable.pop(name, None)
        if result.gate_open:
            self._open[name] = context.queue
        else:
            self._open.pop(name, None)
        names = tuple(WorkloadName(name.namespace, variant) for variant in result.names)
        self._names.set(name, names)
        due_acts, again = self._sent.to_publish(name, result.acts, now)
        looks = [at for at in (result.look, again) if at is not None]
        self._times.set(name, min(looks, default=None))
        return due_acts

    def _taken(self, namespace: str, name: str) -> bool:
        return WorkloadName(namespace, name) in self._family_of
