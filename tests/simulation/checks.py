"""Check controllers as they come: at once, late, twice, out of order, never, of two minds, dying.

Each controller has two replicas on one durable: a request goes to one of them, now and then to
both, and whatever was not answered is handed out again when one comes back. In the end, when
``calm``, everything that is open is answered once with Ready.
"""

from __future__ import annotations

from random import Random
from typing import Final, NamedTuple

import msgspec

from admittance.events.codec import encode
from admittance.events.facts import CheckReported, CheckRequested, CheckWithdrawn
from admittance.events.shapes import PodSetUpdate
from admittance.events.subjects import subject_of
from admittance.provisioning.observed_state import CONTROLLER
from simulation.kernel import Kernel
from simulation.server import Server
from simulation.story import Story
from simulation.stream import MESSAGE_ID, Outgoing, Stored

REQUESTED: Final = "admit.check.requested."
WITHDRAWN: Final = "admit.check.withdrawn."
DELAYS: Final = (None, None, 0, 1, "5s", 20)
"""Seconds that a Retry asks for."""
NEEDS_ROOM: Final = ("PreemptionRequired", "BookQuotaRequired", "BookCapacity")
LONG: Final = 330.0
_requested = msgspec.json.Decoder(CheckRequested)
_withdrawn = msgspec.json.Decoder(CheckWithdrawn)

Open = tuple[str, str, str, str, int]
"""Check, namespace, name, uid and cycle."""


class Tempers(NamedTuple):
    """How controllers behave: weights of the courses that an answer takes, and chances."""

    ready: float = 10.0
    retry: float = 3.0
    pending: float = 2.0
    rejected: float = 0.7
    never: float = 0.3
    turns: float = 1.0
    """Ready first, and another verdict later."""
    demands: float = 0.0
    """Wants others to be preempted before it judges."""
    wrong: float = 0.1
    """Names another cycle."""
    foreign: float = 0.0
    """Speaks of what is not its own: another's check, another uid, a state that nobody knows."""
    updates: float = 0.0
    """Adds something to the pods, which another check may contradict."""
    long: float = 0.0
    """Takes longer than anybody has patience, more than `LONG` seconds."""
    stubborn: float = 0.0
    """Says Retry without a delay, whatever it is asked."""


class Outage(NamedTuple):
    """A replica is gone for so long."""

    at: float
    replica: int
    seconds: float


