"""The scheduler's settings in a deployment."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec

from admittance.api.configuration import FINAL_SHARE, GATES, INITIAL_SHARE, Configuration
from admittance.api.fields.units import seconds
from admittance.api.pod_requests import ResourceTransformation, transformations_of
from admittance.scheduling.fairsharing.usage import UsageFairSharing

__all__ = ["FINAL_SHARE", "INITIAL_SHARE", "Config", "UsageFairSharing", "config_of"]


class CohortFairSharing(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of fair sharing in cohorts: shares of ClusterQueues and cohorts decide the order of
    heads and the victims. ``strategies``: the preemption strategies with which victims are
    searched: one of the two, or both in this order."""

    strategies: tuple[str, ...] = (FINAL_SHARE, INITIAL_SHARE)


class PreemptionLoops(msgspec.Struct, frozen=True, kw_only=True):
    """Loop guard: after workload A has preempted workload B ``times`` times, A may not preempt B
    for the duration ``pause``. Each further preemption of B by A doubles the pause, up to
    ``pause_max``."""

    times: int = 3
    pause: timedelta = timedelta(minutes=10)
    pause_max: timedelta = timedelta(days=1)


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the scheduler's core.

    ``requeuing_timestamp``: which time orders a workload in its queue after an eviction because its
    pods were not ready in time: Eviction or Creation. ``quota_check_strategy``: with
    IgnoreUndeclared, resources that a queue does not cover need no quota. ``refusal_delay``: how
    long a workload must be parked before its refusal is published. ``idle_cycles``: after so many
    cycles of a domain without progress, the domain has no further cycle until something changes.
    ``preemption``: False: all preemption policies count as Never. ``fair_sharing``,
    ``admission_fair_sharing``: the settings of the two features; None: the feature is off.
    ``transformations``: resources that count as other resources. ``partial_admission``: True: if
    quota does not suffice for all pods of a workload, the scheduler tries fewer pods, down to
    minCount. ``preemption_loops``: the settings of the loop guard; None: the loop guard is off.
    ``concurrent_admission``: False: no ClusterQueue has families of variants. ``block_admission``:
    True: no workload gets new quota while pods of an admitted workload are not ready. ``machines``:
    False: no ClusterQueue has the AdmissionCheck `MACHINES_CHECK` unless it names it.

    ``as_kueue``: True: the scheduler decides as Kueue in the cases where Admittance decides
    differently. With ``as_kueue``, reduced quota revokes no reservation, and preemption loops are
    not broken. With ``as_kueue``, victims that are reserved but not admitted are evicted too, and
    their quota is free a cycle later. With ``as_kueue``, a head fits as if victims of the same
    cycle had stopped already, so quota may be exceeded until these victims have stopped. With
    ``as_kueue``, a pod set counts as fitting if one of its resources fits by borrowing, even if
    another needs preemption; its workload then blocks its queue. With ``as_kueue``, a pod set may
    get flavors with different values of a node label."""

    refusal_delay: timedelta = timedelta(seconds=1)
    requeuing_timestamp: str = "Eviction"
    quota_check_strategy: str = "BlockUndeclared"
    exclude_resource_prefixes: tuple[str, ...] = ()
    transformations: tuple[ResourceTransformation, ...] = ()
    refusals_per_call: int = 256
    idle_cycles: int = 10
    preemption: bool = True
    fair_sharing: CohortFairSharing | None = None
    admission_fair_sharing: UsageFairSharing | None = None
    partial_admission: bool = True
    preemption_loops: PreemptionLoops | None = PreemptionLoops()
    concurrent_admission: bool = True
    block_admission: bool = False
    machines: bool = True
    as_kueue: bool = False


def changed_settings(config: Config) -> dict[str, Any] | None:
    """Returns the settings that differ from their defaults, for the log; None: all settings have
    their defaults."""
    default = msgspec.to_builtins(Config())
    settings = msgspec.to_builtins(config)
    return {name: value for name, value in settings.items() if value != default[name]} or None


def config_from(differing: dict[str, Any] | None) -> Config:
    """Restores settings from the result of `changed_settings`, which has only those that differ
    from the defaults. Raises msgspec.ValidationError for an unknown setting."""
    return msgspec.convert(differing or {}, Config)


def config_of(configuration: Configuration) -> Config:
    """Returns the scheduling settings of a deployment's configuration."""
    gates = GATES | configuration.feature_gates
    fair = configuration.fair_sharing
    usage = configuration.admission_fair_sharing
    waiting = configuration.wait_for_pods_ready
    resources = configuration.resources
    return Config(
        requeuing_timestamp=waiting.requeuing_strategy.timestamp if waiting else "Eviction",
        quota_check_strategy=resources.quota_check_strategy,
        exclude_resource_prefixes=resources.exclude_resource_prefixes,
        transformations=transformations_of(resources),
        fair_sharing=_shares(fair.preemption_strategies) if fair and fair.enable else None,
        admission_fair_sharing=(
            UsageFairSharing(
                usage_half_life_time=timedelta(seconds=float(seconds(usage.usage_half_life_time))),
                usage_sampling_interval=timedelta(
                    seconds=float(seconds(usage.usage_sampling_interval))
                ),
                resource_weights=usage.resource_weights,
                from_reservation=gates["AdmissionFairSharingAnchorAtQuotaReservation"],
            )
            if usage is not None and gates["AdmissionFairSharing"]
            else None
        ),
        partial_admission=gates["PartialAdmission"],
        concurrent_admission=gates["ConcurrentAdmission"],
        block_admission=waiting is not None and waiting.enable and waiting.block_admission,
        machines=configuration.machines != "Off",
    )


def _shares(strategies: tuple[str, ...]) -> CohortFairSharing:
    return CohortFairSharing(strategies=strategies) if strategies else CohortFairSharing()
