"""Computes the consumed usage of a LocalQueue over time. Source: `docs/spec/scheduling.md#7.4`.

Past consumption decays with a half-life. Workloads add consumption from the reservation of their
quota on, or from their admission on (`UsageFairSharing.from_reservation`), so that under a
constant load the consumption approaches that load. At that moment each workload adds an entry
penalty at once, its consumption of one sampling interval: without penalties one LocalQueue could
take all quota between two samplings.

Decay and growth are linear operations, so the consumption does not depend on how often it is
computed: an account keeps its value at the last change of the admitted workloads, from which later
values are computed when needed. Amounts are integers (billionths of a unit), so taking back a
penalty leaves no rounding error."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec

from admittance.api.fields.units import BadQuantity, parse
from admittance.events.shapes import ConsumedUsage

Nanos = dict[str, int]
"""The amount of each resource in billionths of a unit; a resource with the amount 0 is left out."""

NANO: Final = 1_000_000_000
CPU_MILLI: Final = NANO // 1_000
WHOLE: Final = ("memory", "ephemeral-storage", "hugepages-")
"""Resources that are counted in bytes and shown without fractions."""


class UsageFairSharing(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of usage-based fair sharing: workloads of LocalQueues that used less are tried
    first.

    ``usage_half_life_time``: after this time only half of a past consumption counts; zero: past
    consumption does not count. ``usage_sampling_interval``: how often the usages of LocalQueues are
    compared. ``resource_weights``: factor by which a whole unit of a resource counts in
    comparisons; 1 by default. ``from_reservation``: workloads consume from the reservation of their
    quota on; False, as in logs without the setting: from their admission on."""

    usage_half_life_time: timedelta = timedelta(0)
    usage_sampling_interval: timedelta = timedelta(minutes=5)
    resource_weights: dict[str, float] = msgspec.field(default_factory=dict)
    from_reservation: bool = False


def to_billionths(resource: str, amount: int) -> int:
    """Converts an amount from accounting units (cpu in thousandths, all other resources whole) into
    billionths."""
    return amount * (CPU_MILLI if resource == "cpu" else NANO)


def remaining_fraction(config: UsageFairSharing, seconds: float) -> float:
    """Returns the fraction of a past consumption that still counts ``seconds`` later."""
    if seconds <= 0:
        return 1.0
    half_life = config.usage_half_life_time.total_seconds()
    return 0.5 ** (seconds / half_life) if half_life > 0 else 0.0


def reached_fraction(config: UsageFairSharing, seconds: float) -> float:
    """Returns the fraction of a constant load that the consumption has reached ``seconds`` after
    the load began; always 0 without a half-life."""
    if config.usage_half_life_time.total_seconds() <= 0:
        return 0.0
    return 1.0 - remaining_fraction(config, seconds)


def penalty_of(config: UsageFairSharing, amounts: Mapping[str, int]) -> Nanos:
    """Returns the entry penalty that the admission of a workload with these amounts adds to its
    LocalQueue's consumption."""
    share = reached_fraction(config, config.usage_sampling_interval.total_seconds())
    penalty = {resource: int(share * much) for resource, much in amounts.items()}
    return {resource: much for resource, much in penalty.items() if much}


def weighted_sum(config: UsageFairSharing, amounts: Mapping[str, int], weight: float) -> float:
    """Returns the number by which a LocalQueue is compared with others: the weighted sum of its
    consumption, in whole units, divided by its weight. Infinite for weight 0: the workloads of such
    a LocalQueue are always tried last."""
    if weight <= 0:
        return float("inf")
    total = 0.0
    for resource in sorted(amounts):
        total += config.resource_weights.get(resource, 1.0) * (amounts[resource] / NANO)
    return total / weight


def add(to: Nanos, amounts: Mapping[str, int], times: int = 1) -> None:
    """Adds the amounts to the map ``to`` in place, and removes the resources with the sum 0."""
    for resource, much in amounts.items():
        total = to.get(resource, 0) + times * much
        if total:
            to[resource] = total
        else:
            to.pop(resource, None)


