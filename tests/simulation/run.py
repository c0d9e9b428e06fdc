"""One run: from a seed to a result."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from random import Random
from typing import NamedTuple

from admittance.scheduling.scheduler import Scheduler
from simulation.actors.checks import Checks
from simulation.actors.controller import WorkloadController
from simulation.actors.jobs import Folder, silence
from simulation.actors.provider import Provider
from simulation.actors.provisioning import ProvisioningCheck
from simulation.actors.retry_timer import RetryTimer
from simulation.actors.runner import Runner
from simulation.actors.scheduler import SchedulerService
from simulation.actors.service import Service
from simulation.actors.variant_controller import VariantController
from simulation.actors.world import Admin, Publisher
from simulation.broken import Broken
from simulation.courses import Course
from simulation.ending import Ending
from simulation.invariants import Invariants
from simulation.kernel import Kernel
from simulation.mechanisms import Mechanisms
from simulation.plots import scenario
from simulation.scenario import Fault, Scenario
from simulation.server import Server
from simulation.story import Story
from simulation.stream import Stored

LEASE_SECONDS = 10.0
END_SECONDS = 3600.0


class Result(NamedTuple):
    """``broken``: the invariant that did not hold; "" when all held."""

    seed: int
    broken: str
    story: list[str]
    steps: int
    reservations: int
    finished: int


class World:
    """Everybody who takes part, and the faults that strike them."""

    def __init__(
        self, seed: int, mechanisms: Mechanisms, plot: Callable[[Random], Scenario], *, keep: bool
    ) -> None:
        self.seed = seed
        self.rng = Random(seed)
        self.mechanisms = mechanisms
        self.kernel, self.server = self.make()
        self.story = Story(lambda: self.kernel.now, keep=keep)
        self.plan = plot(self.rng)
        plan = self.plan
        self.invariants = Invariants(
            self.kernel, plan.slack(), plan.limits, blocks=plan.config.block_admission
        )
        self.users = Publisher(self.kernel, self.server, self.story)
        self.admin = Admin(self.kernel, self.server, self.story)
        self.checks = Checks(self.kernel, self.server, self.story, plan.tempers, plan.outages)
        self.provider = Provider(self.kernel, self.server, self.story)
        self.folders: dict[str, Folder] = {}
        self.services: dict[str, Service] = {}
        self._stored = 0
        self._faults = sorted(self.plan.faults)
        self._mute: dict[str, int] = {}

    def make(self) -> tuple[Kernel, Server]:
        """Time and the bus."""
        kernel = Kernel(self.rng)
        return kernel, Server(kernel, self.mechanisms)

    @contextmanager
    def playing(self) -> Iterator[None]:
        """What must be in place while the story is played."""
        yield

    def pictures(self) -> Iterator[tuple[str, Scheduler]]:
        """What each scheduler believes, by its name."""
        for name, service in sorted(self.services.items()):
            if isinstance(service, SchedulerService):
                yield name, service.core

    def complaints(self) -> list[str]:
        """What a real event loop would log: errors that no task expects."""
        return []

    def begin(self) -> None:
        """Everything starts."""
        server, inv = self.server, self.invariants
        server.bucket.on_stored.insert(0, self._on_bucket)
        server.bucket.on_whole.append(inv.whole)
        server.log.on_stored.insert(0, self._on_log)
        server.timers.on_stored.insert(0, inv.timed)
        server.on_acknowledged.append(inv.effects.acknowledged)
        server.on_acknowledged.append(inv.exclusive.acknowledged)
        for at in self.plan.lost_timers:
            self.kernel.at(at, server.lose_timers)
        for name in self.plan.services:
            self._start(name)
        self.admin.apply(self.plan.manifests, 0.2)
        for applying in self.plan.applyings:
            self.admin.apply(applying.manifests, applying.at)
        for saying in self.plan.sayings:
            self.users.say(saying.fact, saying.at)
        self.kernel.at(self.plan.calm, self._calm)

    # What is watched. -------------------------------------------------------------------

    def _on_bucket(self, stored: Stored) -> None:
        if self.story.keep:
            self._tell_put(stored)
        self.invariants.stored(stored)
        self._count()

    def _on_log(self, stored: Stored) -> None:
        if self.story.keep:
            self.story.tell("log", f"{stored.sequence} {stored.subject}")
        self.invariants.logged(stored)
        self._count()

    def _tell_put(self, stored: Stored) -> None:
        about = "deleted" if stored.gone else ""
        if stored.subject.startswith("workload.") and not stored.gone:
            about = describe(stored.data)
        self.story.tell("bucket", f"{stored.sequence} {stored.subject} {about}")

    def _count(self) -> None:
        self._stored += 1
        while self._faults and self._faults[0].after <= self._stored:
            fault = self._faults.pop(0)
            if self.kernel.now < self.plan.calm:
                self.kernel.after(fault.delay, partial(self._strike, fault))

    # Lives. -----------------------------------------------------------------------------

    def _start(self, name: str) -> None:
        kinds: dict[str, type[Service]] = {
            "wc": WorkloadController,
            "s": SchedulerService,
            "r": Runner,
            "t": RetryTimer,
            "v": VariantController,
            "p": ProvisioningCheck,
        }
        kind = kinds[name.partition("-")[0]]
        service = kind(
            self.kernel,
            self.server,
            name,
            self.mechanisms,
            self.story,
            skew=self.plan.skews.get(name, 0.0),
        )
        if isinstance(service, Runner):
            service.folder = self.folders.setdefault(name, Folder())
            service.folder.silences += 1
            service.course_of = self._course
            service.on_start = self.invariants.started
            service.on_end_of_job = self.invariants.ended
        if isinstance(service, SchedulerService):
            service.config = self.plan.config
        if isinstance(service, WorkloadController | RetryTimer):
            service.limits = self.plan.limits
        self._mute[name] = self._mute.get(name, 0) + 1
        self.services[name] = service
        service.closing.append(lambda: self._ended(name, service))
        self.story.tell(name, "starts")
        service.start()

    def _ended(self, name: str, service: Service) -> None:
        self._silent(name, service)
        if service.process.alive:
            return
        fatal = not self._killing
        self.story.tell(name, "dies" if not fatal else "ends by itself")
        if fatal:
            self.kernel.after(0.5, lambda: self._start(name))

    _killing = False

    def _course(self) -> Course:
        calm = self.kernel.now > self.plan.calm
        return self.plan.courses.draw(self.rng, calm=calm)

    # Faults. ----------------------------------------------------------------------------

    def _strike(self, fault: Fault) -> None:
        name = {"leader": self._leader, "decider": self._decider}.get(
            fault.who, lambda: fault.who
        )()
        service = self.services[name]
        if not service.process.alive or service.process.paused or service.link.is_mute:
            return
        self.story.tell("fault", f"{fault.what} {name} for {fault.seconds:.1f} s")
        after: Callable[[], None]
        match fault.what:
            case "kill":
                self._killing = True
                service.process.kill()
                self._killing = False
                self.kernel.after(fault.seconds, lambda: self._start(name))
                return
            case "pause":
                service.process.pause()

                def after() -> None:
                    service.process.resume()

            case "partition" | "mute":
                mute, deaf = self.rng.choice(((True, True), (True, False), (False, True)))
                if fault.what == "mute":
                    mute, deaf = True, False
                service.link.partition(
                    fault.seconds, mute=mute, deaf=deaf, resets=self.rng.random() < 0.3
                )
                if not mute:
                    return

                def after() -> None:
                    pass

            case _:
                service.link.slow = 200.0 if fault.what == "slower" else 40.0

                def after() -> None:
                    service.link.slow = 1.0

                self.kernel.after(fault.seconds, after)
                return
        self._silent(name, service)

        def back() -> None:
            after()
            if self.services[name] is service and service.process.alive:
                self.story.tell(name, f"is back after {fault.what}")
                self._heard_again(name, service)

        self.kernel.after(fault.seconds, back)

    def _leader(self) -> str:
        for name in ("wc-a", "wc-b"):
            service = self.services[name]
            assert isinstance(service, WorkloadController)
            if service.process.alive and service.work is not None:
                return name
        return "wc-a"

    def _decider(self) -> str:
        for name in ("s-a", "s-b"):
            service = self.services[name]
            assert isinstance(service, SchedulerService)
            if service.process.alive and service.leading.lease.leads():
                return name
        return "s-a"

    def _silent(self, name: str, service: Service) -> None:
        """It says nothing any more: its heartbeat runs out, and its claims."""
        number = self._mute[name]
        since = self.rng.random() * LEASE_SECONDS / 4

        def over() -> None:
            if self._mute[name] == number:
                self.server.lives(service.kind, name, False)

        self.kernel.after(LEASE_SECONDS - since, over)
        if isinstance(service, Runner):
            silence(self.kernel, service)

    def _heard_again(self, name: str, service: Service) -> None:
        self._mute[name] += 1
        if isinstance(service, Runner):
            service.folder.silences += 1
        self.server.lives(service.kind, name, True)

    def _calm(self) -> None:
        self.checks.settle()
        self.provider.settle()
        self.users.losses = 0.0
        self._faults.clear()


def describe(data: bytes) -> str:
    """A stored workload in a few words."""
    from admittance.workload import stored as workloads

    status = workloads.decode(data).status
    conditions = " ".join(
        f"{c.type}={c.status[0]}({c.reason})" for c in status.conditions if c.type != "PodsReady"
    )
    says = ",".join(say.what for say in status.log.says)
    return f"fact {status.log.fact} [{conditions}] says {says or 'nothing'}"


def run(
    seed: int,
    mechanisms: Mechanisms | None = None,
    *,
    plot: Callable[[Random], Scenario] = scenario,
    keep: bool = False,
    world_of: type[World] = World,
) -> Result:
    """Plays one seed. ``plot`` makes the scenario; ``keep``: with its story."""
    world = world_of(seed, mechanisms or Mechanisms(), plot, keep=keep)
    with world.playing():
        return _play(world)


def _play(world: World) -> Result:
    kernel, invariants = world.kernel, world.invariants
    broken = ""
    try:
        world.begin()
        kernel.run(world.plan.calm)
        ending = Ending(world.server, invariants, kernel, world.users, heals=world.plan.heals)
        ending.settle()
        ending.check()
        if "p-a" in world.plan.services:
            world.provider.check_end()
        for name, core in world.pictures():
            ending.check_picture(name, core)
        for complaint in world.complaints():
            raise Broken(complaint)
    except Broken as error:
        broken = str(error)
        world.story.tell("BROKEN", broken)
    except Exception as error:
        # A core that raises ends its process, and does so again when it is back.
        broken = f"{type(error).__name__}: {error}"
        for line in traceback.format_exception(error)[-6:]:
            world.story.tell("BROKEN", line.rstrip())
    finished = sum(seen.where == "finished" for seen in invariants.seen.values())
    told = world.story.lines
    return Result(world.seed, broken, told, kernel.steps, invariants.reservations, finished)
