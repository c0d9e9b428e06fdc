"""Which domains an instance leads, and when it may decide for them.

An instance leads a domain while it holds the domain's epoch: the last message on
``admit.lease.epoch.<domain>``. States of a domain:

    vacant or foreign --take--> claimed --echo--> leading
          ^                        |                 |
          +------- lost -----------+-----------------+

*Claimed* is not yet *leading*: decisions of the predecessor may still be on their way into the
bucket. So the instance publishes a barrier after the epoch, and the barrier's echo shows that it
has read all of them. The heartbeat is separate from the epoch, so that renewing it does not move
the fence.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final, NamedTuple

# Domains. -------------------------------------------------------------------------------

CONTROLLER: Final = "service-workload-controller"
"""One domain for all workloads: preemptions and swaps would cross its parts."""
RETRY_TIMER: Final = "service-retry-timer"
"""One writer for the stream of timers."""
VARIANT_CONTROLLER: Final = "service-variant-controller"
"""One writer for each family."""
PROVISIONING_CHECK: Final = "service-provisioning-check"
"""One writer for all requests for capacity."""
PROVIDER_POOL: Final = "service-provider-pool"
"""One instance books machines, so it knows all bookings."""
PROVIDER_DOCKER: Final = "service-provider-docker"
"""One instance starts containers, so it knows all of them."""


def aws_domain(provisioning_class: str) -> str:
    """The domain of EC2's capacity reservations of one class: one account, one region."""
    return f"service-provider-aws-{provisioning_class}"


def cohort_domain(root: str) -> str:
    """The domain of a cohort tree, by its root."""
    return f"cohort-{root}"


def queue_domain(cluster_queue: str) -> str:
    """The domain of a ClusterQueue without a cohort."""
    return f"queue-{cluster_queue}"


class Fence(NamedTuple):
    """The epoch of a domain that a message was published under. The server accepted the message
    only because the domain had no newer epoch."""

    domain: str
    epoch: int


# Election. ------------------------------------------------------------------------------


class Takeover(NamedTuple):
    """A domain to take with a new epoch. ``expected``: the epoch before; 0 for the first."""

    domain: str
    expected: int


class _Held(NamedTuple):
    epoch: int
    echoed: bool


def _rank(instance: str, domain: str) -> bytes:
    return blake2b(f"{instance}\n{domain}".encode(), digest_size=8).digest()


class LeaseState:
    """What one instance knows about the leaders of all domains.

    Invariant: a domain is in `_held` only while no newer epoch of it was seen.
    """

    def __init__(self, instance: str) -> None:
        self.instance = instance
        self._epochs: dict[str, tuple[int, str]] = {}
        self._alive: set[str] = {instance}
        self._held: dict[str, _Held] = {}
        self._echoes: dict[str, int] = {}
        self._taking: set[str] = set()

    # Events. ------------------------------------------------------------------------

    def epoch_seen(self, domain: str, sequence: int, owner: str) -> bool:
        """Records an epoch on the log. True if it ends our leadership of the domain."""
        if sequence <= self._epochs.get(domain, (0, ""))[0]:
            return False
        self._epochs[domain] = (sequence, owner)
        held = self._held.get(domain)
        if held is not None and held.epoch < sequence:
            del self._held[domain]
            return True
        return False

    def known(self, domain: str) -> int:
        """The newest epoch of the domain that was seen; 0 before the first."""
        return self._epochs.get(domain, (0, ""))[0]

    def forgotten(self, domain: str, epoch: int) -> bool:
        """Records that the log no longer holds the domain's newest epoch, because it is older than
        what the log keeps. True if that ends our leadership: the server refuses every message
        fenced with it, and the next epoch expects 0."""
        if self.known(domain) != epoch:
            return False
        self._epochs.pop(domain, None)
        return self._held.pop(domain, None) is not None

    def alive(self, instance: str) -> bool:
        """Records a heartbeat of an instance. True if it was not known to be alive."""
        news = instance not in self._alive
        self._alive.add(instance)
        return news

    def gone(self, instance: str) -> bool:
        """Records that the heartbeat of an instance expired. True if it was alive until now."""
        news = instance != self.instance and instance in self._alive
        if news:
            self._alive.remove(instance)
        return news

    def echoed(self, domain: str, epoch: int) -> bool:
        """Records the echo of a barrier. True if this instance leads the domain from now on."""
        self._echoes[domain] = max(epoch, self._echoes.get(domain, 0))
        held = self._held.get(domain)
        if held is None or held.echoed or epoch < held.epoch:
            return False
        self._held[domain] = _Held(held.epoch, echoed=True)
        return True

    # Actions. -----------------------------------------------------------------------

    def wanted(self, domains: Iterable[str]) -> list[Takeover]:
        """The domains that this instance should take now: those without a live leader for which it
        is the heir.

        An epoch under our own name that we do not hold comes from an earlier process of this
        instance. It is replaced at once, without waiting for a heartbeat to expire.
        """
        takeovers = []
        for domain in domains:
            if domain in self._held or domain in self._taking:
                continue
            sequence, owner = self._epochs.get(domain, (0, ""))
            ours_before = owner == self.instance
            if not ours_before and owner in self._alive:
                continue
            if not ours_before and self._heir(domain) != self.instance:
                continue
            self._taking.add(domain)
            takeovers.append(Takeover(domain, sequence))
        return takeovers

    def took(self, domain: str, epoch: int) -> bool:
        """Records that our epoch is on the log. False if a newer epoch is known already."""
        self._taking.discard(domain)
        known, _ = self._epochs.get(domain, (0, ""))
        if known > epoch:
            return False
        self._epochs[domain] = (epoch, self.instance)
        self._held[domain] = _Held(epoch, echoed=self._echoes.get(domain, 0) >= epoch)
        return True

    def not_taken(self, domain: str) -> None:
        """Records a failed takeover: another instance was faster, or the outcome is unknown."""
        self._taking.discard(domain)

    def lost(self, domain: str) -> None:
        """Ends our leadership: the fence refused a decision, or its outcome is unknown."""
        self._held.pop(domain, None)

    def drop(self, domain: str) -> None:
        """Forgets a domain that no longer exists."""
        self._held.pop(domain, None)
        self._taking.discard(domain)

    def _heir(self, domain: str) -> str:
        # Highest random weight: every live instance computes the same heir without messages, and
        # only the domains of a dead instance move.
        return max(self._alive, key=lambda instance: _rank(instance, domain))

    # State. -------------------------------------------------------------------------

    def fence(self, domain: str) -> int | None:
        """The epoch that fences our decisions; None while we may not decide for the domain."""
        held = self._held.get(domain)
        return held.epoch if held is not None and held.echoed else None

    def held(self, domain: str) -> int | None:
        """The epoch that we hold, whether or not its barrier was echoed."""
        held = self._held.get(domain)
        return held.epoch if held is not None else None

    def leads(self) -> list[str]:
        """The domains that we may decide for, sorted."""
        return sorted(domain for domain, held in self._held.items() if held.echoed)

    def led(self, domain: str) -> bool:
        """Whether a live instance, this one included, holds the newest epoch."""
        owner = self.owner(domain)
        return domain in self._held or (owner != self.instance and owner in self._alive)

    def owner(self, domain: str) -> str:
        """The instance with the newest epoch of the domain; empty before the first epoch."""
        return self._epochs.get(domain, (0, ""))[1]
