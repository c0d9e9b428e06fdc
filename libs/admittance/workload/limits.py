"""A deployment's settings for times and retries of workloads. docs/spec/lifecycle.md#3, #6."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec

from admittance.api.configuration import GATES, Configuration
from admittance.api.limits import VARIANTS_MAX
from admittance.api.units import seconds


class PodsReadyLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How long pods may take to be ready, and what happens if they take longer.

    ``recovery`` None: pods that were ready before have no time limit to become ready again.
    ``backoff_limit`` None: the workload is requeued without limit; 0: it is never requeued.
    ``backoff_base`` and ``backoff_max``: the first and the longest backoff, in seconds.
    ``block_admission``: no workload gets quota while pods of an admitted workload are not ready.
    """

    timeout: timedelta = timedelta(minutes=30)
    recovery: timedelta | None = timedelta(minutes=30)
    block_admission: bool = False
    backoff_limit: int | None = None
    backoff_base: int = 60
    backoff_max: int = 3600


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of times and retries in a deployment. ``pods_ready`` None: pods have no time limit to
    become ready. ``drain``: the quota of an evicted job is freed after this time even if no runner
    has reported the stop. ``check_delay``: the longest delay that a check may ask for.
    ``requeue_after``: the feature gate ACRequeueAfter; if off, a Retry has no delay. ``families``:
    the feature gate ConcurrentAdmission; if off, every workload is regular. ``flavors_max``: how
    many flavors of a ClusterQueue may become variants. ``pacing_max``: the longest wait after
    repeated Retries without a delay; 0: no wait.

    The defaults of these fields apply to old logs without the values; the configuration of a
    deployment has its own defaults."""

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
    """Returns the limits of a deployment's configuration. ``drain``, ``check_delay``: the values in
    seconds.

    The configuration has been validated, so its durations can be parsed.
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


def changed_limits(limits: Limits) -> dict[str, Any] | None:
    """The values that differ from the defaults, in the form written to the log; None: no value
    differs."""
    default = msgspec.to_builtins(Limits())
    found = msgspec.to_builtins(limits)
    return {name: value for name, value in found.items() if value != default[name]} or None


def limits_from(differing: dict[str, Any] | None) -> Limits:
    """Returns the limits from the differing values on the log. Raises msgspec.ValidationError for
    unknown values."""
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
