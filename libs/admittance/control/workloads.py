"""The workloads that the controller holds in memory, with their revisions. The module is pure.

Finished workloads are not held, since they are many and facts about them are rare. Only the keys of
finished workloads stay: a fact about such a key makes the controller load the workload from the
bucket.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from msgspec.structs import replace

from admittance.control.bookings import Bookings
from admittance.control.user_requests.flow_control import PendingCounts
from admittance.events.subjects import workload_key, workload_name
from admittance.workload.conditions import Type, is_true
from admittance.workload.families.family_change import FamilyMembers
from admittance.workload.stored import PARENT, VARIANT, StoredWorkload, head, owner_of


class VersionedWorkload(NamedTuple):
    """A workload and the revision at which it was written. ``workload`` None: the workload does not
    exist, and ``fact`` is the fact that deleted it. ``trace``: traceparent of the workload's last
    change. ``unreadable``: a stored value exists but cannot be read, so it counts as absent."""

    workload: StoredWorkload | None
    revision: int
    fact: int
    trace: str = ""
    unreadable: bool = False


NOTHING = VersionedWorkload(None, 0, 0)


class FamilyRef(NamedTuple):
    """The family of a workload: the parent's key and uid."""

    parent: str
    uid: str


def ref_of(key: str, workload: StoredWorkload) -> FamilyRef | None:
    """The family of the workload at that key; None: the workload is regular."""
    role = head(workload).role
    if role == PARENT:
        return FamilyRef(key, workload.metadata.uid)
    if role == VARIANT:
        return ref_to(workload.metadata.namespace, *owner_of(workload))
    return None


def ref_to(namespace: str, parent: str, uid: str) -> FamilyRef:
    """The family of the named parent. ``parent`` "": a family without a parent."""
    return FamilyRef(workload_key(namespace, parent) if parent else "", uid)


def with_own_revision(workload: StoredWorkload, revision: int) -> StoredWorkload:
    """The workload with the revision of its own write filled in.

    0 in ``admittedRevision`` or ``evictedRevision`` stands for the revision of the write in which
    the condition turned True.
    """
    status = workload.status
    fields = {}
    if status.admitted_revision == 0 and is_true(workload, Type.ADMITTED):
        fields["admitted_revision"] = revision
    if status.evicted_revision == 0 and is_true(workload, Type.EVICTED):
        fields["evicted_revision"] = revision
    if not fields:
        return workload
    return replace(workload, status=replace(status, **fields))


