"""Who is of one family, as one batch has it so far. Pure."""

from __future__ import annotations

from collections.abc import Callable

from admittance.workload.conditions import Type, is_true
from admittance.workload.families.roles import PARENT
from admittance.workload.families.together import Kin
from admittance.workload.stored import StoredWorkload, head
from admittance.workload_controller.known import Known, Ref, Workloads, ref_of


class Relations:
    """Over the index of what is written lies what the batch changes. ``known``: a workload as the
    batch has it by now."""

    def __init__(self, workloads: Workloads, known: Callable[[str], Known]) -> None:
        self._workloads = workloads
        self._known = known
        self._refs: dict[str, Ref | None] = {}
        self._new: dict[str, set[str]] = {}

    def ref(self, key: str) -> Ref | None:
        """The family of the workload at that key; None: it is regular, or not there."""
        if key in self._refs:
            return self._refs[key]
        return self._workloads.family_of(key)

    def note(self, key: str, before: StoredWorkload | None, after: StoredWorkload | None) -> None:
        """What the batch made of a workload."""
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

    def has_parent(self, ref: Ref) -> bool:
        """The family is not one of orphans."""
        return self._parent(ref) is not None

    def _parent(self, ref: Ref) -> StoredWorkload | None:
        parent = self._known(ref.parent).workload
        if parent is None or parent.metadata.uid != ref.uid or head(parent).role != PARENT:
            return None
        return parent

    def kin(self, ref: Ref) -> Kin:
        """The family, without those of it that have finished or are gone."""
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
        return Kin(parent, variants)
