"""The changes that one fact makes to a family: its members, their changes and outbox entries so
far. All changes of the family become one commit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from admittance.events.shapes import Admission
from admittance.family import ActivityReason, DesiredState, FamilyRules, desired_variants
from admittance.workload.change import Change, FactOutcome, applied, with_status
from admittance.workload.conditions import Type, is_true
from admittance.workload.family_info import parent_state, variant_state
from admittance.workload.phase import is_stopping
from admittance.workload.stored import PARENT, OutboxEntry, StoredWorkload, head
from admittance.workload.transition_context import (
    QueueView,
    RequiredCheck,
    TransitionContext,
)

QUIET = frozenset({"pending", "requeued"})
"""Kinds of outbox entries for users: of several such entries in one commit only the last is kept.
"""
PARENT_ONLY = frozenset({"admitted", "evicted"})
"""Kinds of outbox entries for runners. Only parents have these entries, because runners do not know
variants."""


def with_rejection(variant: StoredWorkload, change: Change) -> Change:
    """Returns the change that a fact makes to the variant, with the cause if it deactivates the
    variant: no user and no policy is behind the fact, so a Rejected check is the cause."""
    after = change.workload
    if not head(variant).active or after is None or head(after).active:
        return change
    return change._replace(workload=with_status(after, stopped_by=str(ActivityReason.REJECTED)))


class QueuesWithoutChecks:
    """A `QueueView` for parents, without checks: a parent requests no check."""

    def __init__(self, queues: QueueView) -> None:
        self._queues = queues

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queues, name)

    def required_checks(self, *_: object) -> tuple[RequiredCheck, ...]:
        return ()

    def named_checks(self, _: str) -> frozenset[str]:
        return frozenset()

    def not_offered(self, _: Admission) -> tuple[str, ...]:
        return ()


class FamilyMembers(NamedTuple):
    """The members of a family before a fact is applied. ``parent`` None: the parent does not exist
    or is no parent any more. ``variants``: unfinished variants, by name."""

    parent: StoredWorkload | None
    variants: Mapping[str, StoredWorkload]


class FamilyChange(NamedTuple):
    """The changes that a fact makes to a family. ``own``: the change of the member that the fact
    names. ``others``: the changes of the other members, by name, in the order of writing, the
    parent last."""

    own: Change
    others: Mapping[str, Change]


class FamilyTransition:
    """The members of a family with their changes so far. ``context``: the transition context for
    variants; ``parent_context``: the transition context for the parent. ``now``: the time of the
    fact. ``rules``: the family rules of the queue; None: the queue has no family rules."""

    def __init__(self, members: FamilyMembers, context: TransitionContext) -> None:
        self.parent = members.parent
        self.variants = dict(members.variants)
        self.context = context
        without_checks = cast("QueueView", QueuesWithoutChecks(context.queues))
        self.parent_context = context._replace(queues=without_checks)
        self._outboxes: dict[str, list[OutboxEntry]] = {}
        self._desired: dict[str, DesiredState] | None = None
        self.parent_name = members.parent.metadata.name if members.parent is not None else ""
        self.now = context.now
        self.rules: FamilyRules | None = None
        if members.parent is not None:
            namespace, queue = members.parent.metadata.namespace, head(members.parent).queue_name
            self.rules = context.queues.family_rules(namespace, queue)

    # Members. ----------------------------------------------------------------------------

    def existing_parent(self) -> StoredWorkload:
        """The parent, which must exist."""
        assert self.parent is not None, "a family has a parent"
        return self.parent

    def running(self) -> list[StoredWorkload]:
        """The variants of the family that are admitted and not evicted."""
        return [
            variant
            for variant in self.variants.values()
            if is_true(variant, Type.ADMITTED) and not is_true(variant, Type.EVICTED)
        ]

    def desired(self) -> dict[str, DesiredState]:
        """The desired state of each variant after the changes that the fact has made so far."""
        if self.parent is None or head(self.parent).role != PARENT:
            return {}
        if self._desired is None:
            states = [variant_state(variant) for variant in self.variants.values()]
            self._desired = desired_variants(
                parent_state(self.parent), states, self.rules, self.now
            )
        return self._desired

    def desired_state(self, name: str) -> DesiredState | None:
        """The desired state of one variant; None: the queue has no such variant."""
        return self.desired().get(name)

    def is_stopping(self) -> bool:
        """Whether the family's job is being stopped."""
        return self.parent is not None and is_stopping(self.parent)

    # Changes. ------------------------------------------------------------------

    def put(self, name: str, change: Change) -> None:
        """Records the change of the member ``name``. A change without a workload deletes the
        member."""
        self._desired = None
        if name == self.parent_name:
            self.parent = change.workload
            outbox = change.outbox
        else:
            if change.workload is None:
                self.variants.pop(name, None)
            else:
                self.variants[name] = change.workload
            outbox = tuple(entry for entry in change.outbox if entry.what not in PARENT_ONLY)
        before = self._outboxes.setdefault(name, [])
        for entry in outbox:
            if entry.what in QUIET:
                before[:] = [kept for kept in before if kept.what not in QUIET]
            before.append(entry)

    def keep(self, workload: StoredWorkload, *outbox: OutboxEntry) -> None:
        """Records a new version of a member, with the outbox entries that follow from it."""
        self.put(workload.metadata.name, applied(workload, *outbox))

    def drop_notices(self, name: str) -> None:
        """Removes the member's outbox entries for users, because they are no longer true."""
        said = self._outboxes.get(name)
        if said is not None:
            said[:] = [kept for kept in said if kept.what not in QUIET]

    def touched(self, name: str) -> bool:
        """Whether the fact has changed the member ``name`` so far."""
        return name in self._outboxes

    def outbox_entry(self, name: str, what: str) -> OutboxEntry | None:
        """The member's outbox entry of the kind ``what``."""
        return next((entry for entry in self._outboxes.get(name, ()) if entry.what == what), None)

    def result(self, name: str, own: Change) -> FamilyChange:
        """Returns all changes of the transition. ``own``: the first change of the member ``name``,
        which the fact names."""
        changes = {
            member: Change(
                self.parent if member == self.parent_name else self.variants.get(member),
                tuple(said),
            )
            for member, said in self._outboxes.items()
        }
        mine = changes.pop(name, None)
        if mine is not None:
            own = Change(mine.workload, mine.outbox, FactOutcome.APPLIED, own.reason, own.message)
        if self.parent_name in changes:
            changes[self.parent_name] = changes.pop(self.parent_name)
        return FamilyChange(own, changes)
