"""What the variant-controller keeps in memory about families, and indexes of families by queue,
time and name. The module is pure.

The variant-controller keeps of a parent its spec and the fields that the family policy reads, of a
variant only these fields, and of a regular workload only the name. Strings that the workloads of a
family share are interned."""

from __future__ import annotations

from collections.abc import Iterable
from sys import intern
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from admittance.api.queues import ClusterQueue, LocalQueue
from admittance.api.workload import VariantRow
from admittance.events.subjects import WorkloadName
from admittance.family import FamilyRules, ParentState, Sibling, VariantState, rules_of
from admittance.workload.conditions import Type, find_false, is_true
from admittance.workload.families.parent_status import summary_of
from admittance.workload.family_info import competes, parent_state, sibling, variant_state
from admittance.workload.stored import (
    PARENT,
    VARIANT,
    StoredWorkload,
    WorkloadStatus,
    head,
    owner_of,
)

_NOTHING: Final = WorkloadStatus()
_encode = msgspec.json.Encoder().encode


class RowMark(NamedTuple):
    """A row about a variant in a parent's status, reduced to what is compared. ``name``: the
    variant; ``why``: the reason why the variant is active or inactive; ``mark``: a hash of all
    other fields of the row."""

    name: str
    mark: int
    why: str


class KnownParent(NamedTuple):
    """What the variant-controller keeps of a parent. ``state``: the fields that the family policy
    reads. ``stored``: the parent without its status. ``rows``: the rows about variants in the
    parent's status. ``reason``: why the parent has no quota; "": it has quota, or the reason is
    unknown. ``ended``: the parent has finished or is being deleted, so the workload-controller ends
    its variants."""

    state: ParentState
    stored: StoredWorkload
    revision: int
    priority: int
    rows: tuple[RowMark, ...]
    reason: str
    ended: bool


class KnownVariant(NamedTuple):
    """What the variant-controller keeps of a variant. ``state``, ``sibling``: the fields that the
    family policy reads. ``place``: the variant's stored position among its siblings. ``mark``: see
    `RowMark`. ``quota_queue``: the ClusterQueue of the variant's quota; "": the variant holds no
    quota. ``competes``: the scheduler may try the variant, or the variant holds quota."""

    state: VariantState
    uid: str
    revision: int
    priority: int
    place: int
    mark: int
    sibling: Sibling
    competes: bool
    quota_queue: str
    deleting: bool
    finished: bool


class KnownFamily:
    """A family of variants: a parent, and the variants with the parent's name in their
    ownerReference, by name. ``parent`` None: the parent does not exist."""

    __slots__ = ("name", "parent", "variants")

    def __init__(self, name: WorkloadName) -> None:
        self.name = name
        self.parent: KnownParent | None = None
        self.variants: dict[str, KnownVariant] = {}


def family_of(workload: StoredWorkload) -> WorkloadName | None:
    """Returns the name of the family to which the workload belongs, which is the parent's name;
    None: the workload is regular."""
    match head(workload).role:
        case role if role == PARENT:
            return WorkloadName(intern(workload.metadata.namespace), intern(workload.metadata.name))
        case role if role == VARIANT:
            return WorkloadName(intern(workload.metadata.namespace), intern(owner_of(workload)[0]))
    return None


def parent_of(stored: StoredWorkload, revision: int) -> KnownParent:
    """Returns what the variant-controller keeps of a stored parent."""
    waits = find_false(stored, Type.QUOTA_RESERVED)
    meta, state = stored.metadata, parent_state(stored)
    namespace, name, uid = intern(meta.namespace), intern(meta.name), intern(meta.uid)
    kept = replace(meta, namespace=namespace, name=name, uid=uid)
    return KnownParent(
        state=state._replace(
            namespace=namespace, name=name, uid=uid, admitted=intern(state.admitted)
        ),
        stored=replace(stored, metadata=kept, status=_NOTHING),
        revision=revision,
        priority=head(stored).priority or 0,
        rows=tuple(
            RowMark(intern(row.name), _mark(row), intern(row.why)) for row in stored.status.variants
        ),
        reason=waits.reason if waits is not None else "",
        ended=is_true(stored, Type.FINISHED) or stored.metadata.deletion_timestamp is not None,
    )


def variant_of(stored: StoredWorkload, revision: int) -> KnownVariant:
    """Returns what the variant-controller keeps of a stored variant."""
    spec = head(stored)
    admission = stored.status.admission
    place, row = summary_of(stored)
    state = variant_state(stored)
    # The strings are interned, because many variants have equal strings.
    name, tag = intern(state.name), intern(state.tag)
    parent, uid = intern(state.parent), intern(state.parent_uid)
    return KnownVariant(
        state=state._replace(name=name, tag=tag, parent=parent, parent_uid=uid),
        uid=stored.metadata.uid,
        revision=revision,
        priority=spec.priority or 0,
        place=place,
        mark=_mark(row),
        sibling=sibling(stored, spec.sibling_index or 0)._replace(name=name),
        competes=competes(stored),
        quota_queue=intern(admission.cluster_queue) if admission is not None else "",
        deleting=stored.metadata.deletion_timestamp is not None,
        finished=is_true(stored, Type.FINISHED),
    )


