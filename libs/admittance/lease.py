"""Leader election: which domains an instance of a service leads, and when the instance may decide
for them.

An instance leads a domain while it holds the domain's epoch: the last message on
``admit.lease.epoch.<domain>``. States of a domain:

    vacant or foreign --take--> claimed --echo--> leading
          ^                        |                 |
          +------- lost -----------+-----------------+

*Claimed* is not yet *leading*: decisions of the predecessor may still be on their way into the
bucket. Therefore a new leader publishes a barrier after its epoch. When the new leader reads the
barrier's echo, it has read all decisions of its predecessor. An instance's heartbeat is a message
of its own, separate from the epoch, so that renewing the heartbeat does not change the fence."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import NamedTuple

# Domains. -------------------------------------------------------------------------------


def service_domain(service: str, part: str = "") -> str:
    """Returns the domain of a service with one writer: preemptions would cross the borders of
    smaller domains, and timers, families, requests and bookings have one writer each. ``part``: the
    part of the service's work with a leader of its own, such as a provisioning class; "": all."""
    return f"service-{service}-{part}" if part else f"service-{service}"


class Fence(NamedTuple):
    """The epoch of a domain under which a leader published a message. The NATS server accepts a
    message with a fence only while the domain has no newer epoch."""

    domain: str
    epoch: int


# Election. ------------------------------------------------------------------------------


class Takeover(NamedTuple):
    """A domain of which the instance should take the lead with a new epoch. ``expected``: the
    newest epoch so far; 0 before the first epoch."""

    domain: str
    expected: int


class _Held(NamedTuple):
    epoch: int
    echoed: bool


def _rank(instance: str, domain: str) -> bytes:
    return blake2b(f"{instance}\n{domain}".encode(), digest_size=8).digest()


class LeaseState:
    """The knowledge of one instance about the leaders of all domains.

    Invariant: a domain is in `_held` only while no newer epoch of it was seen."""

    def __init__(self, instance: str) -> None:
        self.instance = instance
        self._epochs: dict[str, tuple[int, str]] = {}
        self._alive: set[str] = {instance}
        self._held: dict[str, _Held] = {}
        self._echoes: dict[str, int] = {}
        self._taking: set[str] = set()

    # Events. ------------------------------------------------------------------------

    def epoch_seen(self, domain: str, sequence: int, owner: str) -> bool:
        """Records an epoch that was read from the log. Returns True if the epoch ends this
        instance's leadership of the domain."""
        if sequence <= self.known(domain):
            return False
        self._epochs[domain] = (sequence, owner)
        return self._held.pop(domain, None) is not None

    def known(self, domain: str) -> int:
        """The newest epoch of the domain that this instance has seen; 0 before the first epoch."""
        return self._newest(domain)[0]

    def forgotten(self, domain: str, epoch: int) -> bool:
        """Records that the log no longer holds ``epoch``, the domain's newest epoch, because the
        epoch is older than the messages that the log keeps. Returns True if the missing epoch ends
        this instance's leadership of the domain: the server refuses every message that is fenced
        with the lost epoch, and the next epoch expects 0. The owner of the lost epoch is to take
        the domain again: the other instances do not notice that the epoch is gone."""
        if self.known(domain) != epoch:
            return False
        self._epochs[domain] = (0, self.owner(domain))
        return self._held.pop(domain, None) is not None

    def alive(self, instance: str) -> bool:
        """Records a heartbeat of an instance. Returns True if the instance was not known to be
        alive before."""
        news = instance not in self._alive
        self._alive.add(instance)
        return news

    def gone(self, instance: str) -> bool:
        """Records that the heartbeat of an instance expired. Returns True if the instance was known
        to be alive until now."""
        news = instance != self.instance and instance in self._alive
        if news:
            self._alive.remove(instance)
        return news

    def echoed(self, domain: str, epoch: int) -> bool:
        """Records the echo of a domain's barrier. Returns True if this instance leads the domain
        from now on."""
        self._echoes[domain] = max(epoch, self._newest_echo(domain))
        held = self._held.get(domain)
        if held is None or held.echoed or epoch < held.epoch:
            return False
        self._held[domain] = _Held(held.epoch, echoed=True)
        return True

    # Actions. -----------------------------------------------------------------------

    def domains_to_take(self, domains: Iterable[str]) -> list[Takeover]:
        """Returns the domains that this instance should take now: domains without a live leader
        that this instance is to lead next.

        An epoch that has the name of this instance and is not held by this process comes from an
        earlier process of the instance. An epoch of an earlier process is replaced at once, without
        waiting for a heartbeat to expire."""
        takeovers = []
        for domain in domains:
            if domain in self._held or domain in self._taking:
                continue
            sequence, owner = self._newest(domain)
            ours_before = owner == self.instance
            if not ours_before and owner in self._alive:
                continue
            if not ours_before and self._next_leader(domain) != self.instance:
                continue
            self._taking.add(domain)
            takeovers.append(Takeover(domain, sequence))
        return takeovers

    def took(self, domain: str, epoch: int) -> bool:
        """Records that the log has stored an epoch that this instance published to take a domain.
        Returns False if a newer epoch of the domain is known already."""
        self._taking.discard(domain)
        if self.known(domain) > epoch:
            return False
        self._epochs[domain] = (epoch, self.instance)
        self._held[domain] = _Held(epoch, echoed=self._newest_echo(domain) >= epoch)
        return True

    def not_taken(self, domain: str) -> None:
        """Records that this instance failed to take over a domain: another instance was faster, or
        the outcome of the takeover is unknown."""
        self._taking.discard(domain)

    def lost(self, domain: str) -> None:
        """Ends the leadership of this instance for the domain: the fence refused a decision, or the
        outcome of a decision is unknown."""
        self._held.pop(domain, None)

    def drop(self, domain: str) -> None:
        """Removes a domain that no longer exists. If the domain exists again later, its newest
        epoch must be read from the log before the domain is taken."""
        self._held.pop(domain, None)
        self._taking.discard(domain)
        self._epochs.pop(domain, None)
        self._echoes.pop(domain, None)

    def _next_leader(self, domain: str) -> str:
        # Highest random weight: every live instance computes the same next leader without messages,
        # and only the domains of a dead instance move.
        return max(self._alive, key=lambda instance: _rank(instance, domain))

    # State. -------------------------------------------------------------------------

    def fence(self, domain: str) -> int | None:
        """The epoch of the domain with which this instance fences its decisions; None while the
        instance may not decide for the domain."""
        held = self._held.get(domain)
        return held.epoch if held is not None and held.echoed else None

    def held(self, domain: str) -> int | None:
        """The epoch of the domain that this instance holds, even if the echo of its barrier is
        still missing."""
        held = self._held.get(domain)
        return held.epoch if held is not None else None

    def leads(self) -> list[str]:
        """The domains that this instance may decide for, sorted."""
        return sorted(domain for domain, held in self._held.items() if held.echoed)

    def led(self, domain: str) -> bool:
        """Whether a live instance, this one included, holds the newest epoch of the domain."""
        owner = self.owner(domain)
        return domain in self._held or (owner != self.instance and owner in self._alive)

    def owner(self, domain: str) -> str:
        """The instance with the newest epoch of the domain; empty before the first epoch."""
        return self._newest(domain)[1]

    def _newest(self, domain: str) -> tuple[int, str]:
        return self._epochs.get(domain, (0, ""))

    def _newest_echo(self, domain: str) -> int:
        return self._echoes.get(domain, 0)
