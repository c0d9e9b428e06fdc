"""Rewrites Kueue's ``concurrentAdmissionPolicy`` to ``concurrentAdmission``, the spelling here.

Kueue renamed the fields of KEP-8691 between alpha and Beta, and moved the explicit variants below
``migration.constraints``. Source: KEP-8691, sections "ClusterQueue API" and "ExplicitVariants API".
"""

from __future__ import annotations

from typing import Any, Final

from admittance.api.fields.problems import FORBIDDEN, NOT_SUPPORTED, TYPE, Problem, shown
from admittance.api.reading.conform import Plain, resolve

MODES: Final = {"TryPreferredFlavors": "UpgradeOnly", "RetainFirstAdmission": "NoMigration"}
"""Maps Kueue's names of migration modes to the names in the proposal."""

_HERE: Final = "spec.concurrentAdmission"
_THERE: Final = "spec.concurrentAdmissionPolicy"
_LIMITS: Final = {"lastAcceptableFlavorName": "minFlavor", "minTargetExplicitVariant": "minVariant"}
"""Maps fields of ``migration.constraints`` to those of ``migrationConstraints``."""


def upgrade_policy(spec: dict[str, Any], spelled: dict[str, str], problems: list[Problem]) -> None:
    """Replaces ``concurrentAdmissionPolicy`` in the spec by ``concurrentAdmission``. Adds to
    ``spelled`` the written path of each renamed field.
    """
    policy = spec.pop("concurrentAdmissionPolicy")
    if _is_null(policy):
        return
    if spec.get("concurrentAdmission") is not None:
        message = '"concurrentAdmission" says the same thing: only one of them'
        problems.append(Problem(_THERE, message, FORBIDDEN))
        return
    migration = policy.get("migration") if isinstance(policy, dict) else None
    constraints: dict[str, Any] = {"mode": "UpgradeOnly"}
    here: dict[str, Any] = {"migrationConstraints": constraints}
    spec["concurrentAdmission"] = here
    if not isinstance(policy, dict) or not isinstance(migration, dict):
        spelled[_HERE] = _THERE
        problems.append(Problem(f"{_THERE}.migration", "must be set", "Required"))
        return
    problems += _unknown(policy, {"migration"}, _THERE)
    problems += _unknown(migration, {"mode", "constraints"}, f"{_THERE}.migration")
    spelled[f"{_HERE}.migrationConstraints.mode"] = f"{_THERE}.migration.mode"
    mode = migration.get("mode")
    if mode is not None and mode != "":
        if isinstance(mode, str) and mode in MODES:
            constraints["mode"] = MODES[mode]
        else:
            message = f"{shown(str(mode))} is not one of {', '.join(MODES)}"
            problems.append(Problem(f"{_THERE}.migration.mode", message, NOT_SUPPORTED))
    _limits(migration.get("constraints"), here, spelled, problems)
    spelled[_HERE] = _THERE


def _limits(
    limits: Any, here: dict[str, Any], spelled: dict[str, str], problems: list[Problem]
) -> None:
    """Rewrites ``migration.constraints``: the worst target, and the explicit variants."""
    path = f"{_THERE}.migration.constraints"
    for old, new in _LIMITS.items():
        spelled[f"{_HERE}.migrationConstraints.{new}"] = f"{path}.{old}"
    if _is_null(limits):
        return
    if not isinstance(limits, dict):
        problems.append(Problem(path, "must be a mapping", TYPE))
        return
    problems += _unknown(limits, {*_LIMITS, "explicitVariants"}, path)
    for old, new in _LIMITS.items():
        here["migrationConstraints"][new] = limits.get(old)
    if "explicitVariants" in limits:
        variants = limits["explicitVariants"]
        if isinstance(variants, list):
            variants = [
                upgrade_variant(variant, i, f"{path}.explicitVariants", spelled, problems)
                for i, variant in enumerate(variants)
            ]
        here["explicitVariants"] = variants
        spelled[f"{_HERE}.explicitVariants"] = f"{path}.explicitVariants"


def upgrade_variant(
    variant: Any, i: int, path: str, spelled: dict[str, str], problems: list[Problem]
) -> Any:
    """The i-th explicit variant, with ``maxDeleteDelaySeconds`` renamed to ``deleteDelaySeconds``.
    ``path``: of the list, as written.
    """
    if not isinstance(variant, dict) or "maxDeleteDelaySeconds" not in variant:
        return variant
    written = f"{path}[{i}].maxDeleteDelaySeconds"
    if variant.get("deleteDelaySeconds") is not None:
        message = '"deleteDelaySeconds" says the same thing: only one of them'
        problems.append(Problem(written, message, FORBIDDEN))
    renamed = {k: v for k, v in variant.items() if k != "maxDeleteDelaySeconds"}
    renamed["deleteDelaySeconds"] = variant["maxDeleteDelaySeconds"]
    spelled[f"{_HERE}.explicitVariants[{i}].deleteDelaySeconds"] = written
    return renamed


def _is_null(value: Any) -> bool:
    return value is None or (type(value) is Plain and resolve(value) is None)


def _unknown(part: dict[str, Any], known: set[str], path: str) -> list[Problem]:
    return [Problem(f"{path}.{name}", "unknown field", "Unknown") for name in part.keys() - known]
