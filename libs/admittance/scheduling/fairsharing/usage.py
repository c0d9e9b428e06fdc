"""Computes the consumed usage of a LocalQueue over time. Source: `docs/spec/scheduling.md#7.4`.

Past consumption decays with a half-life. Admitted workloads add consumption while they run, so that
under a constant load the consumption approaches that load. Each admission adds the consumption of
one sampling interval at once, the entry penalty: without it one LocalQueue could take all quota
between two samplings.

Decay and growth are linear, so a value does not depend on how often it was computed: it is stored
at every change of the admitted workloads, and computed in between. Amounts are integers
(billionths of a unit), so a penalty that is taken back leaves no rounding error.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec

from admittance.api.units import BadQuantity, parse
from admittance.events.shapes import ConsumedUsage

Nanos = dict[str, int]
"""Billionths of a unit by resource, without zeros."""

NANO: Final = 1_000_000_000
CPU_MILLI: Final = NANO // 1_000
WHOLE: Final = ("memory", "ephemeral-storage", "hugepages-")
"""Resources that are counted in bytes and shown without fractions."""


class AdmissionFairSharing(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of usage-based fair sharing: LocalQueues that used less go first.

    ``usage_half_life_time``: after this time only half of the consumption counts; zero: past
    consumption does not count. ``usage_sampling_interval``: how often usages are compared.
    ``resource_weights``: how much a whole unit of a resource counts; 1 by default.
    """

    usage_half_life_time: timedelta = timedelta(0)
    usage_sampling_interval: timedelta = timedelta(minutes=5)
    resource_weights: dict[str, float] = msgspec.field(default_factory=dict)


def nanos(resource: str, amount: int) -> int:
    """An amount in accounting units (cpu in thousandths, everything else whole) in billionths."""
    return amount * (CPU_MILLI if resource == "cpu" else NANO)


def left(config: AdmissionFairSharing, seconds: float) -> float:
    """The fraction of past consumption that still counts so many seconds later."""
    if seconds <= 0:
        return 1.0
    half_life = config.usage_half_life_time.total_seconds()
    return 0.5 ** (seconds / half_life) if half_life > 0 else 0.0


def gained(config: AdmissionFairSharing, seconds: float) -> float:
    """The fraction of a constant load that is consumed after so many seconds; 0 without a
    half-life."""
    if config.usage_half_life_time.total_seconds() <= 0:
        return 0.0
    return 1.0 - left(config, seconds)


def penalty_of(config: AdmissionFairSharing, amounts: Mapping[str, int]) -> Nanos:
    """The entry penalty of an admission."""
    share = gained(config, config.usage_sampling_interval.total_seconds())
    found = {resource: int(share * much) for resource, much in amounts.items()}
    return {resource: much for resource, much in found.items() if much}


def weighed(config: AdmissionFairSharing, amounts: Mapping[str, int], weight: float) -> float:
    """The number by which LocalQueues are compared: the weighted sum of their consumption, in whole
    units, divided by their weight. Infinite for weight 0: such a queue always goes last."""
    if weight <= 0:
        return float("inf")
    total = 0.0
    for resource in sorted(amounts):
        total += config.resource_weights.get(resource, 1.0) * (amounts[resource] / NANO)
    return total / weight


def add(to: Nanos, amounts: Mapping[str, int], times: int = 1) -> None:
    """Adds in place, and removes zeros."""
    for resource, much in amounts.items():
        total = to.get(resource, 0) + times * much
        if total:
            to[resource] = total
        else:
            to.pop(resource, None)


