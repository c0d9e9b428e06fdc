"""Compares labels: selectors with labels, pods with the node labels of a flavor, and tolerations
with taints.

A pod's node selector is compared only with the label keys that a flavor has, as
`docs/spec/scheduling.md#5.2` says: a selector for another key does not exclude the flavor. A
machine must have all labels of the selector."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from admittance.api.meta import LabelSelector, Taint, Toleration
from admittance.api.pods import (
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PreferredSchedulingTerm,
)

BLOCKING_EFFECTS = frozenset({"NoSchedule", "NoExecute"})
"""The effects of taints that exclude pods without a toleration. The effect ``PreferNoSchedule``
excludes no pod."""


def selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Returns whether the selector matches the labels. A selector of None matches nothing, an empty
    selector matches everything."""
    if selector is None:
        return False
    for key, value in selector.match_labels.items():
        if labels.get(key) != value:
            return False
    return all(
        _holds(expression.key, expression.operator, expression.values, labels)
        for expression in selector.match_expressions
    )


def _holds(key: str, operator: str, values: Sequence[str], labels: Mapping[str, str]) -> bool:
    value = labels.get(key)
    match operator:
        case "In":
            return value is not None and value in values
        case "NotIn":
            return value is None or value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            try:
                here, there = int(value or ""), int(values[0])
            except (ValueError, IndexError):
                return False
            return here > there if operator == "Gt" else here < there
    return False


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Returns whether the toleration covers the taint. A toleration without an effect covers taints
    with every effect; a toleration without a key covers taints with every key."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and toleration.value == taint.value


def untolerated(
    taints: Iterable[Taint], tolerations: Iterable[Toleration], more: Iterable[Toleration] = ()
) -> Taint | None:
    """Returns the first taint of a flavor that excludes a pod with these tolerations; None: no
    taint excludes the pod. ``more``: tolerations that the flavor itself adds to the pod."""
    both = (*tolerations, *more)
    for taint in taints:
        if taint.effect in BLOCKING_EFFECTS and not any(
            tolerates(toleration, taint) for toleration in both
        ):
            return taint
    return None


def matches_node(
    labels: Mapping[str, str],
    node_selector: Mapping[str, str],
    terms: Sequence[NodeSelectorTerm] = (),
) -> bool:
    """Returns whether pods with this node selector and required node affinity may run on nodes with
    the flavor's labels.

    Keys of the node selector and the affinity that the flavor's labels do not have are ignored. An
    affinity term with only such keys matches, and then the whole affinity matches, because the
    terms of an affinity are alternatives."""
    for key, value in node_selector.items():
        label = labels.get(key)
        if label is not None and label != value:
            return False
    wanted: list[list[NodeSelectorRequirement]] = []
    for term in terms:
        known = [expression for expression in term.match_expressions if expression.key in labels]
        if not known:
            return True
        wanted.append(known)
    return not wanted or any(
        all(
            _holds(expression.key, expression.operator, expression.values, labels)
            for expression in known
        )
        for known in wanted
    )


def missing_labels(
    labels: Mapping[str, str], node_selector: Iterable[tuple[str, str]]
) -> tuple[tuple[str, str], ...]:
    """Returns the labels of the node selector that a machine with these labels lacks."""
    return tuple([item for item in node_selector if labels.get(item[0]) != item[1]])


def affinity_matches(
    name: str, labels: Mapping[str, str], terms: Sequence[NodeSelectorTerm] | None
) -> bool:
    """Returns whether a machine of that name with these labels matches the required node affinity.
    ``terms`` None: no affinity is required. As in Kubernetes an empty term matches no machine, and
    so do no terms."""
    return terms is None or any(_term_matches(name, labels, term) for term in terms)


def preference(
    name: str, labels: Mapping[str, str], terms: Iterable[PreferredSchedulingTerm]
) -> int:
    """Returns how well a machine of that name with these labels suits the preferred node affinity:
    as in Kubernetes the sum of the weights of the terms that it matches."""
    return sum(term.weight for term in terms if _term_matches(name, labels, term.preference))


def _term_matches(name: str, labels: Mapping[str, str], term: NodeSelectorTerm) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False
    return all(
        _holds(expression.key, expression.operator, expression.values, labels)
        for expression in term.match_expressions
    ) and all(
        _holds(field.key, field.operator, field.values, {"metadata.name": name})
        for field in term.match_fields
    )
