"""Rewrites older and other spellings of fields to the spellings of the Structs.

Kueue's ``v1beta2`` renamed some fields of ``v1beta1`` (and of Cohort's ``v1alpha1``), and the
design proposals use some other names than Kueue. All spellings are read. A field in two spellings
at once is an error.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from admittance.api.kinds import GROUP, V1ALPHA1, V1BETA1, V1BETA2
from admittance.api.problems import FORBIDDEN, NOT_SUPPORTED, TYPE, Problem, shown
from admittance.api.reading.conform import Plain, resolve

MODES: Final = {"TryPreferredFlavors": "UpgradeOnly", "RetainFirstAdmission": "NoMigration"}
"""Maps Kueue's names of migration modes to the names in the proposal."""

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
    if api_version != V1BETA2 and kind not in ("Job", "Namespace"):
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
        _policy(spec, done)


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
            flavors = [dict(one) if isinstance(one, dict) else one for one in group["flavors"]]
            for j, flavor in enumerate(flavors):
                if isinstance(flavor, dict):
                    path = f"spec.resourceGroups[{i}].flavors[{j}]"
                    _rename(flavor, "admissionchecks", "admissionChecks", path, done)
            renewed.append({**group, "flavors": flavors})
        else:
            renewed.append(group)
    spec["resourceGroups"] = renewed


def _unknown_in(part: dict[str, Any], known: set[str], path: str, done: Upgraded) -> None:
    for name in part.keys() - known:
        done.problems.append(Problem(f"{path}.{name}", "unknown field", "Unknown"))


def _policy(spec: dict[str, Any], done: Upgraded) -> None:
    """Rewrites ``concurrentAdmissionPolicy``, Kueue's spelling of ``concurrentAdmission``."""
    path = "spec.concurrentAdmissionPolicy"
    policy = spec.pop("concurrentAdmissionPolicy")
    if policy is None or (type(policy) is Plain and policy in ("", "~", "null")):
        return
    if spec.get("concurrentAdmission") is not None:
        done.problems.append(
            Problem(path, '"concurrentAdmission" says the same thing: only one of them', FORBIDDEN)
        )
        return
    constraints: dict[str, Any] = {"mode": "UpgradeOnly"}
    spec["concurrentAdmission"] = {"migrationConstraints": constraints}
    done.spelled["spec.concurrentAdmission.migrationConstraints.mode"] = f"{path}.migration.mode"
    done.spelled["spec.concurrentAdmission.migrationConstraints.minFlavor"] = (
        f"{path}.migration.constraints.lastAcceptableFlavorName"
    )
    done.spelled["spec.concurrentAdmission"] = path
    migration = policy.get("migration") if isinstance(policy, dict) else None
    if not isinstance(policy, dict) or not isinstance(migration, dict):
        done.problems.append(Problem(f"{path}.migration", "must be set", "Required"))
        return
    _unknown_in(policy, {"migration"}, path, done)
    _unknown_in(migration, {"mode", "constraints"}, f"{path}.migration", done)
    mode = migration.get("mode")
    if mode is not None and mode != "":
        if not isinstance(mode, str) or mode not in MODES:
            done.problems.append(
                Problem(
                    f"{path}.migration.mode",
                    f"{shown(str(mode))} is not one of {', '.join(MODES)}",
                    NOT_SUPPORTED,
                )
            )
        else:
            constraints["mode"] = MODES[mode]
    limits = migration.get("constraints")
    if isinstance(limits, dict):
        _unknown_in(limits, {"lastAcceptableFlavorName"}, f"{path}.migration.constraints", done)
        constraints["minFlavor"] = limits.get("lastAcceptableFlavorName")
    elif limits is not None and not (type(limits) is Plain and resolve(limits) is None):
        field = f"{path}.migration.constraints"
        done.problems.append(Problem(field, "must be a mapping", TYPE))


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
