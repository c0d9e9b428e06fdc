"""Reads submitted workloads, and remembers the pod sets that passed all rules.

Thousands of jobs have the same pod template, and to validate its containers is most of the work of
a submission. So pod sets with the bytes of valid pod sets are neither decoded nor validated again.
Everything else of a workload is read and validated each time: what is remembered changes the time
that an answer takes, not the answer. Pod sets are remembered when they come for the second time,
because other jobs each have arguments of their own.

Invariant: no rule of `validate` compares the pod sets of a Workload with its other fields.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from admittance.api.fields.problems import Problem
from admittance.api.kinds import KINDS
from admittance.api.manifests import with_defaults
from admittance.api.reading import canonical
from admittance.api.reading.objects import BROKEN, OBJECT_MAX
from admittance.api.reading.priority import PriorityClasses, resolve_priority
from admittance.api.validation.validate import validate
from admittance.api.validation.workload import requests_over_limits
from admittance.api.workload import PodSet, Workload, WorkloadSpec

EACH_MAX: Final = 256 * 1024
"""The greatest weight of pod sets that are remembered: see `_weight`."""
ALL_MAX: Final = 8 * 1024 * 1024
"""The greatest weight of all remembered pod sets together."""
SEEN_MAX: Final = 4096
"""Of how many pod sets that came once the hash is remembered."""


class KnownPodSets:
    """Valid pod sets. ``over_limits``: the problems of requests above their limits; a workload with
    such problems may exist, but is not admitted. ``weight`` 0: the pod sets are not remembered."""

    __slots__ = ("_stored", "over_limits", "pod_sets", "weight")

    def __init__(self, spec: WorkloadSpec, weight: int = 0) -> None:
        self.pod_sets = spec.pod_sets
        self.over_limits: list[Problem] = requests_over_limits(spec)
        self.weight = weight
        self._stored: msgspec.Raw | None = None

    def to_stored(self, spec: WorkloadSpec) -> bytes:
        """A spec with these pod sets, as `canonical.to_stored` returns it."""
        if self._stored is not None:
            return canonical.encode(_UnreadSpec(pod_sets=self._stored, **_others(spec)))
        stored = canonical.encode(spec)
        if self.weight:
            self._stored = _written.decode(stored).pod_sets.copy()
        return stored


class ReadWorkload(NamedTuple):
    """A valid workload as read, and its pod sets."""

    workload: Workload
    known: KnownPodSets


class WorkloadReader:
    """Reads submitted workloads. ``each_max``, ``all_max``: the greatest weight of remembered pod
    sets, each and in all; those that were not read for the longest time are forgotten."""

    def __init__(self, each_max: int = EACH_MAX, all_max: int = ALL_MAX) -> None:
        self._each_max = each_max
        self._all_max = all_max
        self._known: OrderedDict[bytes, KnownPodSets] = OrderedDict()
        self._seen: set[int] = set()
        self.weight = 0

    def __len__(self) -> int:
        return len(self._known)

    def read(
        self,
        raw: bytes | msgspec.Raw,
        *,
        namespace: str,
        classes: PriorityClasses,
        default_class: bool = True,
    ) -> ReadWorkload | None:
        """The workload that `objects.accept` returns, with its pod sets; None: `accept` refuses the
        object, or it is no Workload of the present version. Raises ManifestError for a class that
        does not exist."""
        try:
            if len(raw) > OBJECT_MAX:
                return None
            unread = _unread.decode(raw)
            if (unread.api_version, unread.kind) != (_KIND.versions[0], _KIND.name):
                return None
            written = bytes(unread.spec.pod_sets)
            known = self._known.get(written)
            pod_sets = _pod_sets.decode(written) if known is None else known.pod_sets
        except BROKEN:
            return None
        workload: Any = with_defaults(_with_pod_sets(unread, pod_sets), namespace)
        workload = resolve_priority(workload, classes, defaulting=default_class)
        if known is None:
            if validate(workload):
                return None
            return ReadWorkload(workload, self._noted(written, workload.spec))
        self._known.move_to_end(written)
        rest = replace(workload, spec=replace(workload.spec, pod_sets=_STAND_IN))
        return None if validate(rest) else ReadWorkload(workload, known)

    def _noted(self, written: bytes, spec: WorkloadSpec) -> KnownPodSets:
        """The pod sets, which are remembered if they came before."""
        fingerprint = hash(written)
        if fingerprint not in self._seen:
            if len(self._seen) >= SEEN_MAX:
                self._seen.clear()
            self._seen.add(fingerprint)
            return KnownPodSets(spec)
        weight = _weight(written)
        if weight > self._each_max:
            return KnownPodSets(spec)
        self._seen.discard(fingerprint)
        known = self._known[written] = KnownPodSets(spec, weight)
        self.weight += weight
        while self.weight > self._all_max:
            _, oldest = self._known.popitem(last=False)
            self.weight -= oldest.weight
        return known


def _weight(written: bytes) -> int:
    """At least the bytes of memory that the pod sets take: hostile ones are a list of many small
    values, each of which is an object in memory."""
    objects = written.count(b"{") + written.count(b"[")
    return 2 * len(written) + 400 * objects + 40 * (written.count(b'"') + written.count(b","))


class _UnreadSpec(WorkloadSpec, frozen=True, kw_only=True):
    """A spec with its pod sets as they are written."""

    pod_sets: msgspec.Raw = msgspec.Raw(b"[]")  # type: ignore[assignment]


class _UnreadWorkload(Workload, frozen=True, kw_only=True):
    spec: _UnreadSpec = _UnreadSpec()


class _WrittenPodSets(msgspec.Struct, frozen=True, rename="camel"):
    pod_sets: msgspec.Raw = msgspec.Raw(b"[]")


_KIND: Final = KINDS["Workload"]
_STAND_IN: Final = (PodSet(),)
"""Valid pod sets in the place of known ones while the rest of a workload is validated."""
_OTHERS: Final = tuple(name for name in WorkloadSpec.__struct_fields__ if name != "pod_sets")
_unread: Final = msgspec.json.Decoder(_UnreadWorkload)
_pod_sets: Final = msgspec.json.Decoder(tuple[PodSet, ...])
_written: Final = msgspec.json.Decoder(_WrittenPodSets)


def _others(spec: WorkloadSpec) -> dict[str, Any]:
    """The fields of a spec beside its pod sets."""
    return {name: getattr(spec, name) for name in _OTHERS}


def _with_pod_sets(unread: _UnreadWorkload, pod_sets: tuple[PodSet, ...]) -> Workload:
    return Workload(
        metadata=unread.metadata,
        spec=WorkloadSpec(pod_sets=pod_sets, **_others(unread.spec)),
        status=unread.status,
    )
