"""A configuration file to a `Configuration`: every mistake named, every idle field told."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from admittance.api.configuration import (
    API_VERSIONS,
    FINAL_SHARE,
    GATES,
    INITIAL_SHARE,
    WITHOUT_EFFECT,
    Configuration,
    Resources,
    WaitForPodsReady,
)
from admittance.api.problems import NOT_SUPPORTED, REQUIRED, Problem, shown
from admittance.api.reading.manifest import parsed
from admittance.api.reading.objects import Reading
from admittance.api.units import BadDuration, BadQuantity, parse, seconds
from admittance.api.validation.concurrent_admission import FLAVORS_MAX
from admittance.api.validation.meta import in_range

STRATEGIES: Final = ((FINAL_SHARE,), (INITIAL_SHARE,), (FINAL_SHARE, INITIAL_SHARE))


class Read(NamedTuple):
    """``warnings``: what was read and has no effect."""

    configuration: Configuration
    warnings: tuple[str, ...]


def read_file(path: Path) -> Read:
    """The configuration in a file. Raises ManifestError, and OSError where it cannot be read."""
    return read_configuration(path.read_bytes(), str(path))


def read_configuration(text: str | bytes, source: str) -> Read:
    """The configuration in a text, one YAML or JSON document. Raises ManifestError."""
    reading = Reading(source, "")
    found = [one.value for one in parsed(text, source) if one.value is not None]
    if len(found) != 1:
        raise reading.error([Problem("", f"{len(found)} documents; a configuration is one")])
    value = found[0]
    if not isinstance(value, Mapping):
        raise reading.error([Problem("", f"{shown(value)} is no configuration")])
    configuration = reading.shaped(value, Configuration)
    problems = _problems(configuration)
    if problems:
        raise reading.error(problems)
    return Read(configuration, tuple(_warnings(value, configuration)))


def _problems(of: Configuration) -> list[Problem]:
    found: list[Problem] = []
    if of.kind != "Configuration" or of.api_version not in API_VERSIONS:
        found.append(
            Problem(
                "apiVersion",
                f"{of.api_version} {of.kind} is no configuration; one is {API_VERSIONS[0]} "
                "Configuration",
                NOT_SUPPORTED,
            )
        )
    if of.fair_sharing is not None and of.fair_sharing.preemption_strategies not in (
        (),
        *STRATEGIES,
    ):
        found.append(
            Problem(
                "fairSharing.preemptionStrategies",
                f"must be {FINAL_SHARE}, {INITIAL_SHARE}, or both in that order",
                NOT_SUPPORTED,
            )
        )
    shared = of.admission_fair_sharing
    if shared is not None:
        where = "admissionFairSharing"
        found += _duration(shared.usage_half_life_time, f"{where}.usageHalfLifeTime", least=0)
        found += _duration(
            shared.usage_sampling_interval, f"{where}.usageSamplingInterval", least=1
        )
        found += [
            Problem(f"{where}.resourceWeights[{name}]", f"{weight:g} is below 0")
            for name, weight in shared.resource_weights.items()
            if not weight >= 0
        ]
    if of.wait_for_pods_ready is not None:
        found += _waiting(of.wait_for_pods_ready)
    most = of.concurrent_admission.max_flavors
    found += in_range(most, "concurrentAdmission.maxFlavors", 1, FLAVORS_MAX)
    most = of.admission_check_retries.backoff_max_seconds
    found += in_range(most, "admissionCheckRetries.backoffMaxSeconds", 0, 86_400)
    found += _resources(of.resources)
    kept = of.object_retention_policies.workloads
    for name, length in (
        ("afterFinished", kept.after_finished),
        ("afterDeactivatedByKueue", kept.after_deactivated_by_kueue),
    ):
        if length is not None:
            found += _duration(length, f"objectRetentionPolicies.workloads.{name}", least=0)
    return found


def _waiting(of: WaitForPodsReady) -> list[Problem]:
    where = "waitForPodsReady"
    found = _duration(of.timeout, f"{where}.timeout", least=0)
    if of.recovery_timeout is not None:
        found += _duration(of.recovery_timeout, f"{where}.recoveryTimeout", least=0)
    again = of.requeuing_strategy
    where += ".requeuingStrategy"
    if again.timestamp not in ("Eviction", "Creation"):
        message = f"{shown(again.timestamp)} is neither Eviction nor Creation"
        found.append(Problem(f"{where}.timestamp", message, NOT_SUPPORTED))
    for name, number in (
        ("backoffLimitCount", again.backoff_limit_count),
        ("backoffBaseSeconds", again.backoff_base_seconds),
        ("backoffMaxSeconds", again.backoff_max_seconds),
    ):
        if number is not None and number < 0:
            found.append(Problem(f"{where}.{name}", f"{number} is below 0"))
    return found


def _resources(of: Resources) -> list[Problem]:
    found = []
    if of.quota_check_strategy not in ("BlockUndeclared", "IgnoreUndeclared"):
        message = (
            f"{shown(of.quota_check_strategy)} is neither BlockUndeclared nor IgnoreUndeclared"
        )
        found.append(Problem("resources.quotaCheckStrategy", message, NOT_SUPPORTED))
    seen: set[str] = set()
    for index, one in enumerate(of.transformations):
        where = f"resources.transformations[{index}]"
        if not one.input:
            found.append(Problem(f"{where}.input", "must be set", REQUIRED))
        elif one.input in seen:
            found.append(Problem(f"{where}.input", f"{one.input} is transformed already"))
        seen.add(one.input)
        if one.strategy not in ("", "Retain", "Replace"):
            message = f"{shown(one.strategy)} is neither Retain nor Replace"
            found.append(Problem(f"{where}.strategy", message, NOT_SUPPORTED))
        for name, quantity in one.outputs.items():
            try:
                parse(quantity)
            except (BadQuantity, TypeError) as error:
                found.append(Problem(f"{where}.outputs[{name}]", str(error)))
    return found


def _duration(text: str, where: str, *, least: int) -> list[Problem]:
    try:
        length = seconds(text)
    except BadDuration as error:
        return [Problem(where, str(error))]
    return [Problem(where, f"{text} is less than {least} s")] if length < least else []


def _warnings(value: Mapping[str, Any], of: Configuration) -> list[str]:
    found = [
        f"{name} has no effect outside a Kubernetes cluster"
        for name in WITHOUT_EFFECT
        if value.get(name) is not None
    ]
    found += [
        f"featureGates.{name} has no effect here; gates are {', '.join(GATES)}"
        for name in of.feature_gates
        if name not in GATES
    ]
    if of.object_retention_policies.workloads.after_deactivated_by_kueue is not None:
        found.append("objectRetentionPolicies: what was deactivated stays, whatever this says")
    if of.resources.device_class_mappings is not None:
        found.append("resources.deviceClassMappings has no effect outside a Kubernetes cluster")
    return found