class Account:
    """The account of what one LocalQueue consumes. ``consumed``: the consumption at the time
    ``since``, of the account's last change. ``rate``: the amounts of the LocalQueue's workloads
    that consume. ``pending``: the penalties of workloads that hold quota and do not consume
    yet. ``seen``: the consumption at ``sampled``, the time of the last sampling, plus the
    penalties of later admissions. ``value``: the number by which the LocalQueue is compared, from
    ``seen`` and ``pending``. Invariant: between two samplings an admission never lowers ``seen``,
    so a LocalQueue has no advantage from more frequent updates."""

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

    def __init__(self, config: UsageFairSharing, weight: float, since: datetime) -> None:
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
        """Whether the LocalQueue has consumed nothing and runs no workload, so that its consumption
        stays 0."""
        return not (self.consumed or self.rate or self.seen)

    def weigh(self) -> None:
        """Computes ``value`` from ``seen`` and ``pending``; called after one of them has
        changed."""
        amounts = self.seen
        if self.pending:
            amounts = dict(amounts)
            add(amounts, self.pending)
        self.value = weighted_sum(self.config, amounts, self.weight)

    def at(self, when: datetime) -> Nanos:
        """Returns the LocalQueue's consumption at the time ``when``; for a time before ``since``
        the consumption at ``since``."""
        return self._later(self.consumed, self.rate, (when - self.since).total_seconds())

    def _later(self, consumed: Nanos, rate: Mapping[str, int], seconds: float) -> Nanos:
        if seconds <= 0:
            return dict(consumed)
        kept = remaining_fraction(self.config, seconds)
        more = reached_fraction(self.config, seconds)
        decayed = {resource: int(kept * much) for resource, much in consumed.items()}
        add(decayed, {resource: int(more * much) for resource, much in rate.items()})
        return {resource: much for resource, much in decayed.items() if much}

    def restore(self, consumed: Nanos, since: datetime) -> None:
        """Sets the LocalQueue's consumption at the time ``since``, and removes all running
        workloads and penalties from the account."""
        self.consumed, self.since = dict(consumed), since
        self.rate, self.pending = {}, {}
        self.seen = dict(consumed)
        self.sampled = since
        self.weigh()

    def sample(self, when: datetime) -> None:
        """Samples the account: from now on the LocalQueue is compared by its consumption at the
        time ``when``."""
        if when > self.sampled:
            if not self.is_idle:
                self.seen = self.at(when)
                self.weigh()
            self.sampled = when

    def expect(self, penalty: Nanos) -> None:
        """Adds the penalty of a workload that got quota to ``pending``, until its admission."""
        add(self.pending, penalty)
        self.weigh()

    def excuse(self, penalty: Nanos) -> None:
        """Removes a penalty from ``pending``, because its workload lost its quota or was
        admitted."""
        add(self.pending, penalty, -1)
        self.weigh()

    def start(self, amounts: Nanos, penalty: Nanos, when: datetime) -> None:
        """Records the admission of a workload at the time ``when``, which may be long past: adds
        the penalty to the consumption, and the workload's amounts to ``rate``."""
        self._settle(when)
        # Consumption is linear, so what the workload consumed from its admission until the
        # account's last change can be added at once.
        add(self.consumed, self._later(penalty, amounts, (self.since - when).total_seconds()))
        add(self.seen, self._later(penalty, amounts, (self.sampled - when).total_seconds()))
        add(self.rate, amounts)
        self.weigh()

    def stop(self, amounts: Nanos, when: datetime) -> None:
        """Removes the amounts of an admitted workload from ``rate``, because it consumes nothing
        any more."""
        self._settle(when)
        add(self.rate, amounts, -1)

    def _settle(self, when: datetime) -> None:
        if when > self.since:
            self.consumed = self.at(when)
            self.since = when


def status_of(account: Account, at: datetime) -> ConsumedUsage:
    """Returns the record of an account's consumption at the time ``at``, with Kubernetes
    quantities."""
    return ConsumedUsage(
        consumed_resources={
            resource: quantity(resource, much) for resource, much in sorted(account.at(at).items())
        },
        last_update=at,
    )


def quantity(resource: str, much: int) -> str:
    """Returns an amount in billionths as a Kubernetes quantity, with the coarsest exact suffix."""
    if resource.startswith(WHOLE):
        return str(much // NANO)
    for suffix, unit in (("", NANO), ("m", 1_000_000), ("u", 1_000)):
        if much % unit == 0:
            return f"{much // unit}{suffix}"
    return f"{much}n"


def consumed_of(record: ConsumedUsage) -> Nanos:
    """Returns the quantities in a stored record of a LocalQueue's consumption as billionths; leaves
    out quantities that cannot be read."""
    amounts: Nanos = {}
    for resource, text in record.consumed_resources.items():
        try:
            much = int(parse(text) * NANO)
        except BadQuantity:
            continue
        if much > 0:
            amounts[resource] = much
    return amounts
