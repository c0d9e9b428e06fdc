"""The settings of a deployment for scheduling."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec

from admittance.api.configuration import FINAL_SHARE, GATES, INITIAL_SHARE, Configuration
from admittance.api.units import seconds
from admittance.quota.transform import Transformation
from admittance.scheduling.fairsharing.usage import AdmissionFairSharing

__all__ = ["FINAL_SHARE", "INITIAL_SHARE", "AdmissionFairSharing", "Config", "config_of"]


class FairSharing(msgspec.Struct, frozen=True, kw_only=True):
    """Fair sharing in a cohort: shares decide the order of heads and the victims.

    ``strategies``: how victims are searched; one of the two, or both in this order.
    """

    strategies: tuple[str, ...] = (FINAL_SHARE, INITIAL_SHARE)


class PreemptionLoops(msgspec.Struct, frozen=True, kw_only=True):
    """Loop guard: after a workload has preempted another ``times`` times, it may not do so for
    ``pause``. Each further preemption doubles the pause, up to ``pause_max``."""

    times: int = 3
    pause: timedelta = timedelta(minutes=10)
    pause_max: timedelta = timedelta(days=1)


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the scheduler's core.

    ``requeuing_timestamp``: where a workload queues after its pods were not ready in time, Eviction
    or Creation. ``quota_check_strategy``: with IgnoreUndeclared, resources that a queue does not
    cover need no quota. ``refusal_delay``: how long a workload is parked before it is refused.
    ``idle_cycles``: how many cycles without progress a domain runs before it rests. ``preemption``:
    off, all preemption policies mean Never. ``fair_sharing``, ``admission_fair_sharing``: None
    means off. ``transformations``: resources that count in other units. ``partial_admission``:
    without room for all pods, fewer pods are tried, down to minCount. ``preemption_loops``: None
    turns the loop guard off. ``concurrent_admission``: off, no queue has families.
    ``block_admission``: no workload gets new quota while pods of an admitted workload are not
    ready.

    ``as_kueue``: behave as Kueue where we differ. Reduced quota revokes no reservation, and loops
    are not broken. Victims that are only reserved are evicted, and their quota is free a cycle
    later. A head fits as if victims of the same cycle had stopped already, so quota may be exceeded
    until they have. A pod set counts as fitting if its flavors fit by borrowing, even if another of
    its resources needs preemption; its workload then blocks its queue.
    """

    refusal_delay: timedelta = timedelta(seconds=1)
    requeuing_timestamp: str = "Eviction"
    quota_check_strategy: str = "BlockUndeclared"
    exclude_resource_prefixes: tuple[str, ...] = ()
    transformations: tuple[Transformation, ...] = ()
    refusals_per_call: int = 256
    idle_cycles: int = 10
    preemption: bool = True
    fair_sharing: FairSharing | None = None
    admission_fair_sharing: AdmissionFairSharing | None = None
    partial_admission: bool = True
    preemption_loops: PreemptionLoops | None = PreemptionLoops()
    concurrent_admission: bool = True
    block_admission: bool = False
    as_kueue: bool = False


def differing(config: Config) -> dict[str, Any] | None:
    """Returns the settings that differ from the defaults, for the log; None: all are defaults."""
    default = msgspec.to_builtins(Config())
    found = msgspec.to_builtins(config)
    return {name: value for name, value in found.items() if value != default[name]} or None


def config_from(differing: dict[str, Any] | None) -> Config:
    """Undoes `differing`. Raises msgspec.ValidationError for an unknown setting."""
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
        transformations=tuple(
            Transformation(
                one.input,
                one.strategy != "Replace",
                one.multiply_by,
                tuple((name, str(quantity)) for name, quantity in one.outputs.items()),
            )
            for one in resources.transformations
        ),
        fair_sharing=_shares(fair.preemption_strategies) if fair and fair.enable else None,
        admission_fair_sharing=(
            AdmissionFairSharing(
                usage_half_life_time=timedelta(seconds=float(seconds(usage.usage_half_life_time))),
                usage_sampling_interval=timedelta(
                    seconds=float(seconds(usage.usage_sampling_interval))
                ),
                resource_weights=usage.resource_weights,
            )
            if usage is not None and gates["AdmissionFairSharing"]
            else None
        ),
        partial_admission=gates["PartialAdmission"],
        concurrent_admission=gates["ConcurrentAdmission"],
        block_admission=waiting is not None and waiting.enable and waiting.block_admission,
    )


def _shares(strategies: tuple[str, ...]) -> FairSharing:
    return FairSharing(strategies=strategies) if strategies else FairSharing()
