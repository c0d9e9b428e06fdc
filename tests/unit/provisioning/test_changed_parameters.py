"""Which requests are decided again after a change of parameters: by direct calls."""

from __future__ import annotations

from typing import Any, cast

import pytest

from admittance.api.checks import (
    AdmissionCheck,
    AdmissionCheckSpec,
    ParametersReference,
    ProvisioningRequestConfig,
    ProvisioningRequestConfigSpec,
)
from admittance.api.meta import ObjectMeta
from admittance.events.subjects import PROVISIONING_CONTROLLER
from admittance.provisioning.observed_state import ObservedState
from admittance.provisioning.steps import RequestSlot

REFERENCES = {"names-small": "small", "names-big": "big", "names-nothing": None}


@pytest.mark.parametrize(
    ("changed", "again"),
    [("small", ["names-small"]), ("big", ["names-big"]), ("other", [])],
)
@pytest.mark.parametrize("is_deleted", [False, True])
def test_requests_of_checks_that_name_changed_parameters_are_decided_again(
    changed: str, again: list[str], is_deleted: bool
) -> None:
    observed = ObservedState()
    for name, reference in REFERENCES.items():
        parameters = None
        if reference is not None:
            parameters = ParametersReference(
                api_group="kueue.x-k8s.io", kind="ProvisioningRequestConfig", name=reference
            )
        spec = AdmissionCheckSpec(controller_name=PROVISIONING_CONTROLLER, parameters=parameters)
        observed.check(name, AdmissionCheck(metadata=ObjectMeta(name=name), spec=spec))
        observed.records[RequestSlot("ns", "w", name)] = cast(Any, None)
    assert not observed.dirty
    config = ProvisioningRequestConfig(
        metadata=ObjectMeta(name=changed),
        spec=ProvisioningRequestConfigSpec(provisioning_class_name="docker"),
    )
    observed.config(changed, None if is_deleted else config)
    assert [slot.check for slot in observed.dirty] == again
    assert set(observed.configs) == (set() if is_deleted else {changed})
