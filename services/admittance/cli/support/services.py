"""The table of the services of Admittance. This module imports almost nothing, so that completion
is fast.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from admittance.cli.support.errors import BadInput


class Service(NamedTuple):
    """A service. ``probe``: a request that only the leader answers; None: an instance that reports
    ready is enough. ``wanted``: `admit doctor` reports an error if the service does not answer.
    ``together``: `admit up` starts the service; a service that `admit up` does not start needs more
    than a NATS server.
    """

    name: str
    module: str
    probe: str | None = None
    wanted: bool = True
    together: bool = True


TELEMETRY: Final = "telemetry"
"""The service that exports traces. `admit up` starts this service if a receiver of traces
is set.
"""


def _apart(name: str, module: str) -> Service:
    return Service(name, module, wanted=False, together=False)


SERVICES: Final = {
    service.name: service
    for service in (
        Service("workload-controller", "admittance.workload_controller.service", "settled"),
        Service("scheduler", "admittance.scheduler.service", "queues"),
        Service("retry-timer", "admittance.retry_timer.service", "timers"),
        Service("variant-controller", "admittance.variant_controller.service", "families"),
        Service("provisioning-check", "admittance.provisioning_check.service"),
        Service("provider-pool", "admittance.provider_pool.service", wanted=False),
        _apart("provider-aws", "admittance.provider_aws.service"),
        _apart("provider-kubernetes", "admittance.provider_kubernetes.service"),
        _apart("provider-docker", "admittance.provider_docker.service"),
        _apart(TELEMETRY, "admittance.telemetry.service"),
        Service("runner", "admittance.runner.service", wanted=False),
    )
}
"""All services, in start order. Services stop in reverse order, so that the last facts of the
runner are still processed.
"""


def service_named(name: str) -> Service:
    """The service of that name, with hyphens or underscores. Raises BadInput if there is none."""
    found = SERVICES.get(name.lower().replace("_", "-"))
    if found is None:
        raise BadInput(f'there is no service "{name}"; there are {", ".join(SERVICES)}')
    return found