class Account:
    """The consumption of one LocalQueue.

    ``consumed``: at the time ``since``. ``rate``: what its admitted workloads hold. ``pending``:
    penalties of workloads that hold quota and are not admitted yet. ``seen``: the consumption at
    the last sampling, at ``sampled``, plus the penalties of admissions after it. ``value``: the
    number by which LocalQueues are compared, from ``seen`` and ``pending``.
    Invariant: between two samplings an admission never lowers ``seen``, so a LocalQueue has no
    advantage from more frequent updates.
    """

    __slots__ = (
        "config",
        "consumed",
        "pending",
        "rate",
        "sampled",
        "seen",
        "since",
        "value",
        "weight",
    )

    def __init__(self, config: AdmissionFairSharing, weight: float, since: datetime) -> None:
        self.config = config
        self.weight = weight
        self.consumed: Nanos = {}
        self.since = since
        self.rate: Nanos = {}
        self.pending: Nanos = {}
        self.seen: Nanos = {}
        self.sampled = since
        self.value = 0.0
        self.weigh()

    @property
    def is_idle(self) -> bool:
        """Whether nothing was consumed and nothing runs, so that time changes nothing."""
        return not (self.consumed or self.rate or self.seen)

    def weigh(self) -> None:
        """Computes ``value`` again."""
        amounts = self.seen
        if self.pending:
            amounts = dict(amounts)
            add(amounts, self.pending)
        self.value = weighed(self.config, amounts, self.weight)

    def at(self, when: datetime) -> Nanos:
        """The consumption at that time; before ``since``: at ``since``."""
        return self._later(self.consumed, self.rate, (when - self.since).total_seconds())

    def _later(self, consumed: Nanos, rate: Mapping[str, int], seconds: float) -> Nanos:
        if seconds <= 0:
            return dict(consumed)
        kept = left(self.config, seconds)
        more = gained(self.config, seconds)
        found = {resource: int(kept * much) for resource, much in consumed.items()}
        add(found, {resource: int(more * much) for resource, much in rate.items()})
        return {resource: much for resource, much in found.items() if much}

    def restore(self, consumed: Nanos, since: datetime) -> None:
        """Sets the consumption at that time. No workload is known to run."""
        self.consumed, self.since = dict(consumed), since
        self.rate, self.pending = {}, {}
        self.seen = dict(consumed)
        self.sampled = since
        self.weigh()

    def sample(self, when: datetime) -> None:
        """Compares the LocalQueue by its consumption at that time from now on."""
        if when > self.sampled:
            if not self.is_idle:
                self.seen = self.at(when)
                self.weigh()
            self.sampled = when

    def expect(self, penalty: Nanos) -> None:
        """Notes the penalty of a workload that got quota. It is charged at the admission."""
        add(self.pending, penalty)
        self.weigh()

    def excuse(self, penalty: Nanos) -> None:
        """Takes back a noted penalty: the workload lost its quota, or was admitted."""
        add(self.pending, penalty, -1)
        self.weigh()

    def start(self, amounts: Nanos, penalty: Nanos, when: datetime) -> None:
        """Notes an admission at that time, which may be long past: charges the penalty and starts
        the consumption."""
        self._settle(when)
        # Consumption is linear, so the part before the last change can be added now.
        add(self.consumed, self._later(penalty, amounts, (self.since - when).total_seconds()))
        add(self.seen, self._later(penalty, amounts, (self.sampled - when).total_seconds()))
        add(self.rate, amounts)
        self.weigh()

    def stop(self, amounts: Nanos, when: datetime) -> None:
        """Ends the consumption of an admitted workload."""
        self._settle(when)
        add(self.rate, amounts, -1)

    def _settle(self, when: datetime) -> None:
        if when > self.since:
            self.consumed = self.at(when)
            self.since = when


def status_of(account: Account, at: datetime) -> ConsumedUsage:
    """The consumption at that time, as quantities."""
    return ConsumedUsage(
        consumed_resources={
            resource: quantity(resource, much) for resource, much in sorted(account.at(at).items())
        },
        last_update=at,
    )


def quantity(resource: str, much: int) -> str:
    """Billionths as a Kubernetes quantity, with the coarsest exact suffix."""
    if resource.startswith(WHOLE):
        return str(much // NANO)
    for suffix, unit in (("", NANO), ("m", 1_000_000), ("u", 1_000)):
        if much % unit == 0:
            return f"{much // unit}{suffix}"
    return f"{much}n"


def consumed_of(record: ConsumedUsage) -> Nanos:
    """Quantities as billionths, without unreadable ones."""
    found: Nanos = {}
    for resource, text in record.consumed_resources.items():
        try:
            much = int(parse(text) * NANO)
        except BadQuantity:
            continue
        if much > 0:
            found[resource] = much
    return found
