"""A Kubernetes cluster as a capacity provider: for each request for capacity the provider makes a
ProvisioningRequest with PodTemplates in the cluster, and answers the request as the conditions of
the ProvisioningRequest say.

Consumes: requests for capacity of the provider's provisioning classes; ProvisioningRequests of the
cluster. Publishes: the provider's answers to the requests. Owns: the objects in the cluster with
the label of this installation. Leadership: none; all instances are active.
"""

from __future__ import annotations

from admittance.runtime.process.service import Run, Service, WithUp


def _load() -> Run:
    from admittance.provider_kubernetes.service import run

    return run


SERVICE = Service(
    "provider-kubernetes",
    _load,
    role="built-in-provider",
    with_up=WithUp.NEVER,
    unix_user="ADMIT_KUBE_USER",
)
