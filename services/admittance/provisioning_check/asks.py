"""Requests as providers hear of them. Pure."""

from __future__ import annotations

from typing import Any

from admittance.events.provisioning import ProvisioningCancelled, ProvisioningRequested
from admittance.provisioning.records import Record


def _about(record: Record) -> dict[str, Any]:
    return {
        "namespace": record.metadata.namespace,
        "name": record.spec.workload,
        "uid": record.spec.uid,
        "provisioning_class": record.spec.provisioning_class_name,
        "id": record.spec.id,
    }


def requested(record: Record) -> ProvisioningRequested:
    """It is asked for."""
    spec = record.spec
    return ProvisioningRequested(
        **_about(record),
        check=spec.check,
        cycle=spec.cycle,
        attempt=spec.attempt,
        pod_sets=spec.pod_sets,
        parameters=spec.parameters,
        deadline=spec.deadline,
    )


def cancelled(record: Record) -> ProvisioningCancelled:
    """It is taken back, for the reason that the record tells."""
    spec = record.spec
    return ProvisioningCancelled(
        **_about(record),
        check=spec.check,
        cycle=spec.cycle,
        attempt=spec.attempt,
        reason=record.status.cancelled,
    )
