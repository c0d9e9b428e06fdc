"""A provider of capacity as it may be: at once, late, twice, never; it fails, expires, revokes, and
dies between booking and answering. What it has booked outlives it. In the end, when ``calm``, it
gives everybody what is asked for.

What it was asked is replayed when it comes back, in order, until it was dealt with.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from admittance.events import provisioning as facts
from admittance.events.codec import decode, encode
from admittance.events.subjects import subject_of
from admittance.provisioning.observed_state import CONTROLLER
from admittance.provisioning.verdicts import NOT_NEEDED
from admittance.workload import stored as workloads
from admittance.workload.conditions import Type, is_true
from admittance.workload.stored import StoredWorkload
from simulation.broken import Broken
from simulation.kernel import Kernel
from simulation.server import Server
from simulation.story import Story
from simulation.stream import Outgoing, Stored

CLASS: Final = "capacity"
PATIENCE: Final = timedelta(seconds=20)
ASKED: Final = ("admit.provisioning.requested.", "admit.provisioning.cancelled.")
WEIGHTS: Final = {
    "at once": 8.0,
    "late": 3.0,
    "never": 0.5,
    "fails": 3.0,
    "revokes": 1.0,
    "expires": 1.0,
    "dies": 2.0,
}
"""How it deals with a request."""


class Provider:
    """``booked``: ids that it keeps capacity for. ``given``: what it ever said was provisioned, as
    uid, check and cycle."""

    def __init__(self, kernel: Kernel, server: Server, story: Story) -> None:
        self._kernel = kernel
        self._server = server
        self._story = story
        self.booked: set[str] = set()
        self.given: set[tuple[str, str, int]] = set()
        self._freed: set[str] = set()
        self._said: dict[str, facts.ProvisioningStatus] = {}
        self._waiting: list[Stored] = []
        self._dead = False
        self._seq = 0
        self.calm = False
        self._runs: set[str] = set()
        server.log.on_stored.append(self._hear)
        server.bucket.on_stored.append(self._seen)

    def settle(self) -> None:
        """It is well from now on, and answers what is open."""
        self.calm = True
        self._back()
        for stored in self._server.log.messages:
            if stored.subject.startswith(ASKED[0]):
                self._take(stored)

    # What it is asked. ------------------------------------------------------------------

    def _hear(self, stored: Stored) -> None:
        if stored.subject.startswith(ASKED):
            self._waiting.append(stored)
            if not self._dead:
                self._kernel.after(self._kernel.rng.random() * 0.01, self._work)

    def _work(self) -> None:
        while self._waiting and not self._dead:
            self._take(self._waiting[0])
            if not self._dead:
                self._waiting.pop(0)

    def _take(self, stored: Stored) -> None:
        fact = decode(stored.subject, stored.data)
        if isinstance(fact, facts.ProvisioningCancelled):
            self.booked.discard(fact.id)
            self._freed.add(fact.id)
        elif isinstance(fact, facts.ProvisioningRequested):
            self._obtain(fact)

    def _obtain(self, fact: facts.ProvisioningRequested) -> None:
        if fact.id in self._freed:
            return
        known = self._said.get(fact.id)
        if known is not None and not (self.calm and isinstance(known, facts.Accepted)):
            self._publish(known)
            return
        rng = self._kernel.rng
        course = "at once"
        if not self.calm:
            course = rng.choices(list(WEIGHTS), weights=list(WEIGHTS.values()))[0]
        late = rng.random() * rng.choice((0.05, 1.0, 8.0))
        match course:
            case "never":
                return
            case "fails":
                failed = facts.ProvisioningFailed
                self._answers(fact, failed, late, retryable=rng.random() < 0.95)
                return
            case "dies" if fact.id not in self.booked:
                self._book(fact)
                self._die()
                return
            case "late":
                self._answers(fact, facts.Accepted, 0.0)
                late += rng.random() * rng.choice((5.0, 30.0))
        self._book(fact)
        self._answers(fact, facts.Provisioned, late if course != "at once" else late / 8)
        if rng.random() < 0.2:
            self._answers(fact, facts.Provisioned, late + rng.random() * 5.0)
        after = late + rng.random() * rng.choice((0.1, 3.0, 15.0))
        if course == "revokes":
            self._answers(fact, facts.CapacityRevoked, after)
        elif course == "expires":
            self._answers(fact, facts.BookingExpired, after)

    def _book(self, fact: facts.ProvisioningRequested) -> None:
        self.booked.add(fact.id)
        attempt = fact.id.partition("~")[0]
        same = [one for one in self.booked if one.partition("~")[0] == attempt]
        if len(same) > 1:
            raise Broken(f"booked twice for one attempt: {sorted(same)}")

    def _die(self) -> None:
        self._story.tell("provider", "dies between booking and answering")
        self._dead = True
        self._kernel.after(self._kernel.rng.random() * 12.0, self._back)

    def _back(self) -> None:
        self._dead = False
        self._work()

    # What it says. ----------------------------------------------------------------------

    def _answers(
        self,
        to: facts.ProvisioningRequested,
        kind: type[facts.ProvisioningStatus],
        delay: float,
        *,
        retryable: bool = True,
    ) -> None:
        def speak() -> None:
            if to.id in self._freed:
                return
            self._seq += 1
            more = {} if kind is not facts.ProvisioningFailed else {"retryable": retryable}
            fact = kind(
                namespace=to.namespace,
                name=to.name,
                uid=to.uid,
                provisioning_class=to.provisioning_class,
                id=to.id,
                message="so",
                seq=self._seq,
                **more,  # type: ignore[arg-type]
            )
            self._said[to.id] = fact
            if kind is facts.Provisioned:
                self.given.add((to.uid, to.check, to.cycle))
            elif kind is not facts.Accepted:
                self.booked.discard(to.id)
            self._publish(fact)

        self._kernel.after(delay, speak)

    def _publish(self, fact: facts.ProvisioningStatus) -> None:
        self._server.publish(Outgoing(subject_of(fact), encode(fact)))

    # What must hold. --------------------------------------------------------------------

    def _seen(self, stored: Stored) -> None:
        if not stored.subject.startswith("workload.") or stored.gone:
            return
        workload = workloads.decode(stored.data)
        key = f"{workload.metadata.uid}/{workload.status.admission_cycle}"
        if not is_true(workload, Type.ADMITTED):
            return
        if key not in self._runs:
            self._runs.add(key)
            self._check(stored.subject, workload)

    def _check(self, key: str, workload: StoredWorkload) -> None:
        """Nobody is admitted without the capacity that it needs."""
        status = workload.status
        for row in status.admission_checks:
            if row.name not in self._ours() or row.state != "Ready" or row.message == NOT_NEEDED:
                continue
            if (workload.metadata.uid, row.name, status.admission_cycle) not in self.given:
                raise Broken(f"{key} is admitted without its capacity")

    def _ours(self) -> set[str]:
        found = set()
        for key, stored in self._server.bucket.last.items():
            if key.startswith("admissioncheck.") and CONTROLLER.encode() in stored.data:
                found.add(key.partition(".")[2])
        return found

    def check_end(self) -> None:
        """Nothing is booked for nobody, and no request is kept of one that has gone."""
        holders = set()
        for key, stored in self._server.bucket.last.items():
            if key.startswith("workload.") and not stored.gone:
                workload = workloads.decode(stored.data)
                if not is_true(workload, Type.FINISHED):
                    holders.add(workload.metadata.uid)
        for one in sorted(self.booked):
            if one.partition("/")[0] not in holders:
                raise Broken(f"{one} is booked for nobody")
        for key, stored in self._server.bucket.last.items():
            if key.startswith("provisioningrequest.") and not stored.gone:
                raise Broken(f"{key} is still kept")


__all__ = ["CLASS", "PATIENCE", "Provider"]