def _mark(row: VariantRow) -> int:
    return hash(_encode(replace(row, why="") if row.why else row))


class QueueContext(NamedTuple):
    """The ClusterQueue of a family, and the ClusterQueue's rules for families. ``queue`` "": the
    family's LocalQueue or ClusterQueue does not exist. ``rules`` None: the ClusterQueue has no
    concurrent admission, so its workloads are regular."""

    queue: str = ""
    rules: FamilyRules | None = None


NO_QUEUE = QueueContext()


class FamilyQueues:
    """The families in each queue, and the rules of each ClusterQueue for families. ``enabled``:
    whether the feature gate ConcurrentAdmission is on; if it is off, no ClusterQueue has rules for
    families."""

    def __init__(self, *, enabled: bool = True) -> None:
        self._enabled = enabled
        self._rules: dict[str, FamilyRules | None] = {}
        self._queue_of: dict[WorkloadName, str] = {}
        self._locals_of: dict[str, set[WorkloadName]] = {}
        self._families: dict[WorkloadName, set[WorkloadName]] = {}

    def context_of(self, namespace: str, local: str) -> QueueContext:
        """Returns the ClusterQueue, with its rules, of the families that were submitted to the
        LocalQueue ``local``."""
        queue = self._queue_of.get(WorkloadName(namespace, local), "")
        return QueueContext(queue, self._rules[queue]) if queue in self._rules else NO_QUEUE

    def with_policy(self) -> list[str]:
        """Returns the names of the ClusterQueues with concurrent admission. Another thread may call
        `with_policy`."""
        return [queue for queue, rules in tuple(self._rules.items()) if rules is not None]

    def join(self, family: WorkloadName, local: str) -> None:
        """Records that the family was submitted to the LocalQueue ``local``."""
        self._families.setdefault(WorkloadName(family.namespace, local), set()).add(family)

    def leave(self, family: WorkloadName, local: str) -> None:
        """Records that the family is not in the LocalQueue ``local`` any more."""
        where = WorkloadName(family.namespace, local)
        families = self._families.get(where, set())
        families.discard(family)
        if not families:
            self._families.pop(where, None)

    def apply(self, kind: str, namespace: str, name: str, manifest: Any) -> Iterable[WorkloadName]:
        """Records a stored ClusterQueue or LocalQueue (None: the object was deleted); returns the
        families that its change may affect."""
        match kind:
            case "ClusterQueue":
                return self._cluster_queue(name, manifest)
            case "LocalQueue":
                return self._local_queue(WorkloadName(namespace, name), manifest)
        return ()

    def _cluster_queue(self, name: str, queue: ClusterQueue | None) -> list[WorkloadName]:
        known = name in self._rules
        before = self._rules.pop(name, None)
        if queue is not None:
            self._rules[name] = rules_of(queue.spec) if self._enabled else None
        if known == (name in self._rules) and before == self._rules.get(name):
            # Most edits of a ClusterQueue change only quota or checks, which do not affect
            # families.
            return []
        locals_ = sorted(self._locals_of.get(name, ()))
        return [family for local in locals_ for family in sorted(self._families.get(local, ()))]

    def _local_queue(self, name: WorkloadName, local: LocalQueue | None) -> list[WorkloadName]:
        before = self._queue_of.pop(name, "")
        if before:
            self._locals_of[before].discard(name)
        now = local.spec.cluster_queue if local is not None else ""
        if now:
            self._queue_of[name] = now
            self._locals_of.setdefault(now, set()).add(name)
        return sorted(self._families.get(name, ())) if now != before else []


class NameClaims:
    """The names that each family would give to its missing variants: a workload that gets or loses
    such a name may change the family's acts."""

    def __init__(self) -> None:
        self._of: dict[WorkloadName, tuple[WorkloadName, ...]] = {}
        self._claimants: dict[WorkloadName, set[WorkloadName]] = {}

    def set(self, family: WorkloadName, names: tuple[WorkloadName, ...]) -> None:
        """Sets the names that the family would give to its missing variants."""
        # If a name is too long, it always gets a hash, so the plain and the hashed name of a
        # variant may be equal.
        names = tuple(dict.fromkeys(names))
        for name in self._of.pop(family, ()):
            self._claimants[name].discard(family)
            if not self._claimants[name]:
                del self._claimants[name]
        if names:
            self._of[family] = names
        for name in names:
            self._claimants.setdefault(name, set()).add(family)

    def claimants(self, name: WorkloadName) -> list[WorkloadName]:
        """Returns the families that would give the name ``name`` to a missing variant."""
        return sorted(self._claimants.get(name, ()))

    def __len__(self) -> int:
        return len(self._claimants)
