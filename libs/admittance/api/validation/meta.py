"""Rules that hold for metadata of every object, and for what selects and tolerates."""

from __future__ import annotations

from collections.abc import Mapping

from admittance.api.limits import INT32_MAX, INT32_MIN, OPERATORS
from admittance.api.meta import LabelSelector, ObjectMeta, Taint, Toleration
from admittance.api.names import (
    check_annotations,
    check_labels,
    code_of,
    label,
    label_value,
    qualified,
    subdomain,
)
from admittance.api.problems import (
    DUPLICATE,
    FORBIDDEN,
    INVALID,
    REQUIRED,
    TOO_MANY,
    Problem,
    shown,
)


def at_most(count: int, limit: int, field: str, what: str) -> list[Problem]:
    if count <= limit:
        return []
    return [Problem(field, f"has {count} {what}, at most {limit} are allowed", TOO_MANY)]


def in_range(
    value: int | None, field: str, least: int = INT32_MIN, most: int = INT32_MAX
) -> list[Problem]:
    """value lies between least and most, both included; None is fine."""
    if value is None or least <= value <= most:
        return []
    if value < least and least in (0, 1):
        return [Problem(field, f"must be at least {least}, not {value}")]
    return [Problem(field, f"must be from {least} to {most}, not {value}")]


def object_name(name: str, field: str) -> list[Problem]:
    """name is the name of an object."""
    complaint = subdomain(name)
    return [Problem(field, complaint, code_of(complaint))] if complaint else []


def dns_label(name: str, field: str) -> list[Problem]:
    complaint = label(name)
    return [Problem(field, complaint, code_of(complaint))] if complaint else []


def check_metadata(
    metadata: ObjectMeta, *, namespaced: bool, kind: str, generated: bool = False
) -> list[Problem]:
    """Name, namespace, labels and annotations. ``generated``: a generateName will do."""
    found: list[Problem] = []
    if metadata.name:
        check = dns_label if kind == "Namespace" else object_name
        found += check(metadata.name, "metadata.name")
    elif metadata.generate_name and generated:
        found += object_name(metadata.generate_name + "x", "metadata.generateName")
    else:
        found.append(Problem("metadata.name", "must be set", REQUIRED))
    if metadata.namespace:
        if namespaced:
            found += dns_label(metadata.namespace, "metadata.namespace")
        else:
            message = f"must be left out: a {kind} has no namespace"
            found.append(Problem("metadata.namespace", message, FORBIDDEN))
    if metadata.labels:
        found += check_labels(metadata.labels, "metadata.labels")
    if metadata.annotations:
        found += check_annotations(metadata.annotations, "metadata.annotations")
    return found


def check_selector(selector: LabelSelector | None, field: str) -> list[Problem]:
    """Keys, operators and values of a label selector."""
    if selector is None:
        return []
    found = check_labels(selector.match_labels, f"{field}.matchLabels")
    for i, term in enumerate(selector.match_expressions):
        path = f"{field}.matchExpressions[{i}]"
        if complaint := qualified(term.key):
            found.append(Problem(f"{path}.key", complaint))
        found += check_values(term.operator, term.values, path, OPERATORS)
    return found


def check_values(
    operator: str, values: tuple[str, ...], path: str, operators: tuple[str, ...]
) -> list[Problem]:
    """Whether operator is known and has the values that it needs."""
    if operator not in operators:
        return []  # Told of where the words are stated.
    field = f"{path}.values"
    if operator in ("In", "NotIn"):
        if not values:
            return [Problem(field, f"must be set when the operator is {operator}", REQUIRED)]
        return [Problem(field, complaint) for one in values if (complaint := label_value(one))]
    if operator in ("Exists", "DoesNotExist") and values:
        message = f"must be left out when the operator is {operator}"
        return [Problem(field, message, FORBIDDEN)]
    if operator in ("Gt", "Lt"):
        if len(values) != 1:
            return [Problem(field, f"must be one number when the operator is {operator}", REQUIRED)]
        if not values[0].lstrip("-").isdecimal():
            return [Problem(field, f"{shown(values[0])} is not a whole number")]
    return []


def check_tolerations(tolerations: tuple[Toleration, ...], field: str) -> list[Problem]:
    """What a pod or a flavor tolerates."""
    found: list[Problem] = []
    for i, one in enumerate(tolerations):
        path = f"{field}[{i}]"
        if one.key and (complaint := qualified(one.key)):
            found.append(Problem(f"{path}.key", complaint))
        if not one.key and one.operator != "Exists":
            found.append(
                Problem(f"{path}.operator", "must be Exists when the key is empty", INVALID)
            )
        if one.operator == "Exists" and one.value:
            found.append(Problem(f"{path}.value", "must be empty when the operator is Exists"))
        elif one.value and (complaint := label_value(one.value)):
            found.append(Problem(f"{path}.value", complaint))
        if one.toleration_seconds is not None and one.effect != "NoExecute":
            found.append(
                Problem(f"{path}.effect", "must be NoExecute when tolerationSeconds is set")
            )
    return found


def check_taints(taints: tuple[Taint, ...], field: str) -> list[Problem]:
    """Taints of a flavor's nodes: known effects, and each pair of key and effect once."""
    found: list[Problem] = []
    seen: set[tuple[str, str]] = set()
    for i, taint in enumerate(taints):
        path = f"{field}[{i}]"
        if complaint := qualified(taint.key):
            found.append(Problem(f"{path}.key", complaint))
        if complaint := label_value(taint.value):
            found.append(Problem(f"{path}.value", complaint))
        if (taint.key, taint.effect) in seen:
            message = "the same key and effect are there twice"
            found.append(Problem(path, message, DUPLICATE))
        seen.add((taint.key, taint.effect))
    return found


def unchanged(old: object, new: object, field: str, when: str = "") -> list[Problem]:
    """The field may not change."""
    return [] if old == new else [Problem(field, f"may not be changed{when}")]


def check_node_labels(labels: Mapping[str, str], field: str) -> list[Problem]:
    return check_labels(labels, field) if labels else []
