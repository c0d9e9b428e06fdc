"""A deployment's settings for times and retries of workloads. docs/spec/lifecycle.md#3, #6."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from admittance.api.configuration import GATES, Configuration
from admittance.api.fields.limits import VARIANTS_MAX
from admittance.api.fields.problems import Problem
from admittance.api.fields.units import seconds
from admittance.api.pod_requests import ResourceTransformation, transformations_of
from admittance.api.validation.pods_ready import FIELD, WAIT_FOR_PODS_READY, timeouts_of


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
    many flavors of a ClusterQueue may become variants. ``default_class``: the feature gate
    WorkloadPriorityClassDefaulting; if on, the class ``default`` applies by itself.
    ``pods_ready_max``: the longest timeouts that a workload may set for its own pods.
    ``pacing_max``: the longest wait after repeated Retries without a delay; 0: no wait.
    ``exclude_resource_prefixes``, ``transformations``: the rules by which requests are charged.
    ``ignores_undeclared``: resources that a ClusterQueue does not cover need no quota.
    ``machines``: False: no ClusterQueue has the AdmissionCheck `MACHINES_CHECK` unless it names it.

    The defaults of these fields apply to old logs without the values; the configuration of a
    deployment has its own defaults."""

    pods_ready: PodsReadyLimits | None = None
    drain: timedelta = timedelta(minutes=5)
    check_delay: timedelta = timedelta(days=7)
    requeue_after: bool = True
    families: bool = True
    flavors_max: int = VARIANTS_MAX
    default_class: bool = True
    pacing_max: timedelta = timedelta(0)
    pods_ready_max: timedelta = timedelta(hours=2)
    exclude_resource_prefixes: tuple[str, ...] = ()
    transformations: tuple[ResourceTransformation, ...] = ()
    ignores_undeclared: bool = False
    machines: bool = True


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
        default_class=gates["WorkloadPriorityClassDefaulting"],
        flavors_max=configuration.concurrent_admission.max_flavors,
        pacing_max=timedelta(seconds=configuration.admission_check_retries.backoff_max_seconds),
        pods_ready_max=_pods_ready_max(configuration),
        exclude_resource_prefixes=configuration.resources.exclude_resource_prefixes,
        transformations=transformations_of(configuration.resources),
        ignores_undeclared=configuration.resources.quota_check_strategy == "IgnoreUndeclared",
        machines=configuration.machines != "Off",
    )


def pods_ready_limits(annotations: Mapping[str, str], limits: Limits) -> PodsReadyLimits | None:
    """The limits for the pods of a workload: the deployment's, with the timeouts in the workload's
    annotation in place of the deployment's timeouts. None: there is no limit.

    The annotation also holds in a deployment without ``waitForPodsReady``. An annotation that
    cannot be read, stored by an earlier version, has no effect.
    """
    written = annotations.get(WAIT_FOR_PODS_READY)
    if written is None:
        return limits.pods_ready
    try:
        own = timeouts_of(written)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return limits.pods_ready
    given = own.recovery_timeout_seconds
    recovery = own.timeout_seconds if given is None else given
    return replace(
        limits.pods_ready or PodsReadyLimits(),
        timeout=timedelta(seconds=own.timeout_seconds),
        recovery=timedelta(seconds=recovery) if recovery else None,
    )


def check_pods_ready_max(annotations: Mapping[str, str], limits: Limits) -> list[Problem]:
    """The problems of timeouts in a workload's annotation that exceed the deployment's limit."""
    written = annotations.get(WAIT_FOR_PODS_READY)
    if written is None:
        return []
    own = timeouts_of(written)
    longest = limits.pods_ready_max.total_seconds()
    return [
        Problem(FIELD, f"{name} must be at most {longest:g}, not {given}")
        for name, given in (
            ("timeoutSeconds", own.timeout_seconds),
            ("recoveryTimeoutSeconds", own.recovery_timeout_seconds or 0),
        )
        if given > longest
    ]


def changed_limits(limits: Limits) -> dict[str, Any] | None:
    """The values that differ from the defaults, in the form written to the log; None: no value
    differs."""
    default = msgspec.to_builtins(Limits())
    values = msgspec.to_builtins(limits)
    return {name: value for name, value in values.items() if value != default[name]} or None


def limits_from(differing: dict[str, Any] | None) -> Limits:
    """Returns the limits from the differing values on the log. Raises msgspec.ValidationError for
    unknown values."""
    return msgspec.convert(differing or {}, Limits)


def _pods_ready_max(configuration: Configuration) -> timedelta:
    waiting = configuration.wait_for_pods_ready
    if waiting is None or waiting.max_timeout_on_workload is None:
        return Limits().pods_ready_max
    return timedelta(seconds=float(seconds(waiting.max_timeout_on_workload)))


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