class Workloads:
    """Workloads by bucket key, by the LocalQueue that they name, and by family, and what they hold
    of machines."""

    def __init__(self) -> None:
        self._known: dict[str, VersionedWorkload] = {}
        self._finished: dict[str, int] = {}
        self._by_queue: dict[tuple[str, str], set[str]] = {}
        self._family: dict[str, FamilyRef] = {}
        self._variants: dict[str, set[str]] = {}
        self.pending = PendingCounts()
        self.bookings = Bookings()

    def __len__(self) -> int:
        return len(self._known)

    def get(self, key: str) -> VersionedWorkload:
        """The held workload at that key; NOTHING if none is known."""
        return self._known.get(key, NOTHING)

    def must_load(self, key: str) -> bool:
        """Whether the workload at the key is in the bucket, but not held in memory."""
        return key in self._finished and key not in self._known

    def keep(self, key: str, known: VersionedWorkload) -> None:
        """Sets the held workload at the key."""
        self._forget(key)
        workload = known.workload
        self.pending.note(key, workload)
        self.bookings.note(key, workload)
        if workload is None:
            self._finished.pop(key, None)
            self._known[key] = known
            return
        known = VersionedWorkload(
            with_own_revision(workload, known.revision), known.revision, known.fact, known.trace
        )
        if is_true(workload, Type.FINISHED):
            self._finished[key] = known.fact
            if not workload.status.log.outbox:
                self._known.pop(key, None)
                return
        self._known[key] = known
        spec = head(workload)
        queue = (workload.metadata.namespace, spec.queue_name)
        self._by_queue.setdefault(queue, set()).add(key)
        if spec.role != "regular":
            self._relate(key, workload)

    def load(self, key: str, known: VersionedWorkload) -> None:
        """Sets the held workload at the key. Unlike `keep`, `load` also holds a finished workload,
        because a fact about it follows."""
        self.keep(key, known)
        if known.workload is not None:
            self._known[key] = known._replace(
                workload=with_own_revision(known.workload, known.revision)
            )

    def limit_fact(self, key: str, most: int) -> None:
        """Lowers the last fact of the held workload at that key to ``most``."""
        self._known[key] = self._known[key]._replace(fact=most)
        if key in self._finished:
            self._finished[key] = most

    def let_go(self, key: str) -> None:
        """Drops the workload from memory if it is finished. Called when the workload's outbox is
        published."""
        known = self._known.get(key)
        if known is None or known.workload is None:
            return
        if is_true(known.workload, Type.FINISHED):
            self._forget(key)
            del self._known[key]

    def gone(self, key: str) -> None:
        """Records that the bucket has neither a value nor a delete marker at the key, because both
        expire.
        """
        self._forget(key)
        self.pending.note(key, None)
        self.bookings.note(key, None)
        self._finished.pop(key, None)
        self._known.pop(key, None)

    def drop_tombstones(self, before: int) -> None:
        """Forgets the deleted workloads that were deleted by facts before ``before``, an
        acknowledged sequence."""
        gone = [
            key
            for key, known in self._known.items()
            if known.workload is None and known.fact < before
        ]
        for key in gone:
            del self._known[key]

    def drop_finished(self, before: int) -> None:
        """Removes finished workloads with a last fact so old that the bucket has dropped these
        workloads. If such a workload still exists, a put to its key is refused and the workload is
        loaded."""
        for key in [key for key, fact in self._finished.items() if fact < before]:
            del self._finished[key]

    def family_of(self, key: str) -> FamilyRef | None:
        """The family of a held workload; None: the workload is regular, or not held."""
        return self._family.get(key)

    def variants_of(self, uid: str) -> set[str]:
        """The keys of the held variants of the parent with that uid."""
        return self._variants.get(uid, set())

    def family_names(self, namespace: str, name: str) -> list[str]:
        """The names of the held workloads in the family of the workload; empty without a family."""
        ref = self._family.get(workload_key(namespace, name))
        if ref is None:
            return []
        return [workload_name(key).name for key in (ref.parent, *self.variants_of(ref.uid))]

    def of_queue(self, namespace: str, queue: str) -> list[str]:
        """The held workloads that name a LocalQueue, in the order of their keys."""
        return sorted(self._by_queue.get((namespace, queue), ()))

    def finished(self) -> list[tuple[str, int]]:
        """Keys of the finished workloads, with the last fact of each."""
        return list(self._finished.items())

    def ended_by(self, key: str) -> int:
        """The last fact of a finished workload; 0: no fact is known."""
        return self._finished.get(key, 0)

    def items(self) -> Iterator[tuple[str, VersionedWorkload]]:
        """Every held workload, by key."""
        return iter(self._known.items())

    def _relate(self, key: str, workload: StoredWorkload) -> None:
        ref = ref_of(key, workload)
        if ref is None:
            return
        parents = self._family.get(ref.parent)
        if parents == ref:
            # The members of a family share one FamilyRef, because there are many members.
            ref = parents
        self._family[key] = ref
        if ref.parent != key:
            self._variants.setdefault(ref.uid, set()).add(key)

    def _forget(self, key: str) -> None:
        ref = self._family.pop(key, None)
        if ref is not None and ref.parent != key:
            siblings = self._variants[ref.uid]
            siblings.discard(key)
            if not siblings:
                del self._variants[ref.uid]
        known = self._known.get(key)
        if known is None or known.workload is None:
            return
        queue = (known.workload.metadata.namespace, head(known.workload).queue_name)
        held = self._by_queue.get(queue)
        if held is not None:
            held.discard(key)
            if not held:
                del self._by_queue[queue]


class BatchFamilies:
    """Families during one batch: the index of stored workloads, with the changes of the batch.
    ``known``: returns a workload with the batch's changes."""

    def __init__(self, workloads: Workloads, known: Callable[[str], VersionedWorkload]) -> None:
        self._workloads = workloads
        self._known = known
        self._refs: dict[str, FamilyRef | None] = {}
        self._new: dict[str, set[str]] = {}

    def ref(self, key: str) -> FamilyRef | None:
        """The family of the workload at that key; None: the workload is regular or does not
        exist."""
        if key in self._refs:
            return self._refs[key]
        return self._workloads.family_of(key)

    def note(self, key: str, before: StoredWorkload | None, after: StoredWorkload | None) -> None:
        """Records that the batch changed a workload."""
        if after is None:
            if before is not None:
                self._refs[key] = None
            return
        if before is not None and before.spec is after.spec:
            return
        ref = ref_of(key, after)
        if ref is None and self.ref(key) is None:
            return
        self._refs[key] = ref
        if ref is not None:
            self._new.setdefault(ref.uid, set()).add(key)

    def has_parent(self, ref: FamilyRef) -> bool:
        """Whether the family's parent exists."""
        return self._parent(ref) is not None

    def _parent(self, ref: FamilyRef) -> StoredWorkload | None:
        parent = self._known(ref.parent).workload
        if parent is None or parent.metadata.uid != ref.uid or head(parent).role != PARENT:
            return None
        return parent

    def members(self, ref: FamilyRef) -> FamilyMembers:
        """Returns the members of the family that are neither finished nor deleted."""
        parent = self._parent(ref)
        keys = self._workloads.variants_of(ref.uid)
        new = self._new.get(ref.uid)
        if new:
            keys = keys | new
        variants = {}
        for key in sorted(keys):
            variant = self._known(key).workload
            if key == ref.parent or variant is None or self.ref(key) != ref:
                continue
            if not is_true(variant, Type.FINISHED):
                variants[variant.metadata.name] = variant
        return FamilyMembers(parent, variants)