class Checks:
    """All of them. ``calm``: from now on they do what is asked of them."""

    def __init__(
        self,
        kernel: Kernel,
        server: Server,
        story: Story,
        tempers: Tempers = Tempers(),  # noqa: B008
        outages: tuple[Outage, ...] = (),
    ) -> None:
        self._kernel = kernel
        self._server = server
        self._story = story
        self._tempers = tempers
        self._number = 0
        self._lives = [0, 0]
        self._gone: set[int] = set()
        self.open: dict[Open, CheckRequested] = {}
        self.calm = False
        self.others = {CONTROLLER}
        """Controllers that are services, and no actors."""
        server.log.on_stored.append(self._hear)
        for outage in outages:
            kernel.at(outage.at, lambda outage=outage: self._die(outage))  # type: ignore[misc]

    def settle(self) -> None:
        """Everybody is well from now on, and answers what is open."""
        self.calm = True
        self._gone.clear()
        for request in list(self.open.values()):
            self._judge(request, 0)

    def _hear(self, stored: Stored) -> None:
        if stored.subject.startswith(REQUESTED):
            request = _requested.decode(stored.data)
            if request.controller in self.others:
                return
            self.open[_key(request)] = request
            rng = self._kernel.rng
            here = [one for one in (0, 1) if one not in self._gone]
            if here:
                self._judge(request, rng.choice(here))
            if len(here) == 2 and not self.calm and rng.random() < 0.1:
                self._judge(request, rng.choice(here))
        elif stored.subject.startswith(WITHDRAWN):
            withdrawn = _withdrawn.decode(stored.data)
            self.open.pop(_key(withdrawn), None)

    # Lives. -----------------------------------------------------------------------------

    def _die(self, outage: Outage) -> None:
        if self.calm:
            return
        self._story.tell("checks", f"replica {outage.replica} is gone for {outage.seconds:.1f} s")
        self._lives[outage.replica] += 1
        self._gone.add(outage.replica)
        self._kernel.after(outage.seconds, lambda: self._come_back(outage.replica))

    def _come_back(self, replica: int) -> None:
        if replica in self._gone:
            self._gone.discard(replica)
            for request in list(self.open.values()):
                self._judge(request, replica)

    # Judging. ---------------------------------------------------------------------------

    def _judge(self, request: CheckRequested, replica: int) -> None:
        rng = self._kernel.rng
        if self.calm:
            self._report(request, replica, "Ready", rng.random())
            return
        tempers = self._tempers
        kind = rng.choices(Tempers._fields[:7], weights=tempers[:7])[0]
        delay = rng.random() * rng.choice((0.01, 0.1, 1.0, 12.0))
        if tempers.long and rng.random() < tempers.long:
            delay += LONG + rng.random() * 60.0
        if rng.random() < tempers.stubborn:
            self._report(request, replica, "Retry", delay, after=None)
            return
        match kind:
            case "ready":
                self._report(request, replica, "Ready", delay)
            case "rejected":
                self._report(request, replica, "Rejected", delay)
            case "retry":
                self._report(request, replica, "Retry", delay)
                if rng.random() < 0.3:
                    delay += rng.random() * rng.choice((0.1, 6.0))
                    state = rng.choice(("Retry", "Retry", "Ready", "Pending", "Rejected"))
                    self._report(request, replica, state, delay)
            case "pending":
                self._report(request, replica, "Pending", delay)
                self._report(request, replica, "Ready", delay + rng.random() * 3.0)
            case "demands":
                self._report(request, replica, "Pending", delay, rng.choice(NEEDS_ROOM))
                self._report(request, replica, "Ready", delay + rng.random() * 8.0)
            case "turns":
                self._report(request, replica, "Ready", delay)
                delay += rng.random() * rng.choice((0.05, 2.0, 15.0))
                state = rng.choice(("Retry", "Retry", "Pending", "Rejected"))
                self._report(request, replica, state, delay)

    def _report(
        self,
        request: CheckRequested,
        replica: int,
        state: str,
        delay: float,
        reason: str = "",
        after: int | str | None = -1,
    ) -> None:
        """``after``: what a Retry asks for; -1: anything."""
        rng = self._kernel.rng
        if after == -1:
            after = rng.choice(DELAYS) if state == "Retry" else None
        tempers = self._tempers
        report = CheckReported(
            namespace=request.namespace,
            name=request.name,
            uid=request.uid,
            controller=request.controller,
            check=request.check,
            cycle=request.cycle,
            state=state,
            message="so",
            reason=reason,
            requeue_after_seconds=after,
            pod_set_updates=_updates(rng) if rng.random() < tempers.updates else (),
        )
        if not self.calm and rng.random() < tempers.wrong:
            report = msgspec.structs.replace(report, cycle=request.cycle + rng.choice((-2, -1, 1)))
        if not self.calm and rng.random() < tempers.foreign:
            report = _foreign(report, rng)
        self._number += 1
        message = Outgoing(
            subject_of(report), encode(report), {MESSAGE_ID: f"check/{self._number}"}
        )
        kernel, life = self._kernel, self._lives[replica]

        def speak() -> None:
            if self._lives[replica] == life:
                if state in ("Ready", "Rejected"):
                    self.open.pop(_key(request), None)
                self._server.publish(message)

        kernel.after(delay, speak)
        if rng.random() < 0.1:
            kernel.after(delay + rng.random() * 5.0, speak)
        if rng.random() < 0.03 and not self.calm:
            # After the window of message ids: the state is what makes it harmless.
            kernel.after(delay + 121.0, speak)


def _key(about: CheckRequested | CheckWithdrawn) -> Open:
    return about.check, about.namespace, about.name, about.uid, about.cycle


def _updates(rng: Random) -> tuple[PodSetUpdate, ...]:
    # Few keys and values, so that two checks agree now and then, and contradict each other, too.
    key = rng.choice(("zone", "rack"))
    value = rng.choice(("a", "a", "b"))
    if rng.random() < 0.5:
        return (PodSetUpdate(name="main", labels={key: value}),)
    return (PodSetUpdate(name="main", node_selector={key: value}),)


def _foreign(report: CheckReported, rng: Random) -> CheckReported:
    match rng.choice(("controller", "uid", "state", "delay", "check")):
        case "controller":
            return msgspec.structs.replace(report, controller="ctl-stranger")
        case "uid":
            return msgspec.structs.replace(report, uid="another")
        case "state":
            return msgspec.structs.replace(report, state="Maybe")
        case "delay":
            return msgspec.structs.replace(report, requeue_after_seconds=-5)
    return msgspec.structs.replace(report, check="unheard-of")


__all__ = ["Checks", "Outage", "Tempers"]
