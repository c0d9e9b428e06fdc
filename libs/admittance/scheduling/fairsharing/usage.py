"""What a LocalQueue has consumed, as a function of time.

What was consumed fades: half of it counts no more after the half-life. What is admitted now adds to
it as long as it runs, so that a steady use is approached and never exceeded. Whoever is admitted is
charged one sampling interval of its use at once, the entry penalty: else one LocalQueue could take
everything between two samplings. Source: `docs/spec/scheduling.md#7.4`.

Both laws are linear, so a value does not depend on when it was looked at: it is settled at every
change of what runs, and computed in between. Amounts are whole billionths of a unit, since a
penalty that is taken back must leave nothing behind that would break a tie.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec

from admittance.api.units import BadQuantity, parse
from admittance.events.shapes import ConsumedUsage

Nanos = dict[str, int]
"""Resource to billionths of a whole unit; nothing stands for none."""

NANO: Final = 1_000_000_000
CPU_MILLI: Final = NANO // 1_000
WHOLE: Final = ("memory", "ephemeral-storage", "hugepages-")
"""Resources that are counted in bytes: nobody wants to read billionths of one."""


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
    """Which part of what was consumed still counts so many seconds later."""
    if seconds <= 0:
        return 1.0
    half_life = config.usage_half_life_time.total_seconds()
    return 0.5 ** (seconds / half_life) if half_life > 0 else 0.0


def gained(config: AdmissionFairSharing, seconds: float) -> float:
    """Which part of a steady use is consumed after so many seconds; without a half-life nothing is
    remembered, so none."""
    if config.usage_half_life_time.total_seconds() <= 0:
        return 0.0
    return 1.0 - left(config, seconds)


def penalty_of(config: AdmissionFairSharing, amounts: Mapping[str, int]) -> Nanos:
    """What an admission costs at once."""
    share = gained(config, config.usage_sampling_interval.total_seconds())
    found = {resource: int(share * much) for resource, much in amounts.items()}
    return {resource: much for resource, much in found.items() if much}


def weighed(config: AdmissionFairSharing, amounts: Mapping[str, int], weight: float) -> float:
    """What LocalQueues are compared by: the weighted sum of what they consumed, in whole units,
    over their own weight. Infinite without a weight: such a queue goes last, used or not."""
    if weight <= 0:
        return float("inf")
    total = 0.0
    for resource in sorted(amounts):
        total += config.resource_weights.get(resource, 1.0) * (amounts[resource] / NANO)
    return total / weight


def add(to: Nanos, amounts: Mapping[str, int], times: int = 1) -> None:
    """Adds in place; what comes to nothing is left out."""
    for resource, much in amounts.items():
        total = to.get(resource, 0) + times * much
        if total:
            to[resource] = total
        else:
            to.pop(resource, None)


class Account:
    """The consumption of one LocalQueue.

    ``consumed``: as of ``since``. ``rate``: what its admitted workloads hold. ``pending``:
    penalties of those that hold quota and are not admitted yet. ``seen``: consumed as of the
    sampling ``sampled``, and penalties settled since. ``value``: what it is compared by, seen and
    pending weighed.
    Invariant: between two samplings an admission never lowers what is seen, so that nobody gains
    by being looked at more often than others.
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
        """Nothing was consumed, nothing runs: no time makes a difference."""
        return not (self.consumed or self.rate or self.seen)

    def weigh(self) -> None:
        """Keeps value true after something changed."""
        amounts = self.seen
        if self.pending:
            amounts = dict(amounts)
            add(amounts, self.pending)
        self.value = weighed(self.config, amounts, self.weight)

    def at(self, when: datetime) -> Nanos:
        """What is consumed at a moment; before the last change: as of that."""
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
        """It had consumed so much then, and nothing is known to run."""
        self.consumed, self.since = dict(consumed), since
        self.rate, self.pending = {}, {}
        self.seen = dict(consumed)
        self.sampled = since
        self.weigh()

    def sample(self, when: datetime) -> None:
        """Compared by what is consumed at that moment from now on."""
        if when > self.sampled:
            if not self.is_idle:
                self.seen = self.at(when)
                self.weigh()
            self.sampled = when

    def expect(self, penalty: Nanos) -> None:
        """A workload got quota; it pays once it is admitted."""
        add(self.pending, penalty)
        self.weigh()

    def excuse(self, penalty: Nanos) -> None:
        """It has lost the quota, or pays now."""
        add(self.pending, penalty, -1)
        self.weigh()

    def start(self, amounts: Nanos, penalty: Nanos, when: datetime) -> None:
        """A workload is admitted since then, which may be long past: it pays its penalty and uses
        as much."""
        self._settle(when)
        # What was missed is added: all of it is linear.
        add(self.consumed, self._later(penalty, amounts, (self.since - when).total_seconds()))
        add(self.seen, self._later(penalty, amounts, (self.sampled - when).total_seconds()))
        add(self.rate, amounts)
        self.weigh()

    def stop(self, amounts: Nanos, when: datetime) -> None:
        """An admitted workload holds nothing any more."""
        self._settle(when)
        add(self.rate, amounts, -1)

    def _settle(self, when: datetime) -> None:
        if when > self.since:
            self.consumed = self.at(when)
            self.since = when


def status_of(account: Account, at: datetime) -> ConsumedUsage:
    """What is consumed at that moment, as quantities."""
    return ConsumedUsage(
        consumed_resources={
            resource: quantity(resource, much) for resource, much in sorted(account.at(at).items())
        },
        last_update=at,
    )


def quantity(resource: str, much: int) -> str:
    """Billionths as Kubernetes writes them, with the coarsest suffix that loses nothing."""
    if resource.startswith(WHOLE):
        return str(much // NANO)
    for suffix, unit in (("", NANO), ("m", 1_000_000), ("u", 1_000)):
        if much % unit == 0:
            return f"{much // unit}{suffix}"
    return f"{much}n"


def consumed_of(record: ConsumedUsage) -> Nanos:
    """Quantities as billionths; what cannot be read is nothing."""
    found: Nanos = {}
    for resource, text in record.consumed_resources.items():
        try:
            much = int(parse(text) * NANO)
        except BadQuantity:
            continue
        if much > 0:
            found[resource] = much
    return found
