"""Checks for capacity, their configurations, and how workloads stand before them."""

from __future__ import annotations

from typing import Any, Final

from admittance.api.workload import CheckState
from admittance.runtime.bus.bucket import read_all
from admittance.runtime.bus.bus import Bus
from admittance.runtime.clock import now
from admittance.workload.phase import Phase, phase
from support.requests import eventually, workload

SERVICES: Final = ("workload-controller", "scheduler", "retry-timer", "provisioning-check")
"""The services that capacity needs, without the provider."""

CHECK = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "AdmissionCheck",
    "metadata": {"name": "capacity"},
    "spec": {
        "controllerName": "kueue.x-k8s.io/provisioning-request",
        "parameters": {
            "apiGroup": "kueue.x-k8s.io",
            "kind": "ProvisioningRequestConfig",
            "name": "config",
        },
    },
}


def a_config(limit: int = 1, base: int = 1, **spec: Any) -> dict[str, Any]:
    retry = {"backoffLimitCount": limit, "backoffBaseSeconds": base, "backoffMaxSeconds": 60}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ProvisioningRequestConfig",
        "metadata": {"name": "config"},
        "spec": {"provisioningClassName": "class", "retryStrategy": retry, **spec},
    }


async def row(bus: Bus, name: str = "w") -> CheckState:
    stored = await workload(bus, name)
    assert stored is not None
    return next(row for row in stored.status.admission_checks if row.name == "capacity")


async def until_phase(bus: Bus, wanted: Phase, name: str = "w") -> None:
    async def there() -> bool:
        stored = await workload(bus, name)
        return stored is not None and phase(stored, now()) is wanted

    await eventually(there)


async def records(bus: Bus) -> list[str]:
    return [entry.key for entry in await read_all(bus, "provisioningrequest.>")]
