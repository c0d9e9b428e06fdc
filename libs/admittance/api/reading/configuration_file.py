"""Reads a configuration file: all mistakes at once, and a warning for each field without effect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from admittance.api.configuration import (
    API_VERSIONS,
    FINAL_SHARE,
    GATES,
    INITIAL_SHARE,
    Configuration,
)
from admittance.api.effects.configuration import CONFIGURATION
from admittance.api.effects.walk import warnings_by
from admittance.api.fields.names import check_unique
from admittance.api.fields.problems import NOT_SUPPORTED, Problem, shown
from admittance.api.fields.units import seconds
from admittance.api.reading.manifest import parsed
from admittance.api.reading.objects import ManifestReader
from admittance.api.reading.quota_settings import empty_prefixes, quota_warnings
from admittance.api.validation.field_rules import field_problems

RETENTION_MIN: Final = 60
"""The fewest seconds for which a finished workload is kept."""

STRATEGIES: Final = ((FINAL_SHARE,), (INITIAL_SHARE,), (FINAL_SHARE, INITIAL_SHARE))


class ConfigurationFile(NamedTuple):
    """A configuration as read. ``warnings``: the sentences of `configuration_warnings`."""

    configuration: Configuration
    warnings: tuple[str, ...]


def read_file(path: Path) -> ConfigurationFile:
    """The configuration in a file. Raises ManifestError for a wrong configuration, and OSError if
    the file cannot be read.
    """
    return read_configuration(path.read_bytes(), str(path))


def read_configuration(text: str | bytes, source: str) -> ConfigurationFile:
    """The configuration in a text, one YAML or JSON document. Raises ManifestError."""
    reading = ManifestReader(source, "")
    values = [document.value for document in parsed(text, source) if document.value is not None]
    if len(values) != 1:
        raise reading.error(
            [Problem("", f"the file has {len(values)} documents; a configuration file has one")]
        )
    value = values[0]
    if not isinstance(value, Mapping):
        raise reading.error([Problem("", f"{shown(value)} is not a configuration")])
    configuration = reading.shaped(value, Configuration)
    problems = _problems(configuration)
    if problems:
        raise reading.error(problems)
    return ConfigurationFile(configuration, tuple(configuration_warnings(configuration)))


def _problems(of: Configuration) -> list[Problem]:
    problems = field_problems(of)
    if of.kind != "Configuration" or of.api_version not in API_VERSIONS:
        message = f"must be {API_VERSIONS[0]} of kind Configuration, not {of.api_version} {of.kind}"
        problems.append(Problem("apiVersion", message, NOT_SUPPORTED))
    sharing = of.fair_sharing
    if sharing is not None and sharing.preemption_strategies not in ((), *STRATEGIES):
        message = f"must be {FINAL_SHARE}, {INITIAL_SHARE}, or both in that order"
        problems.append(Problem("fairSharing.preemptionStrategies", message, NOT_SUPPORTED))
    problems += empty_prefixes(of.resources)
    inputs = [transformation.input for transformation in of.resources.transformations]
    return problems + check_unique(inputs, "resources.transformations", ".input")


def configuration_warnings(of: Configuration) -> list[str]:
    """A sentence for each field without effect, and for settings that leave requests without
    quota."""
    gates = [
        f"featureGates.{name} has no effect here; gates are {', '.join(GATES)}"
        for name in of.feature_gates
        if name not in GATES
    ]
    return [
        *warnings_by(CONFIGURATION, of),
        *gates,
        *_short_retention(of),
        *quota_warnings(of.resources),
    ]


def _short_retention(of: Configuration) -> Iterator[str]:
    kept = of.object_retention_policies.workloads.after_finished
    if kept is not None and seconds(kept) < RETENTION_MIN:
        field = "objectRetentionPolicies.workloads.afterFinished"
        yield f"{field}: {kept} counts as {RETENTION_MIN}s"
