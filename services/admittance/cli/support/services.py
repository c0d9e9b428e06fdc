"""Which services there are. Imports next to nothing: commands name them while the shell waits."""

from __future__ import annotations

from typing import Final, NamedTuple

from admittance.cli.support.errors import BadInput


class Service(NamedTuple):
    """``probe`` is a request that only an instance that leads answers; None: health is enough.
    ``wanted``: an installation without it lacks something; else there are others to do its work.
    ``together``: ``admit up`` starts it with the others; else it needs more than a bus, and who has
    that starts it."""

    name: str
    module: str
    probe: str | None = None
    wanted: bool = True
    together: bool = True


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
        Service("runner", "admittance.runner.service", wanted=False),
    )
}
"""In the order in which they start. They end in the opposite order: the runner's last words about
its jobs are still heard."""


def service_named(name: str) -> Service:
    """The service of that name, hyphens or underscores. Raises BadInput with all there are."""
    found = SERVICES.get(name.lower().replace("_", "-"))
    if found is None:
        raise BadInput(f'there is no service "{name}"; there are {", ".join(SERVICES)}')
    return found
