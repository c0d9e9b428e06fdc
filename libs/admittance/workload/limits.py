"""What a deployment sets about time and retries in the life of a workload. LIFECYCLE 3 and 6."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec

from admittance.api.configuration import GATES, Configuration
from admittance.api.limits import VARIANTS_MAX
from admittance.api.units import seconds


class PodsReadyLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How long pods may take to be ready, and what becomes of a workload whose pods take longer.

    ``recovery`` None: pods that were ready once may be gone for ever. ``backoff_limit`` None: it is
    tried again for ever; 0: never. ``backoff_base`` and ``backoff_max``: seconds.
    ``block_admission``: nobody gets quota afresh while the pods of an admitted one are not ready.
    """

    timeout: timedelta = timedelta(minutes=30)
    recovery: timedelta | None = timedelta(minutes=30)
    block_admission: bool = False
    backoff_limit: int | None = None
    backoff_base: int = 60
    backoff_max: int = 3600


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """``pods_ready`` None: pods may take as long as they like. ``drain``: after so long without a
    word from the runner an evicted job's quota is free all the same. ``check_delay``: the longest
    that a check may put a workload off. ``requeue_after``: the gate ACRequeueAfter; off, every
    Retry is one without a delay. ``families``: the gate ConcurrentAdmission; off, every workload
    is regular. ``flavors_max``: so many flavors of a ClusterQueue may each be a variant.
    ``pacing_max``: the longest that a workload waits since a check says Retry without a delay again
    and again; 0: it never does.

    The defaults are what held of logs that do not tell, not those of a deployment."""

    pods_ready: PodsReadyLimits | None = None
    drain: timedelta = timedelta(minutes=5)
    check_delay: timedelta = timedelta(days=7)
    requeue_after: bool = True
    families: bool = True
    flavors_max: int = VARIANTS_MAX
    pacing_max: timedelta = timedelta(0)


def limits_of(
    configuration: Configuration, *, drain: float = 300.0, check_delay: float = 7 * 86_400.0
) -> Limits:
    """What a deployment's configuration means for workloads. ``drain``, ``check_delay``: seconds.

    The durations of configuration are durations: whoever read it has made sure.
    """
    gates = GATES | configuration.feature_gates
    return Limits(
        pods_ready=_pods_ready(configuration),
        drain=timedelta(seconds=drain),
        check_delay=timedelta(seconds=check_delay),
        requeue_after=gates["ACRequeueAfter"],
        families=gates["ConcurrentAdmission"],
        flavors_max=configuration.concurrent_admission.max_flavors,
        pacing_max=timedelta(seconds=configuration.admission_check_retries.backoff_max_seconds),
    )


def differing(limits: Limits) -> dict[str, Any] | None:
    """What is not as by default, as the log has it; None: everything is."""
    default = msgspec.to_builtins(Limits())
    found = msgspec.to_builtins(limits)
    return {name: value for name, value in found.items() if value != default[name]} or None


def limits_from(differing: dict[str, Any] | None) -> Limits:
    """The other way. Raises msgspec.ValidationError for what no Limits have."""
    return msgspec.convert(differing or {}, Limits)


def _pods_ready(configuration: Configuration) -> PodsReadyLimits | None:
    waiting = configuration.wait_for_pods_ready
    if waiting is None or not waiting.enable:
        return None
    timeout = timedelta(seconds=float(seconds(waiting.timeout)))
    recovery = (
        timeout
        if waiting.recovery_timeout is None
        else timedelta(seconds=float(seconds(waiting.recovery_timeout)))
    )
    again = waiting.requeuing_strategy
    return PodsReadyLimits(
        timeout=timeout,
        recovery=recovery or None,
        block_admission=waiting.block_admission,
        backoff_limit=again.backoff_limit_count,
        backoff_base=again.backoff_base_seconds,
        backoff_max=again.backoff_max_seconds,
    )
