"""Rewrites older and other spellings of fields to the spellings of the Structs.

Kueue's ``v1beta2`` renamed some fields of ``v1beta1`` (and of Cohort's ``v1alpha1``), and the
design proposals use some other names than Kueue. All spellings are read. A field in two spellings
at once is an error.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from admittance.api.fields.problems import FORBIDDEN, NOT_SUPPORTED, Problem, shown
from admittance.api.kinds import GROUP, V1ALPHA1, V1BETA1, V1BETA2
from admittance.api.reading.upgrade_policy import upgrade_policy, upgrade_variant

_SOURCES: Final = {
    "kueue.x-k8s.io/workloadpriorityclass": (GROUP, "WorkloadPriorityClass"),
    "scheduling.k8s.io/priorityclass": ("scheduling.k8s.io", "PriorityClass"),
}


class Upgraded(NamedTuple):
    """A rewritten manifest. ``spelled``: maps the path of a field in the Struct to the field's path
    as written in the manifest.
    """

    value: dict[str, Any]
    spelled: dict[str, str]
    warnings: list[str]
    problems: list[Problem]

    def as_written(self, problem: Problem) -> Problem:
        """The problem, with its field spelled as in the manifest."""
        for path, written in self.spelled.items():
            rest = problem.field[len(path) :]
            if problem.field.startswith(path) and rest[:1] in ("", ".", "["):
                return problem._replace(field=written + rest)
        return problem


def upgrade(value: dict[str, Any], api_version: str, kind: str) -> Upgraded:
    """A copy of the manifest with the names and values of older versions replaced by those of the
    Structs."""
    done = Upgraded(dict(value), {}, [], [])
    old = api_version in (V1BETA1, V1ALPHA1)
    if old:
        done.value["apiVersion"] = V1BETA2
    spec = value.get("spec")
    if not isinstance(spec, dict):
        return done
    spec = dict(spec)
    done.value["spec"] = spec
    match kind:
        case "ClusterQueue":
            _cluster_queue(spec, old, done)
        case "Cohort" if old:
            _rename(spec, "parent", "parentName", "spec", done)
        case "AdmissionCheck" if old:
            _no_delay(spec, done)
        case "Workload" if old:
            _priority_class(spec, done)
    return done


def _rename(part: dict[str, Any], old: str, new: str, path: str, done: Upgraded) -> None:
    """Renames a field; adds a problem if both spellings are present."""
    if old not in part:
        return
    if part.get(new) is not None:
        done.problems.append(
            Problem(f"{path}.{old}", f'"{new}" says the same thing: only one of them', FORBIDDEN)
        )
    part[new] = part.pop(old)
    done.spelled[f"{path}.{new}"] = f"{path}.{old}"


def _cluster_queue(spec: dict[str, Any], old: bool, done: Upgraded) -> None:
    if old:
        _rename(spec, "cohort", "cohortName", "spec", done)
        _fungibility(spec, done)
    _rename(spec, "admissionchecks", "admissionChecks", "spec", done)
    _flavor_checks(spec, done)
    if "concurrentAdmissionPolicy" in spec:
        upgrade_policy(spec, done.spelled, done.problems)
    else:
        _explicit_variants(spec, done)


def _explicit_variants(spec: dict[str, Any], done: Upgraded) -> None:
    """Renames ``maxDeleteDelaySeconds``, Kueue's name since KEP-8691 became Beta."""
    given = spec.get("concurrentAdmission")
    if isinstance(given, dict) and isinstance(given.get("explicitVariants"), list):
        path = "spec.concurrentAdmission.explicitVariants"
        renamed = [
            upgrade_variant(variant, i, path, done.spelled, done.problems)
            for i, variant in enumerate(given["explicitVariants"])
        ]
        spec["concurrentAdmission"] = {**given, "explicitVariants": renamed}


def _fungibility(spec: dict[str, Any], done: Upgraded) -> None:
    given = spec.get("flavorFungibility")
    if not isinstance(given, dict):
        return
    given = dict(given)
    spec["flavorFungibility"] = given
    for field, word in (("whenCanBorrow", "Borrow"), ("whenCanPreempt", "Preempt")):
        if given.get(field) == word:
            given[field] = "MayStopSearch"
            done.warnings.append(
                f"spec.flavorFungibility.{field}: {word} is deprecated; it means MayStopSearch"
            )


def _flavor_checks(spec: dict[str, Any], done: Upgraded) -> None:
    """Renames ``admissionchecks``, the proposal's spelling of a flavor's list of checks."""
    groups = spec.get("resourceGroups")
    if not isinstance(groups, list):
        return
    renewed = []
    for i, group in enumerate(groups):
        if isinstance(group, dict) and isinstance(group.get("flavors"), list):
            flavors = [
                dict(flavor) if isinstance(flavor, dict) else flavor for flavor in group["flavors"]
            ]
            for j, flavor in enumerate(flavors):
                if isinstance(flavor, dict):
                    path = f"spec.resourceGroups[{i}].flavors[{j}]"
                    _rename(flavor, "admissionchecks", "admissionChecks", path, done)
            renewed.append({**group, "flavors": flavors})
        else:
            renewed.append(group)
    spec["resourceGroups"] = renewed


def _no_delay(spec: dict[str, Any], done: Upgraded) -> None:
    if "retryDelayMinutes" in spec:
        del spec["retryDelayMinutes"]
        done.warnings.append(
            "spec.retryDelayMinutes is deprecated and has no effect: a delay comes from the "
            "check's verdict or from spec.retry"
        )


def _priority_class(spec: dict[str, Any], done: Upgraded) -> None:
    name = spec.pop("priorityClassName", None)
    source = spec.pop("priorityClassSource", None)
    if name in (None, "") and source in (None, ""):
        return
    if spec.get("priorityClassRef") is not None:
        done.problems.append(
            Problem(
                "spec.priorityClassName",
                '"priorityClassRef" says the same thing: only one of them',
                FORBIDDEN,
            )
        )
    elif source in (None, ""):
        done.warnings.append("spec.priorityClassName has no effect without priorityClassSource")
    elif not isinstance(source, str) or source not in _SOURCES:
        done.problems.append(
            Problem(
                "spec.priorityClassSource",
                f"{shown(str(source))} is not one of {', '.join(_SOURCES)}",
                NOT_SUPPORTED,
            )
        )
    else:
        group, kind = _SOURCES[source]
        spec["priorityClassRef"] = {"group": group, "kind": kind, "name": name}
        done.spelled["spec.priorityClassRef.name"] = "spec.priorityClassName"
        done.spelled["spec.priorityClassRef"] = "spec.priorityClassName"
