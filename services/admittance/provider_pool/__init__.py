"""Pools of machines as a capacity provider: books room for pods on machines of a pool; a machine
without bookings boots first. MachinePool manifests describe the machines.

Consumes: requests of the pools' provisioning classes; MachinePools from the bucket. Publishes:
answers to the requests. Owns: the bookings of pools in the bucket of providers. Leadership: one
active instance.
"""

from __future__ import annotations

from admittance.runtime.process.service import Run, Service


def _load() -> Run:
    from admittance.provider_pool.service import run

    return run


SERVICE = Service(
    "provider-pool",
    _load,
    role="built-in-provider",
    if_missing="no instance answers; only machine pools need it",
)
