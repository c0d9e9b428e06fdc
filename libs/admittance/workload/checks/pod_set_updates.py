"""Merges what flavors and checks add to the pods of a workload. docs/spec/lifecycle.md#2.6.

An addition never changes an existing value. Two different values of one key, from the pod template,
a flavor or a check, are a conflict. Conflicts are found before the workload is admitted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from admittance.api.workload import Kept
from admittance.events.shapes import PodSetUpdate
from admittance.workload.stored import StoredWorkload
from admittance.workload.transition_context import FlavorParts


class _Meta(Kept, frozen=True, kw_only=True):
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)


class _Spec(Kept, frozen=True, kw_only=True):
    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    tolerations: tuple[dict[str, Any], ...] = ()


class _Template(Kept, frozen=True, kw_only=True):
    metadata: _Meta = _Meta()
    spec: _Spec = _Spec()


class _PodSet(Kept, frozen=True, kw_only=True):
    name: str = "main"
    template: _Template = _Template()


class _PodSets(Kept, frozen=True, kw_only=True):
    pod_sets: tuple[_PodSet, ...] = ()


_pod_sets = msgspec.json.Decoder(_PodSets)


class Added(NamedTuple):
    """The labels, annotations, node selector and tolerations that are added to the template of one
    pod set."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    node_selector: Mapping[str, str]
    tolerations: tuple[dict[str, Any], ...]


_NOTHING: Final = Added({}, {}, {}, ())


class Conflict(NamedTuple):
    """A key with two different values. ``check``: of the checks that set the key, the last one by
    name."""

    check: str
    message: str


class _Value(NamedTuple):
    value: str
    source: str
    check: str = ""


class _Keys:
    """The keys of one kind in one pod set, with the first source of each key and the sources that
    conflict with it."""

    def __init__(self, kind: str, pod_set: str, template: Mapping[str, str]) -> None:
        self._what = kind, pod_set
        self._set = {key: _Value(value, "the pod template") for key, value in template.items()}
        self._setters: dict[str, list[str]] = {}
        self._clashes: list[tuple[str, _Value, _Value]] = []
        self.added: dict[str, str] = {}

    def put(self, pairs: Mapping[str, str], source: str, check: str = "") -> None:
        for key, value in sorted(pairs.items()):
            if check:
                self._setters.setdefault(key, []).append(check)
            known = self._set.setdefault(key, _Value(value, source, check))
            if known.source == source and known.value == value:
                self.added[key] = value
            elif check and known.value != value:
                self._clashes.append((key, known, _Value(value, source, check)))

    def conflicts(self) -> Iterator[Conflict]:
        kind, pod_set = self._what
        for key, first, other in self._clashes:
            yield Conflict(
                max(self._setters[key]),
                f"podSetUpdates contradict each other: {kind} {key!r} of pod set {pod_set!r} is "
                f"{first.value!r} by {first.source} and {other.value!r} by {other.source}",
            )


def merged_additions(
    workload: StoredWorkload, flavor: Callable[[str], FlavorParts]
) -> tuple[dict[str, Added], tuple[Conflict, ...]]:
    """Returns the additions to each assigned pod set, by its name, and the conflicts.

    Of conflicting values the first one is used. The result is empty for a workload without an
    admission.
    """
    admission = workload.status.admission
    if admission is None:
        return {}, ()
    flavors = {name for place in admission.pod_set_assignments for name in place.flavors.values()}
    adds = any(parts.node_labels or parts.tolerations for parts in map(flavor, flavors))
    if not adds and not any(row.pod_set_updates for row in workload.status.admission_checks):
        return {place.name: _NOTHING for place in admission.pod_set_assignments}, ()
    templates = {
        pod_set.name: pod_set.template for pod_set in _pod_sets.decode(workload.spec).pod_sets
    }
    additions: dict[str, Added] = {}
    conflicts: list[Conflict] = []
    for place in admission.pod_set_assignments:
        template = templates.get(place.name, _Template())
        labels = _Keys("label", place.name, template.metadata.labels)
        annotations = _Keys("annotation", place.name, template.metadata.annotations)
        selector = _Keys("nodeSelector", place.name, template.spec.node_selector)
        tolerations: list[dict[str, Any]] = []
        for name in sorted(set(place.flavors.values())):
            parts = flavor(name)
            selector.put(parts.node_labels, f"flavor {name!r}")
            _unite(
                tolerations, [msgspec.to_builtins(toleration) for toleration in parts.tolerations]
            )
        for check, update in _updates(workload, place.name):
            source = f"check {check!r}"
            labels.put(update.labels, source, check)
            annotations.put(update.annotations, source, check)
            selector.put(update.node_selector, source, check)
            _unite(tolerations, update.tolerations)
        additions[place.name] = Added(
            labels.added, annotations.added, selector.added, tuple(tolerations)
        )
        for keys in (labels, annotations, selector):
            conflicts += keys.conflicts()
    return additions, tuple(conflicts)


def _updates(workload: StoredWorkload, pod_set: str) -> Iterator[tuple[str, PodSetUpdate]]:
    for row in sorted(workload.status.admission_checks, key=lambda row: row.name):
        for written in row.pod_set_updates:
            update = msgspec.convert(msgspec.to_builtins(written), PodSetUpdate)
            if update.name == pod_set:
                yield row.name, update


def _unite(present: list[dict[str, Any]], more: Any) -> None:
    present += [item for item in more if item not in present]


def pod_set_names(workload: StoredWorkload) -> tuple[str, ...]:
    """The names of the workload's pod sets."""
    return tuple(pod_set.name for pod_set in _pod_sets.decode(workload.spec).pod_sets)
