"""Which domains an instance leads, and when it may decide for them.

Leading a domain means holding its epoch: the last message on ``admit.lease.epoch.<domain>``. The
machine goes, per domain:

    vacant or foreign --take--> claimed --echo--> leading
          ^                        |                 |
          +------- lost -----------+-----------------+

*Claimed* is not yet *leading*: decisions of the predecessor may still be on their way into the
bucket, so a barrier is stated after the epoch, and only its echo says that the picture is
complete. Liveness is separate from the epoch, so that renewing it does not move the fence.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import NamedTuple


class Takeover(NamedTuple):
    """Take ``domain`` by an epoch that expects ``expected`` as the last one (0: none yet)."""

    domain: str
    expected: int


class _Held(NamedTuple):
    epoch: int
    echoed: bool


def _rank(instance: str, domain: str) -> bytes:
    return blake2b(f"{instance}\n{domain}".encode(), digest_size=8).digest()


class Tenure:
    """What one instance knows of who leads.

    Invariant: a domain is in `_held` only while no newer epoch of it was seen.
    """

    def __init__(self, instance: str) -> None:
        self.instance = instance
        self._epochs: dict[str, tuple[int, str]] = {}
        self._alive: set[str] = {instance}
        self._held: dict[str, _Held] = {}
        self._echoes: dict[str, int] = {}
        self._taking: set[str] = set()

    # What is heard. -----------------------------------------------------------------

    def epoch_seen(self, domain: str, sequence: int, owner: str) -> bool:
        """An epoch on the log. True when it ends a tenure of ours."""
        if sequence <= self._epochs.get(domain, (0, ""))[0]:
            return False
        self._epochs[domain] = (sequence, owner)
        held = self._held.get(domain)
        if held is not None and held.epoch < sequence:
            del self._held[domain]
            return True
        return False

    def known(self, domain: str) -> int:
        """The newest epoch of the domain that was seen; 0: none."""
        return self._epochs.get(domain, (0, ""))[0]

    def forgotten(self, domain: str, epoch: int) -> bool:
        """The log has no epoch of the domain any more: the newest one, of which we knew, is older
        than what the log keeps. True when it ends a tenure of ours: the server refuses whatever
        carries it, and the next epoch follows none."""
        if self.known(domain) != epoch:
            return False
        self._epochs.pop(domain, None)
        return self._held.pop(domain, None) is not None

    def alive(self, instance: str) -> None:
        """A heartbeat of an instance is there."""
        self._alive.add(instance)

    def gone(self, instance: str) -> None:
        """The heartbeat of an instance ran out."""
        if instance != self.instance:
            self._alive.discard(instance)

    def echoed(self, domain: str, epoch: int) -> bool:
        """The echo of a barrier came through the bucket. True when we lead from now on."""
        self._echoes[domain] = max(epoch, self._echoes.get(domain, 0))
        held = self._held.get(domain)
        if held is None or held.echoed or epoch < held.epoch:
            return False
        self._held[domain] = _Held(held.epoch, echoed=True)
        return True

    # What is done. ------------------------------------------------------------------

    def wanted(self, domains: Iterable[str]) -> list[Takeover]:
        """The domains to take now: nobody alive leads them, and it is our turn.

        An epoch under our own name that we do not hold is one of an earlier life: it is taken
        anew at once, without waiting for any heartbeat to run out.
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
        """Our epoch is on the log. False when a newer one is already known."""
        self._taking.discard(domain)
        known, _ = self._epochs.get(domain, (0, ""))
        if known > epoch:
            return False
        self._epochs[domain] = (epoch, self.instance)
        self._held[domain] = _Held(epoch, echoed=self._echoes.get(domain, 0) >= epoch)
        return True

    def not_taken(self, domain: str) -> None:
        """Taking failed: somebody was faster, or the outcome is unknown."""
        self._taking.discard(domain)

    def lost(self, domain: str) -> None:
        """A decision was refused by the fence, or its outcome is unknown: stop deciding."""
        self._held.pop(domain, None)

    def drop(self, domain: str) -> None:
        """The domain is no more."""
        self._held.pop(domain, None)
        self._taking.discard(domain)

    def _heir(self, domain: str) -> str:
        # Highest random weight: every live instance computes the same heir without asking, and
        # only the domains of a dead one move.
        return max(self._alive, key=lambda instance: _rank(instance, domain))

    # What is so. --------------------------------------------------------------------

    def fence(self, domain: str) -> int | None:
        """The epoch to decide under; None while we may not decide for the domain."""
        held = self._held.get(domain)
        return held.epoch if held is not None and held.echoed else None

    def held(self, domain: str) -> int | None:
        """The epoch we hold, whether or not its barrier has come back."""
        held = self._held.get(domain)
        return held.epoch if held is not None else None

    def leads(self) -> list[str]:
        """The domains we may decide for, sorted."""
        return sorted(domain for domain, held in self._held.items() if held.echoed)

    def led(self, domain: str) -> bool:
        """Whether an instance that is alive, this one included, holds the newest epoch."""
        owner = self.owner(domain)
        return domain in self._held or (owner != self.instance and owner in self._alive)

    def owner(self, domain: str) -> str:
        """Who holds the newest epoch of the domain; "" when nobody ever did."""
        return self._epochs.get(domain, (0, ""))[1]
