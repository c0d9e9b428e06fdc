"""Rules for the metadata of every object, and for label selectors, tolerations and taints."""

from __future__ import annotations

from collections.abc import Sequence

from admittance.api.fields.names import code_of, label_error, name_error
from admittance.api.fields.problems import DUPLICATE, FORBIDDEN, REQUIRED, Problem, shown
from admittance.api.kinds import KINDS
from admittance.api.meta import LabelSelector, ObjectMeta, Taint, Toleration


def object_name(name: str, field: str) -> list[Problem]:
    """The error in the name of an object."""
    error = name_error(name)
    return [Problem(field, error, code_of(error))] if error else []


def check_metadata(metadata: ObjectMeta, kind: str) -> list[Problem]:
    """The problems of the name, of a generateName (if the kind accepts one), and the namespace."""
    problems: list[Problem] = []
    row = KINDS[kind]
    if kind == "Runner" and metadata.name:
        pass  # the name is that of the runner's user, and no other Runner can be applied
    elif metadata.name:
        error = (label_error if kind == "Namespace" else name_error)(metadata.name)
        if error:
            problems.append(Problem("metadata.name", error, code_of(error)))
    elif metadata.generate_name and row.generated:
        problems += object_name(metadata.generate_name + "x", "metadata.generateName")
    else:
        problems.append(Problem("metadata.name", "must be set", REQUIRED))
    if metadata.namespace and not row.namespaced:
        message = f"must be left out: a {kind} has no namespace"
        problems.append(Problem("metadata.namespace", message, FORBIDDEN))
    elif metadata.namespace and (error := label_error(metadata.namespace)):
        problems.append(Problem("metadata.namespace", error, code_of(error)))
    return problems


def check_selector(selector: LabelSelector | None, field: str) -> list[Problem]:
    """The problems of a label selector: operators with too few or too many values."""
    problems: list[Problem] = []
    for i, term in enumerate(selector.match_expressions if selector is not None else ()):
        problems += check_values(
            term.operator, term.values, f"{field}.matchExpressions[{i}].values"
        )
    return problems


def check_values(operator: str, values: Sequence[str], field: str) -> list[Problem]:
    """The problem of an operator with too few or too many values. An unknown operator is not
    reported here but by the rule of the operator's field.
    """
    if operator in ("In", "NotIn") and not values:
        return [Problem(field, f"must be set when the operator is {operator}", REQUIRED)]
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
    """The problems of tolerations with fields that contradict each other."""
    problems: list[Problem] = []
    for i, toleration in enumerate(tolerations):
        path = f"{field}[{i}]"
        if not toleration.key and toleration.operator != "Exists":
            problems.append(Problem(f"{path}.operator", "must be Exists when the key is empty"))
        if toleration.operator == "Exists" and toleration.value:
            problems.append(Problem(f"{path}.value", "must be empty when the operator is Exists"))
        if toleration.toleration_seconds is not None and toleration.effect != "NoExecute":
            message = "must be NoExecute when tolerationSeconds is set"
            problems.append(Problem(f"{path}.effect", message))
    return problems


def check_taints(taints: tuple[Taint, ...], field: str) -> list[Problem]:
    """The problems of taints with the same key and effect."""
    problems: list[Problem] = []
    seen: set[tuple[str, str]] = set()
    for i, taint in enumerate(taints):
        if (taint.key, taint.effect) in seen:
            message = "the same key and effect are listed twice"
            problems.append(Problem(f"{field}[{i}]", message, DUPLICATE))
        seen.add((taint.key, taint.effect))
    return problems


def unchanged(old: object, new: object, field: str, when: str = "") -> list[Problem]:
    """The problem of a field that has changed and may not change."""
    return [] if old == new else [Problem(field, f"may not be changed{when}")]
