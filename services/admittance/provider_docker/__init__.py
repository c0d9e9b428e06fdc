"""A container engine as a capacity provider: starts one worker container for each requested pod,
with the pod's limits of cpu and memory, and removes the containers when the request is cancelled.

Consumes: requests for capacity of the provider's provisioning classes; events of the engine.
Publishes: the provider's answers to requests. Owns: the containers with the label of this
installation. Leadership: one active instance.
"""

from __future__ import annotations

from admittance.runtime.process.service import Run, Service, WithUp


def _load() -> Run:
    from admittance.provider_docker.service import run

    return run


SERVICE = Service("provider-docker", _load, role="built-in-provider", with_up=WithUp.NEVER)
