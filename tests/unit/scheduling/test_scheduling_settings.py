"""The settings of the scheduler that a deployment's configuration gives."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from admittance.api.configuration import Configuration
from admittance.scheduling.state.config import (
    CohortFairSharing,
    Config,
    UsageFairSharing,
    changed_settings,
    config_from,
    config_of,
)

AT_RESERVATION = "AdmissionFairSharingAnchorAtQuotaReservation"
USAGE = {"usageHalfLifeTime": "1h", "usageSamplingInterval": "2m", "resourceWeights": {"cpu": 2.0}}
SHARES_BY_USAGE = UsageFairSharing(
    usage_half_life_time=timedelta(hours=1),
    usage_sampling_interval=timedelta(minutes=2),
    resource_weights={"cpu": 2.0},
    from_reservation=True,
)


@pytest.mark.parametrize(
    ("written", "setting", "value"),
    [
        ({}, "machines", True),
        ({"machines": "Off"}, "machines", False),
        ({}, "requeuing_timestamp", "Eviction"),
        ({}, "block_admission", False),
        ({"waitForPodsReady": {"enable": True}}, "block_admission", False),
        ({"waitForPodsReady": {"enable": True, "blockAdmission": True}}, "block_admission", True),
        ({"waitForPodsReady": {"enable": False, "blockAdmission": True}}, "block_admission", False),
        (
            {"waitForPodsReady": {"requeuingStrategy": {"timestamp": "Creation"}}},
            "requeuing_timestamp",
            "Creation",
        ),
        ({}, "fair_sharing", None),
        ({"fairSharing": {"enable": False}}, "fair_sharing", None),
        ({"fairSharing": {"enable": True}}, "fair_sharing", CohortFairSharing()),
        (
            {"fairSharing": {"preemptionStrategies": ["LessThanInitialShare"]}},
            "fair_sharing",
            CohortFairSharing(strategies=("LessThanInitialShare",)),
        ),
        ({}, "admission_fair_sharing", None),
        ({"admissionFairSharing": USAGE}, "admission_fair_sharing", SHARES_BY_USAGE),
        (
            {"admissionFairSharing": USAGE, "featureGates": {AT_RESERVATION: False}},
            "admission_fair_sharing",
            replace(SHARES_BY_USAGE, from_reservation=False),
        ),
        (
            {"admissionFairSharing": USAGE, "featureGates": {"AdmissionFairSharing": False}},
            "admission_fair_sharing",
            None,
        ),
        ({"featureGates": {"PartialAdmission": False}}, "partial_admission", False),
        ({"featureGates": {"ConcurrentAdmission": False}}, "concurrent_admission", False),
    ],
)
def test_a_configuration_gives_settings(written: dict[str, Any], setting: str, value: Any) -> None:
    config = config_of(msgspec.convert(written, Configuration))
    assert getattr(config, setting) == value
    assert config_from(changed_settings(config)) == config


def test_settings_that_are_as_usual_are_left_out() -> None:
    assert changed_settings(Config()) is None
    assert config_from(None) == Config()
    assert changed_settings(Config(preemption=not Config().preemption)) is not None
