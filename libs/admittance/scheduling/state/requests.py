"""What workloads request. Workloads with equal requests share one `RequestShape`, so that the
scheduler keeps memory and results of scans per shape, not per workload. Source:
`docs/spec/scheduling.md#1.6, #3.8`.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from hashlib import blake2b
from sys import intern
from typing import Any, Final, NamedTuple
from weakref import WeakValueDictionary

import msgspec

from admittance.api import pod_requests as spec_needs
from admittance.api.meta import Toleration
from admittance.api.pod_requests import ResourceTransformation, transformed, uncharged
from admittance.api.pods import NodeSelectorTerm
from admittance.quota.cell import times

_CACHE_MAX: Final = 8_192
"""How many shapes are found by the bytes of their pod sets."""
_CACHED_BYTES_MAX: Final = 32 * 1024 * 1024
"""The most bytes of these pod sets together. The shape of a large pod set may be as large, for
example if it has thousands of tolerations."""


class PodSetRequests(msgspec.Struct, frozen=True, gc=False):
    """What one pod set of a workload requests, and the constraints on its nodes.

    ``requests``: each resource with the amount that one pod requests, in accounting units.
    ``terms``: the alternative terms of the required node affinity; empty: the pod set requires no
    affinity.
    """

    name: str
    count: int
    min_count: int | None
    requests: tuple[tuple[str, int], ...]
    node_selector: tuple[tuple[str, str], ...]
    terms: tuple[NodeSelectorTerm, ...]
    tolerations: tuple[Toleration, ...]


class RequestShape:
    """What a workload requests. Workloads with equal requests have the same shape object.

    ``allowed``: the flavors that may be assigned to the workload; None: all flavors. ``totals``:
    for each pod set the amount of each resource that all its pods request, limited to 64 bits.
    ``is_flexible``: the workload may start with fewer pods.
    """

    __slots__ = ("__weakref__", "allowed", "is_flexible", "pod_sets", "totals")

    def __init__(
        self, pod_sets: tuple[PodSetRequests, ...], allowed: frozenset[str] | None
    ) -> None:
        self.allowed = allowed
        self.pod_sets = pod_sets
        self.totals = tuple(
            [(resource, times(amount, ps.count)) for resource, amount in ps.requests]
            for ps in pod_sets
        )
        self.is_flexible = any(
            ps.min_count is not None and ps.min_count < ps.count for ps in pod_sets
        )

    def scaled(self, counts: Sequence[int]) -> RequestShape:
        """Returns the shape with the numbers of pods in ``counts``, one for each pod set."""
        pod_sets = tuple(
            msgspec.structs.replace(ps, count=count)
            for ps, count in zip(self.pod_sets, counts, strict=True)
        )
        return RequestShape(pod_sets, self.allowed)

    def fewest(self) -> RequestShape:
        """Returns the shape with the fewest pods with which the workload may start."""
        if not self.is_flexible:
            return self
        return self.scaled(
            [
                ps.count if ps.min_count is None else min(ps.min_count, ps.count)
                for ps in self.pod_sets
            ]
        )


class Needs(NamedTuple):
    """The fields that the scheduler reads from a workload's spec. ``gates``: the preemption gates
    of the workload, open or closed. ``priority_class``: its WorkloadPriorityClass; "": none.
    ``max_seconds``: its maximumExecutionTimeSeconds. ``leased``: a program holds its quota by a
    lease."""

    queue: str
    priority: int
    active: bool
    shape: RequestShape
    role: str
    gates: tuple[str, ...] = ()
    priority_class: str = ""
    max_seconds: int | None = None
    leased: bool = False


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base class of the parts of a workload's spec that the scheduler reads. Fields of the spec
    that the subclasses do not declare are skipped.
    """


class _Constraints(_Part, frozen=True, kw_only=True):
    allowed_resource_flavors: tuple[str, ...] | None = None


class _Gate(_Part, frozen=True, kw_only=True):
    name: str = ""


class _ClassRef(_Part, frozen=True, kw_only=True):
    kind: str = ""
    name: str = ""


class _Head(_Part, frozen=True, kw_only=True):
    pod_sets: msgspec.Raw = msgspec.Raw(b"[]")
    queue_name: str = ""
    priority: int | None = None
    active: bool = True
    admission_constraints: _Constraints | None = None
    role: str = "regular"
    preemption_gates: tuple[_Gate, ...] = ()
    priority_class_ref: _ClassRef | None = None
    maximum_execution_time_seconds: int | None = None
    lease_duration_seconds: int | None = None


