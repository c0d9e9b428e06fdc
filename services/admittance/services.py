"""The services of Admittance, each as a value that its package declares.

Importing this module imports no service, only the declarations, so that completion is fast.
"""

from __future__ import annotations

from typing import Final

from admittance import (
    array_controller,
    budget_controller,
    forecast_service,
    placement_service,
    provider_aws,
    provider_docker,
    provider_kubernetes,
    provider_pool,
    provisioning_check,
    retry_timer,
    runner,
    scheduler,
    telemetry,
    variant_controller,
    web,
    workload_controller,
)
from admittance.runtime.process.service import Service, Streams

SERVICES: Final[dict[str, Service]] = {
    package.SERVICE.name: package.SERVICE
    for package in (
        workload_controller,
        scheduler,
        retry_timer,
        variant_controller,
        array_controller,
        budget_controller,
        provisioning_check,
        placement_service,
        provider_pool,
        provider_aws,
        provider_kubernetes,
        provider_docker,
        telemetry,
        forecast_service,
        runner,
    )
}
"""All services by name, in start order. Services stop in reverse order, so that the last facts of
the runner are still processed."""
STREAMS_KEEPER: Final = next(
    service for service in SERVICES.values() if service.streams is Streams.KEEPS
)
"""The service that may create and update streams on a server that demands credentials."""
RUNNER: Final = next(service for service in SERVICES.values() if service.runs_jobs)
"""The service that starts jobs."""
PAGE: Final = web.PAGE
"""The web page, which is no service: it has no user, and each signed-in person a connection."""
