"""A submission with requests that need no quota gets a note, also from other languages."""

from __future__ import annotations

import pytest

from admittance.api.reading.configuration_file import read_configuration
from admittance.events.facts import Noted
from admittance.scheduling.state.config import config_of
from admittance.workload.limits import changed_limits, limits_from, limits_of
from support.builders import a_manifest
from support.cores.stepped_cores import SteppedCores
from support.cores.stepped_scheduler import groups

HEAD = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nresources:\n"
REPLACED = "transformations: [{input: v.test/gpu, strategy: Replace, outputs: {v.test/credit: 0}}]"


@pytest.mark.parametrize(
    ("resources", "why"),
    [
        ("excludeResourcePrefixes: [v.test/]", "resources.excludeResourcePrefixes excludes it"),
        (REPLACED, "its transformation replaces it by nothing"),
        (
            "quotaCheckStrategy: IgnoreUndeclared",
            "the ClusterQueue does not cover it, and resources.quotaCheckStrategy is "
            "IgnoreUndeclared",
        ),
        ("transformations: [{input: cpu, outputs: {v.test/credit: 1}}]", ""),
    ],
)
def test_requests_without_quota_are_noted_at_the_submission(resources: str, why: str) -> None:
    configuration = read_configuration(f"{HEAD}  {resources}\n", "").configuration
    limits = limits_of(configuration)
    assert limits_from(changed_limits(limits)) == limits
    cores = SteppedCores(config_of(configuration), limits)
    cores.queue("cq", resourceGroups=groups(default="4"))
    requests = {"cpu": "1", "v.test/gpu": "2"}
    cores.submit_manifest(a_manifest("w", cores.namespace, requests=requests, queue="cq"))
    notes = [fact for fact in cores.published if isinstance(fact, Noted)]
    expected = [("NotCharged", f"No quota is charged for v.test/gpu: {why}")] if why else []
    assert [(note.reason, note.message) for note in notes] == expected
