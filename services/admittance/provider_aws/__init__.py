"""EC2 On-Demand Capacity Reservations as a capacity provider: makes one reservation for each
request, watches it, and cancels it when the request is cancelled. The provider uses boto3, which
the extra ``aws`` of the package installs.

Consumes: requests of its provisioning class; EC2's list of reservations. Publishes: the provider's
answers to the requests. Owns: the reservations tagged with its provisioning class. Leadership: one
active instance.
"""

from __future__ import annotations

from collections.abc import Mapping

from admittance.runtime.process.service import Run, Service, WithUp


def _load() -> Run:
    from admittance.provider_aws.service import run

    return run


def _provisioning_class(env: Mapping[str, str]) -> str:
    from admittance.provider_aws.service import AwsSettings

    return AwsSettings.from_env(env).provisioning_class


SERVICE = Service(
    "provider-aws",
    _load,
    role="built-in-provider",
    with_up=WithUp.NEVER,
    provisioning_class=_provisioning_class,
)