_head = msgspec.json.Decoder(_Head)


class Shapes:
    """The shapes of workloads in use, one object for each shape.

    ``exclude``: prefixes of resource names; resources with a name that begins with one of these
    prefixes need no quota. ``transformations``: resources that count as other resources.
    """

    def __init__(
        self, exclude: Sequence[str] = (), transformations: Sequence[ResourceTransformation] = ()
    ) -> None:
        self._exclude = tuple(exclude)
        self._transformations = tuple(transformations)
        self._interned: WeakValueDictionary[Any, RequestShape] = WeakValueDictionary()
        self._read: dict[tuple[bytes, frozenset[str] | None], RequestShape] = {}
        self._read_bytes = 0

    def needs(self, spec: bytes | msgspec.Raw, allowed: frozenset[str] | None = None) -> Needs:
        """Returns the fields of a workload's spec that the scheduler reads. ``allowed``: the
        flavors that an annotation of the workload allows; None: all flavors.

        Pod sets with the same bytes as in an earlier spec are not decoded again. Raises
        msgspec.MsgspecError or BadQuantity if ``spec`` is not a valid spec.
        """
        head = _head.decode(spec)
        constraints = head.admission_constraints
        if constraints is not None and constraints.allowed_resource_flavors is not None:
            allowed = frozenset(constraints.allowed_resource_flavors)
        key = blake2b(head.pod_sets, digest_size=16).digest(), allowed
        shape = self._read.get(key)
        if shape is None:
            length = len(head.pod_sets)
            if len(self._read) >= _CACHE_MAX or self._read_bytes + length > _CACHED_BYTES_MAX:
                self._read.clear()
                self._read_bytes = 0
            self._read_bytes += length
            shape = self._read[key] = self._shape(bytes(head.pod_sets), allowed)
        gates = tuple([intern(gate.name) for gate in head.preemption_gates])
        priority = head.priority or 0
        ref = head.priority_class_ref
        of_class = ""
        if ref is not None and ref.kind in ("", "WorkloadPriorityClass"):
            of_class = intern(ref.name)
        return Needs(
            head.queue_name,
            priority,
            head.active,
            shape,
            head.role,
            gates,
            of_class,
            head.maximum_execution_time_seconds,
            head.lease_duration_seconds is not None,
        )

    def uncharged(
        self, spec: bytes | msgspec.Raw, covered: Container[str] | None
    ) -> dict[str, str]:
        """Returns each resource that a pod of the spec requests and for which no quota is charged,
        with the reason. ``covered``: the only resources that need quota; None: all. Raises as
        `needs`.
        """
        if not self._exclude and not self._transformations and covered is None:
            return {}
        free: dict[str, str] = {}
        for ps in spec_needs.needs(spec).pod_sets:
            free |= uncharged(ps.requests, self._exclude, self._transformations, covered)
        return free

    def reduced(self, shape: RequestShape, reclaimable: Mapping[str, int]) -> RequestShape:
        """Returns the shape without the reclaimable pods."""
        pod_sets = tuple(
            msgspec.structs.replace(ps, count=max(0, ps.count - reclaimable.get(ps.name, 0)))
            for ps in shape.pod_sets
        )
        return self._intern(pod_sets, shape.allowed)

    def _shape(self, pod_sets: bytes, allowed: frozenset[str] | None) -> RequestShape:
        read = spec_needs.needs(b'{"podSets":' + pod_sets + b"}")
        return self._intern(
            tuple(
                PodSetRequests(
                    ps.name,
                    ps.count,
                    ps.min_count,
                    self._requests(ps.requests),
                    tuple(sorted(ps.node_selector.items())),
                    ps.affinity or (),
                    ps.tolerations,
                )
                for ps in read.pod_sets
            ),
            allowed,
        )

    def _requests(self, requests: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
        counted = {
            resource: amount
            for resource, amount in requests.items()
            if not resource.startswith(self._exclude)
        }
        if self._transformations:
            counted = transformed(counted, self._transformations)
        return tuple((resource, max(0, amount)) for resource, amount in sorted(counted.items()))

    def _intern(
        self, pod_sets: tuple[PodSetRequests, ...], allowed: frozenset[str] | None
    ) -> RequestShape:
        key = (pod_sets, allowed)
        shape = self._interned.get(key)
        if shape is None:
            shape = self._interned[key] = RequestShape(pod_sets, allowed)
        return shape
