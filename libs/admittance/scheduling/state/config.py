"""What a deployment may set about scheduling."""

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
    """Shares of the cohort decide who goes first and who has to go. ``strategies``: in which
    order they are tried to find victims; one of them, or both in this order."""

    strategies: tuple[str, ...] = (FINAL_SHARE, INITIAL_SHARE)


class PreemptionLoops(msgspec.Struct, frozen=True, kw_only=True):
    """A workload that has taken another's quota ``times`` times is parted from it for ``pause``,
    and for twice as long each further time, up to ``pause_max``."""

    times: int = 3
    pause: timedelta = timedelta(minutes=10)
    pause_max: timedelta = timedelta(days=1)


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """``requeuing_timestamp``: where a workload queues after its pods were not ready in time,
    Eviction or Creation. ``quota_check_strategy``: IgnoreUndeclared lets resources that a queue
    does not cover go free. ``refusal_delay``: how long a workload is parked before it is said why.
    ``idle_cycles``: how often heads that nothing came of are looked at again without an event.
    ``preemption``: queues' preemption policies count; off, all of them mean Never.
    ``fair_sharing``, ``admission_fair_sharing``: None: off.
    ``transformations``: resources that count in other units.
    ``partial_admission``: where there is not room for all pods, fewer are tried, down to minCount.
    ``preemption_loops``: when a preemptor and a victim are parted; None: never.
    ``concurrent_admission``: queues may have families; off, all of them are as if they did not.
    ``block_admission``: nobody gets quota afresh while pods of an admitted workload are not ready.
    ``as_kueue``: play as Kueue does where ours differs. No quota cut revokes a reservation, no loop
    is broken. Victims that merely hold a reservation are
    evicted, and what they held is handed on a cycle later; and a head that fits is measured as if
    victims of the same cycle were gone already, so that quota may be exceeded until they are. A pod
    set whose flavors fit by borrowing counts as fitting, also where another of its resources needs
    preemption: its workload keeps its queue waiting.
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
    """What is not as by default, as the log has it; None: everything is."""
    default = msgspec.to_builtins(Config())
    found = msgspec.to_builtins(config)
    return {name: value for name, value in found.items() if value != default[name]} or None


def config_from(differing: dict[str, Any] | None) -> Config:
    """The other way. Raises msgspec.ValidationError for what no Config has."""
    return msgspec.convert(differing or {}, Config)


def config_of(configuration: Configuration) -> Config:
    """What a deployment's configuration means for scheduling."""
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
