"""The names of what can be led."""

from __future__ import annotations

from typing import Final

CONTROLLER: Final = "service-workload-controller"
"""The workload-controller is led as a whole: preemptions and swaps would cross the parts."""
RETRY_TIMER: Final = "service-retry-timer"
"""So is the retry-timer: one hand on the stream of timers."""

VARIANT_CONTROLLER: Final = "service-variant-controller"
"""And the variant-controller, so that nobody argues about a family."""

PROVISIONING_CHECK: Final = "service-provisioning-check"
"""And the provisioning check: one hand on every request for capacity."""

PROVIDER_POOL: Final = "service-provider-pool"
"""And the pools of machines: whoever books knows all that is booked."""

PROVIDER_DOCKER: Final = "service-provider-docker"
"""And the containers of an engine, for the same reason."""


def aws_domain(provisioning_class: str) -> str:
    """The domain of EC2's capacity reservations of one class: one account, one region."""
    return f"service-provider-aws-{provisioning_class}"


def cohort_domain(root: str) -> str:
    """The domain of a cohort tree, by its root."""
    return f"cohort-{root}"


def queue_domain(cluster_queue: str) -> str:
    """The domain of a ClusterQueue without a cohort."""
    return f"queue-{cluster_queue}"
