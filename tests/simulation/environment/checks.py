"""Check controllers that answer at once, late, twice, out of order, never or with changing
verdicts, and that crash.

They are programs of the helper that ships. Each process runs a replica of every controller. In the
end, when the program is settled, all of them answer Ready.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Final, NamedTuple

from msgspec.structs import replace

from admittance.checks import (
    AdmissionCheckController,
    Pending,
    Ready,
    Rejected,
    Request,
    Retry,
    Verdict,
)
from admittance.events.codec import encode
from admittance.events.facts import CheckReported
from admittance.events.shapes import PodSetUpdate
from admittance.events.subjects import subject_of
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.process.settings import Settings
from admittance.runtime.tasks import task_group
from simulation.environment.programs import Program, Replica
from simulation.virtual_time.loop import VirtualLoop

DELAYS: Final = (None, None, 0, 1, "5s", 20)
"""Delays that a Retry may ask for."""
NEEDS_ROOM: Final = ("PreemptionRequired", "BookQuotaRequired", "BookCapacity")
LONG: Final = 330.0
WINDOW_SECONDS: Final = 121.0
"""Seconds after which the server has forgotten a message id."""


class CheckBehavior(NamedTuple):
    """How controllers behave: weights of the kinds of answers, and probabilities."""

    ready: float = 10.0
    retry: float = 3.0
    pending: float = 2.0
    rejected: float = 0.7
    never: float = 0.3
    turns: float = 1.0
    """The controller reports Ready first, and another verdict later."""
    demands: float = 0.0
    """The controller asks to preempt the victims before it gives a verdict."""
    wrong: float = 0.1
    """The controller also sends a verdict for another cycle."""
    foreign: float = 0.0
    """The controller also sends verdicts that it must not send: for another controller's check,
    with another uid, with an unknown state."""
    updates: float = 0.0
    """Adds something to the pods, which another check may contradict."""
    long: float = 0.0
    """The controller takes more than `LONG` seconds to answer."""
    repeats_retry: float = 0.0
    """The controller answers every request with Retry, without a delay."""


class Outage(NamedTuple):
    """A replica is gone for so long."""

    at: float
    replica: int
    seconds: float


class Checks(Program):
    """All check controllers of a story."""

    SERVICE = "check"

    def __init__(
        self, loop: VirtualLoop, rng: Random, behavior: CheckBehavior, controllers: Sequence[str]
    ) -> None:
        super().__init__(loop, rng)
        self.behavior = behavior
        self.controllers = controllers
        self.inactive: set[str] = set()

    async def run(self, bus: Bus, settings: Settings, *, stop: asyncio.Event) -> None:
        replica = CheckReplica(self, bus)
        self.join(replica)
        async with task_group() as tasks:
            for controller in replica.controllers.values():
                tasks.create_task(controller._work(bus, settings, stop), name=controller.name)

    def beat(self, controller: str, active: bool) -> None:
        """Makes the controller's heartbeats say that it is active, or not active."""
        (self.inactive.discard if active else self.inactive.add)(controller)
        for process, replica in self.replicas:
            assert isinstance(replica, CheckReplica)
            self.loop.post(process, replica.beat, controller, active)


class CheckReplica(Replica):
    """A replica of every controller, in one process."""

    def __init__(self, program: Checks, bus: Bus) -> None:
        super().__init__(program, bus)
        self._behavior = program.behavior
        self.controllers: dict[str, AdmissionCheckController] = {}
        for name in program.controllers:
            made = self.controllers[name] = AdmissionCheckController(name)
            made.check(partial(self.judge, name))
            if name in program.inactive:
                self.beat(name, False)

    def beat(self, controller: str, active: bool) -> None:
        owner = self.controllers.get(controller)
        if owner is not None:
            owner.active() if active else owner.inactive("so")

    async def judge(self, controller: str, request: Request) -> Verdict:
        rng, behavior = self.rng, self._behavior
        kind = rng.choices(CheckBehavior._fields[:7], weights=behavior[:7])[0]
        delay = rng.random() * rng.choice((0.01, 0.1, 1.0, 12.0))
        if behavior.long and rng.random() < behavior.long:
            delay += LONG + rng.random() * 60.0
        if await self.pause(delay):
            await asyncio.sleep(rng.random())
            return Ready("so")
        if rng.random() < behavior.repeats_retry:
            return Retry("so")
        match kind:
            case "rejected":
                return self._said(controller, request, Rejected("so"))
            case "retry":
                if rng.random() < 0.3:
                    turn = self._one_of("Retry", "Retry", "Ready", "Pending", "Rejected")
                    self.later(rng.random() * rng.choice((0.1, 6.0)), partial(request.report, turn))
                return self._said(controller, request, self._one_of("Retry"))
            case "pending":
                await request.report(Pending("so"))
                await self.pause(rng.random() * 3.0)
            case "demands":
                await request.report(Pending("so", reason=rng.choice(NEEDS_ROOM)))
                await self.pause(rng.random() * 8.0)
            case "turns":
                turn = self._one_of("Retry", "Retry", "Pending", "Rejected")
                after = rng.random() * rng.choice((0.05, 2.0, 15.0))
                self.later(after, partial(request.report, turn))
            case "never":
                await self.pause()
        return self._said(controller, request, self._one_of("Ready"))

    def _one_of(self, *states: str) -> Verdict:
        rng = self.rng
        match rng.choice(states):
            case "Ready":
                chance = self._behavior.updates
                return Ready("so", pod_set_updates=_updates(rng) if rng.random() < chance else ())
            case "Retry":
                return Retry("so", after=rng.choice(DELAYS))
            case "Pending":
                return Pending("so")
        return Rejected("so")

    def _said(self, controller: str, request: Request, verdict: Verdict) -> Verdict:
        """The verdict, which now and then comes twice, and beside one that does not count."""
        rng, behavior = self.rng, self._behavior
        report = CheckReported(
            namespace=request.namespace,
            name=request.name,
            uid=request.uid,
            controller=controller,
            check=request.check,
            cycle=request.cycle,
            state=verdict.state,
            message="so",
            requeue_after_seconds=verdict.seconds() if isinstance(verdict, Retry) else None,
            pod_set_updates=verdict.updates() if isinstance(verdict, Ready) else (),
        )
        strays = []
        if rng.random() < behavior.wrong:
            cycle = request.cycle + rng.choice((-2, -1, 1))
            strays.append((0.0, replace(report, cycle=cycle)))
        if rng.random() < behavior.foreign:
            strays.append((0.0, _foreign(report, rng)))
        if rng.random() < 0.1:
            strays.append((rng.random() * 5.0, report))
        if rng.random() < 0.03:
            strays.append((WINDOW_SECONDS, report))
        for delay, stray in strays:
            message = Outgoing(subject_of(stray), encode(stray))
            self.later(delay, partial(self.bus.publish, message))
        return verdict


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
            return replace(report, controller="ctl-stranger")
        case "uid":
            return replace(report, uid="another")
        case "state":
            return replace(report, state="Maybe")
        case "delay":
            return replace(report, requeue_after_seconds=-5)
    return replace(report, check="unheard-of")
