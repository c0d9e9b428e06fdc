"""Leading, as the leader elector drives the lease: epochs, liveness, barriers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from admittance.events import subjects
from admittance.events.names import plain, token
from admittance.events.system import Barrier, Epoch
from admittance.lease.lease_state import LeaseState, Takeover
from simulation.actors.service import Service
from simulation.kernel import Signal
from simulation.link import Unavailable
from simulation.stream import EXPECTED, FENCE, Outgoing, Refused, Stored

BEAT: Final = 2.5
"""Seconds between heartbeats."""

_encode = msgspec.json.Encoder().encode
_epoch = msgspec.json.Decoder(Epoch)


def fence(domain: str, epoch: int) -> dict[str, str]:
    """Headers with which the server refuses a message once epoch is not domain's last one."""
    return {EXPECTED: str(epoch), FENCE: f"{subjects.EPOCH}{token(domain)}"}


class Leading:
    """What one instance leads. ``changed`` is set whenever that may have changed."""

    def __init__(self, service: Service) -> None:
        self.lease = LeaseState(service.instance)
        self.changed = Signal()
        self.watching = Signal()
        self.failed = False
        """Taking did not succeed, and is to be tried again."""
        self._service = service
        self._known: set[str] = set()
        server = service.server
        server.on_alive.append(self._alive)
        server.log.on_stored.append(self._hear)
        service.closing.append(self._close)

    def _close(self) -> None:
        server = self._service.server
        server.on_alive.remove(self._alive)
        server.log.on_stored.remove(self._hear)

    def run(self) -> Any:
        """Says that we live, and hears who else does."""
        service = self._service
        server = service.server

        def arrive() -> list[str]:
            server.lives(service.kind, service.instance, True)
            return [who for kind, who in sorted(server.alive) if kind == service.kind]

        while True:
            try:
                found = yield from service.link.ask(arrive)
                break
            except Unavailable:
                continue
        for instance in found:
            self.lease.alive(instance)
        self.watching.set()
        self.changed.set()

    def _alive(self, kind: str, instance: str, alive: bool) -> None:
        if kind != self._service.kind:
            return

        def take() -> None:
            if alive:
                self.lease.alive(instance)
            else:
                self.lease.gone(instance)
            self.changed.set()

        service = self._service
        service.link.inwards(lambda: service.process.do(take))

    def _hear(self, stored: Stored) -> None:
        if not stored.subject.startswith(subjects.EPOCH):
            return
        service = self._service
        domain = plain(stored.subject.removeprefix(subjects.EPOCH))
        if domain not in self._known or service.link.is_deaf:
            return  # a plain subscription: what comes while nobody listens is gone

        def take() -> None:
            service.process.start(self._read_quietly([domain]))

        service.link.inwards(lambda: service.process.do(take))

    def _read_quietly(self, domains: Sequence[str]) -> Any:
        try:
            yield from self._read(domains)
        except Unavailable:
            return

    def take(self, domains: Iterable[str], *, barrier: bool) -> Any:
        """Takes those of the domains that nobody alive leads."""
        domains = list(domains)
        service = self._service
        self.failed = True
        fresh = [domain for domain in domains if domain not in self._known]
        if fresh:
            yield from self._read(fresh)
        wanted = self.lease.wanted(domains)
        if not wanted:
            self.failed = False
            return
        try:
            outcomes = yield from service.link.publish_all(
                service.server.publish, [self._take(take) for take in wanted]
            )
        except Unavailable:
            for take in wanted:
                self.lease.not_taken(take.domain)
            yield from self._read([take.domain for take in wanted])
            return
        taken: list[tuple[str, int]] = []
        refused: list[str] = []
        for take, outcome in zip(wanted, outcomes, strict=True):
            if isinstance(outcome, Refused):
                self.lease.not_taken(take.domain)
                refused.append(take.domain)
            elif self.lease.took(take.domain, outcome):
                taken.append((take.domain, outcome))
                service.tell(f"leads {take.domain} by epoch {outcome}")
        if refused:
            yield from self._read(refused)
        if barrier and service.mechanisms.barrier:
            yield from self._barriers(taken)
        else:
            for domain, epoch in taken:
                self.lease.echoed(domain, epoch)
        self.failed = False
        self.changed.set()

    def lost(self, domain: str) -> Any:
        """A decision was refused by the fence, or what became of it is unknown."""
        self.lease.lost(domain)
        self.changed.set()
        yield from self._read([domain])

    def _take(self, take: Takeover) -> Outgoing:
        said = Epoch(domain=take.domain, owner=self._service.instance)
        headers = {EXPECTED: str(take.expected)}
        return Outgoing(f"{subjects.EPOCH}{token(take.domain)}", _encode(said), headers)

    def _barriers(self, taken: Sequence[tuple[str, int]]) -> Any:
        if not taken:
            return
        service = self._service
        messages = [
            Outgoing(
                f"{subjects.BARRIER}{token(domain)}",
                _encode(Barrier(domain=domain, owner=service.instance, epoch=epoch)),
                fence(domain, epoch),
            )
            for domain, epoch in taken
        ]
        try:
            outcomes = yield from service.link.publish_all(service.server.publish, messages)
        except Unavailable:
            for domain, _ in taken:
                self.lease.lost(domain)
            return
        for (domain, _), outcome in zip(taken, outcomes, strict=True):
            if isinstance(outcome, Refused):
                yield from self.lost(domain)

    def _read(self, domains: Sequence[str]) -> Any:
        last = self._service.server.log.last
        found = yield from self._service.link.ask(
            lambda: [last.get(f"{subjects.EPOCH}{token(domain)}") for domain in domains]
        )
        for domain, stored in zip(domains, found, strict=True):
            self._known.add(domain)
            if stored is not None:
                owner = _epoch.decode(stored.data).owner
                if self.lease.epoch_seen(domain, stored.sequence, owner):
                    self._service.tell(f"lost {domain} to {owner}")
                self.changed.set()
