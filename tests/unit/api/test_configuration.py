"""The configuration file of a deployment: Kueue's shape, every mistake named."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from admittance.api.configuration import GATES
from admittance.api.fields.problems import ManifestError
from admittance.api.reading.configuration_file import read_configuration
from admittance.scheduling.state.config import Config, config_of

TABLE = Path(__file__).parents[4] / "shared/conformance/defaults/TestSetDefaults_Configuration.json"
HEAD = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"


def config(text: str) -> Config:
    return config_of(read_configuration(HEAD + text, "config.yaml").configuration)


def test_an_empty_configuration_changes_nothing() -> None:
    assert config("") == Config()


def test_fair_sharing_is_on_when_the_section_exists() -> None:
    fair = config("fairSharing: {}").fair_sharing
    assert fair is not None
    assert fair.strategies == ("LessThanOrEqualToFinalShare", "LessThanInitialShare")


def test_the_older_version_can_disable_the_section() -> None:
    text = HEAD.replace("v1beta2", "v1beta1") + "fairSharing: {enable: false}"
    assert config_of(read_configuration(text, "").configuration).fair_sharing is None


def test_a_single_strategy_replaces_the_default_pair() -> None:
    fair = config("fairSharing: {preemptionStrategies: [LessThanInitialShare]}").fair_sharing
    assert fair is not None
    assert fair.strategies == ("LessThanInitialShare",)


def test_weights_and_half_life_of_usage_are_read() -> None:
    usage = config(
        "admissionFairSharing: {usageHalfLifeTime: 1h30m, usageSamplingInterval: 90s,"
        " resourceWeights: {cpu: 2.5, memory: 0}}"
    ).admission_fair_sharing
    assert usage is not None
    assert usage.usage_half_life_time == timedelta(minutes=90)
    assert usage.usage_sampling_interval == timedelta(seconds=90)
    assert usage.resource_weights == {"cpu": 2.5, "memory": 0.0}


def test_a_feature_gate_disables_its_feature() -> None:
    text = "admissionFairSharing: {}\nfeatureGates: {AdmissionFairSharing: false}"
    assert config(text).admission_fair_sharing is None
    assert not config("featureGates: {PartialAdmission: false}").partial_admission


def test_the_timestamp_of_requeuing_can_be_the_creation() -> None:
    text = "waitForPodsReady: {requeuingStrategy: {timestamp: Creation}}"
    assert config(text).requeuing_timestamp == "Creation"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("fairSharin: {}", "fairSharin: .*fairSharing", id="an unknown field"),
        pytest.param(
            "fairSharing: {preemptionStrategies: [LessThanInitialShare, "
            "LessThanOrEqualToFinalShare]}",
            "in that order",
            id="strategies in the other order",
        ),
        pytest.param(
            "admissionFairSharing: {usageSamplingInterval: 0s}",
            "usageSamplingInterval: 0s is less than 1 s",
            id="sampling without a pause",
        ),
        pytest.param(
            "admissionFairSharing: {usageHalfLifeTime: soon}",
            "usageHalfLifeTime: 'soon' is not a duration",
            id="no duration",
        ),
        pytest.param(
            "admissionFairSharing: {resourceWeights: {cpu: -1}}",
            r"resourceWeights\[cpu\]: must be at least 0, not -1",
            id="a negative weight",
        ),
        pytest.param(
            "resources: {quotaCheckStrategy: Sometimes}",
            "quotaCheckStrategy: 'Sometimes' is not one of",
            id="an unknown strategy",
        ),
        pytest.param(
            "resources: {transformations: [{input: a.com/x, outputs: {b.com/y: many}}]}",
            r"transformations\[0\].outputs\[b.com/y\]: 'many' is not a quantity",
            id="an invalid output",
        ),
        pytest.param(
            "resources: {transformations: [{outputs: {b.com/y: 1}}]}",
            r"transformations\[0\].input: must be set",
            id="a transformation without an input",
        ),
        pytest.param("featureGates: {PartialAdmission: maybe}", "PartialAdmission", id="no truth"),
        pytest.param("---\n" + HEAD, "2 documents", id="two documents"),
    ],
)
def test_a_mistake_is_named_with_its_field(text: str, said: str) -> None:
    with pytest.raises(ManifestError, match=said):
        read_configuration(HEAD + text, "config.yaml")


def test_a_file_of_another_kind_is_refused() -> None:
    with pytest.raises(ManifestError, match="not v1 ConfigMap"):
        read_configuration("apiVersion: v1\nkind: ConfigMap\n", "x.yaml")


def test_a_field_for_kubernetes_clusters_causes_a_warning() -> None:
    text = HEAD + "webhook: {port: 9443}\nleaderElection: {leaderElect: true}\n"
    text += "featureGates: {TopologyAwareScheduling: true}\n"
    warnings = read_configuration(text, "").warnings
    assert [warning.split()[0] for warning in warnings] == [
        "webhook",
        "leaderElection",
        "featureGates.TopologyAwareScheduling",
    ]


def test_a_retention_that_is_too_short_says_what_counts() -> None:
    text = HEAD + "objectRetentionPolicies: {workloads: {afterFinished: 10s}}"
    assert read_configuration(text, "").warnings == (
        "objectRetentionPolicies.workloads.afterFinished: 10s counts as 60s",
    )


def test_the_sample_configuration_has_no_warnings() -> None:
    sample = Path(__file__).parents[3] / "deploy/configuration.yaml"
    configuration = read_configuration(sample.read_bytes(), str(sample))
    assert configuration.warnings == ()
    assert configuration.configuration.feature_gates == GATES
    config = config_of(configuration.configuration)
    assert config.fair_sharing is not None
    assert config.admission_fair_sharing is not None
    assert len(config.transformations) == 1


def _cases() -> list[Any]:
    if not TABLE.is_file():
        return []
    cases = json.loads(TABLE.read_text())["cases"]
    return [pytest.param(case, id=case["name"]) for case in cases]


@pytest.mark.skipif(not TABLE.is_file(), reason="the conformance data is not beside this tree")
@pytest.mark.parametrize("case", _cases())
def test_configurations_of_kueue_are_accepted(case: dict[str, Any]) -> None:
    read_configuration(json.dumps(case["given"]["original"]), "")
