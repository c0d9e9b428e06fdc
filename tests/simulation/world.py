"""A world in which the services that ship run: on virtual time, over the simulated nats-server.

Runners run on machines of the simulation (`virtual_machine`), check controllers and a provider are
programs with the helpers that ship (`checks`, `provider`). Users and admins are no processes.
"""

from __future__ import annotations

import gc
import json
import warnings
from collections.abc import Callable, Coroutine, Iterator, MutableMapping
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from random import Random
from types import ModuleType
from typing import Any, Final
from unittest.mock import patch

import msgspec
import structlog

from admittance.api.budgets import BUDGET_CONTROLLER
from admittance.api.checks import MACHINES_CONTROLLER
from admittance.array_controller import service as array_controller
from admittance.budget_controller import service as budget_controller
from admittance.events.subjects import DEADLETTER
from admittance.events.system import DeadLetter
from admittance.placement import decisions
from admittance.placement_service import service as placement
from admittance.provider_pool import service as provider_pool
from admittance.provisioning.observed_state import CONTROLLER as PROVISIONING
from admittance.provisioning_check import service as provisioning_check
from admittance.retry_timer import service as retry_timer
from admittance.runner.host.records import Spec
from admittance.runtime import chance, clock
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import BusRefused, BusUnavailable
from admittance.runtime.leader.leader_elector import LeaderElector
from admittance.runtime.process.settings import Settings
from admittance.scheduler import service as scheduler
from admittance.scheduling.scheduler import Scheduler
from admittance.variant_controller import service as variant_controller
from admittance.workload_controller import service as workload_controller
from simulation.environment.checks import Checks
from simulation.environment.courses import Course
from simulation.environment.holding_programs import HoldingPrograms
from simulation.environment.machine_specs import NO_ROOM
from simulation.environment.provider import Capacity, UnreliableProvider
from simulation.environment.service_runs import LEASE_SECONDS, ServiceRun, beating
from simulation.environment.users import Admin, Publisher
from simulation.environment.virtual_machine import CLAIM_SECONDS, RunnerOfWorld, VirtualMachine
from simulation.faults import Faults
from simulation.invariants.observer import Invariants
from simulation.nats.network import Network
from simulation.nats.observed import Server, Stored
from simulation.plots.scenario import Fault, Plot
from simulation.transcript import Broken, Transcript, describe
from simulation.virtual_time.kernel import Kernel
from simulation.virtual_time.loop import Process, VirtualLoop
from simulation.virtual_time.outside import forbidden
from simulation.virtual_time.waits import same_in_every_version

SPARED: Final = 3
"""In every third seed the server has faults, too, and in every third the runners."""
STRICKEN: Final = 5
"""In every fifth seed faults strike the check controllers, too."""
SHARING: Final = 2
"""In every second seed runners read the data folders of each other."""
STRUCK: Final = 0.3
"""Probability, for each job that starts in these seeds, that a fault strikes its runner."""
PAUSED: Final = 0.1
"""Probability, for each claim in these seeds, that its runner pauses until the claim has
expired."""
LOUD: Final = 8
"""Every eighth seed has real heartbeats, unless its story is long."""
URL: Final = "nats://127.0.0.1:4222"
HEARTBEAT_SECONDS: Final = 60.0
"""Seconds between heartbeats of pull requests, which cost more than all else in an idle system."""
COMPARE_SECONDS: Final = 10.0
BEAT_SECONDS: Final = 30.0
"""Seconds between heartbeats of check controllers and providers; less in seeds with real
heartbeats."""
LOUD_BEAT_SECONDS: Final = 10.0
REST_SECONDS: Final = 25.0
"""Nothing was stored for so long: two comparisons of schedules, and the end of a lease."""
LOOK_SECONDS: Final = 1.0
"""Between two looks whether the story is at rest."""
RESTART_SECONDS: Final = 0.5
KINDS: Final[dict[str, ModuleType]] = {
    "wc": workload_controller,
    "s": scheduler,
    "t": retry_timer,
    "v": variant_controller,
    "a": array_controller,
    "b": budget_controller,
    "pl": placement,
    "p": provisioning_check,
    "pool": provider_pool,
}

IDLE_SECONDS: Final = 12.0
"""Nothing was stored for so long: time runs on to the next schedule, with fewer heartbeats."""


class World:
    """The services, everything outside of them, and the faults that strike them."""

    def __init__(self, seed: int, plot: Plot, *, keep: bool) -> None:
        self.seed = seed
        self.rng = Random(seed)
        self.loop = VirtualLoop()  # type: ignore[abstract]  # what is missing opens sockets
        kernel = self.kernel = Kernel(self.rng, self.loop)
        self.server = Server(kernel)
        self.network = Network(self.loop, self.server.nats, self.rng)
        self.transcript = Transcript(lambda: kernel.now, keep=keep)
        plan = self.plan = plot(self.rng)
        self.loop.now = plan.begins
        self.invariants = Invariants(
            kernel,
            plan.slack(),
            plan.limits,
            spread=plan.spread(),
            blocks=plan.config.block_admission,
            is_calm=not plan.faults,
        )
        self.users = Publisher(kernel, self.server, self.transcript)
        self.programs = HoldingPrograms(kernel, self.users, plan.programs)
        self.admin = Admin(kernel, self.server, self.transcript)
        self.checks = Checks(self.loop, self.rng, plan.check_behavior, _controllers(plan.manifests))
        self.server.on_beat = self.checks.beat
        self.faults = Faults(self)
        self.provider = UnreliableProvider(self.loop, self.rng, self.faults.die)
        self.capacity = Capacity(self.server, self.provider.booked)
        self.services: dict[str, ServiceRun] = {}
        self.claim_seconds = CLAIM_SECONDS * plan.interval_factor
        self.runner = RunnerOfWorld(self._machine, self.claim_seconds)
        self.machines: dict[str, VirtualMachine] = {}
        self.touched: list[str] = []
        """What processes touched of the world outside."""
        self._faults = sorted(plan.faults)
        self._stored = 0
        self._active_at = self._stored_at = self._looks_at = 0.0

    @contextmanager
    def playing(self) -> Iterator[None]:
        """The patches that must be in place while the story runs."""
        limits, config = self.plan.limits, self.plan.config
        with collector_off(), ExitStack() as stack:
            stack.enter_context(clock.replaced(self.loop.wall, self.loop.time))
            stack.enter_context(chance.replaced(self.rng))
            stack.enter_context(same_in_every_version())
            stack.enter_context(patch.object(scheduler, "config_of", lambda _: config))
            stack.enter_context(patch.object(scheduler, "SchedulerService", self._shell))
            for module in (workload_controller, retry_timer):
                stack.enter_context(patch.object(module, "limits_of", lambda *_, **__: limits))
            times = self.plan.times
            stack.enter_context(patch.object(decisions, "PlacementTimes", lambda: times))
            stack.enter_context(patch.object(LeaderElector, "run", _noting(self)))
            self.touched = stack.enter_context(forbidden(self.loop))
            if not self._is_loud:
                stack.enter_context(patch.object(LeaderElector, "_beat", beating(self)))
            structlog.configure(
                processors=[structlog.contextvars.merge_contextvars, self._log],
                wrapper_class=structlog.make_filtering_bound_logger(
                    20 if self.transcript.keep else 50
                ),
            )
            try:
                yield
            finally:
                self.loop.close()
                structlog.reset_defaults()

    @property
    def _is_loud(self) -> bool:
        return self.seed % LOUD == 0 and self.plan.interval_factor == 1.0

    def begin(self) -> None:
        """Starts the services, and schedules the changes, facts and faults of the plan."""
        server, plan, inv = self.server, self.plan, self.invariants
        server.bucket.on_stored.insert(0, self._on_bucket)
        server.bucket.on_whole.append(inv.whole)
        server.log.on_stored.insert(0, self._on_log)
        server.timers.on_stored.insert(0, inv.timed)
        server.on_acknowledged.append(inv.effects.acknowledged)
        server.on_acknowledged.append(inv.exclusive.acknowledged)
        server.on_acknowledged.append(inv.bookings.acknowledged)
        for at in plan.lost_timers:
            self.kernel.at(at, server.lose_timers)
        for name in plan.services:
            self.start(name)
        self.admin.apply(plan.manifests, plan.begins + 0.2)
        for change in plan.admin_changes:
            self.admin.apply(change.manifests, change.at)
        for published in plan.user_facts:
            self.users.say(published.fact, published.at)
        self.programs.begin()
        self.kernel.at(plan.calm, self._calm)
        self.kernel.at_rest = lambda: bool(self.touched)
        rng = Random(self.seed)
        if self.checks.controllers:
            self._begin_checks(rng)
        if self.seed % SPARED == 1:
            self.server.claims.on_stored.append(self._on_claim)
        if self.seed % SPARED == 0:
            self.faults.plan_for_server(rng)

    def _begin_checks(self, rng: Random) -> None:
        names = ["k-a"]
        if self.plan.outages or self.seed % STRICKEN == 1:
            names.append("k-b")
        for name in names:
            self.start(name)
            if self.seed % STRICKEN == 1:
                what, seconds = (
                    rng.choice(("kill", "kill", "pause", "mute")),
                    rng.choice((0.5, 9.0, 40.0)),
                )
                self._faults.append(Fault(rng.randint(10, 200), name, what, seconds, 0.0))
        self._faults.sort()
        for outage in self.plan.outages:
            fault = Fault(0, names[outage.replica], "kill", outage.seconds, 0.0)
            self.kernel.at(outage.at, partial(self.faults.strike, fault))

    def pictures(self) -> Iterator[tuple[str, Scheduler]]:
        """The core of each scheduler, with the name of its service."""
        for name, service in sorted(self.services.items()):
            for shell in service.shells:
                yield name, shell._core

    # What is watched. -------------------------------------------------------------------

    def _on_bucket(self, stored: Stored) -> None:
        if self.transcript.keep:
            about = "deleted" if stored.gone else ""
            if stored.subject.startswith("workload.") and not stored.gone:
                about = describe(stored.data)
            self.transcript.tell("bucket", f"{stored.sequence} {stored.subject} {about}")
        self.invariants.stored(stored)
        self.programs.stored(stored)
        self._count()

    def _on_log(self, stored: Stored) -> None:
        if stored.subject.startswith(DEADLETTER):
            letter = msgspec.json.decode(stored.data, type=DeadLetter)
            stored = stored._replace(data=letter.reason.encode())
        if self.transcript.keep:
            self.transcript.tell("log", f"{stored.sequence} {stored.subject}")
        self.invariants.logged(stored)
        self._count()

    def _count(self) -> None:
        self._active_at = self._stored_at = self.loop.now
        self._stored += 1
        while self._faults and self._faults[0].after <= self._stored:
            fault = self._faults.pop(0)
            if self.loop.now < self.plan.calm:
                self.kernel.after(fault.delay, partial(self.faults.strike, fault))

    def stir(self) -> None:
        """Records that something happened, so the story is not at rest."""
        self._active_at = self.loop.now

    def _calm(self) -> None:
        self.checks.settle()
        self.provider.settle()
        self.users.losses = 0.0
        self._faults.clear()
        self.faults.repair_machines()
        self.kernel.at_rest = self._is_at_rest

    def _is_at_rest(self) -> bool:
        if self.loop.now < self._looks_at:
            return False
        self._looks_at = self.loop.now + LOOK_SECONDS
        if self.kernel.pending or self.server.has_schedules() or self._claims_are_held():
            self.stir()
        elif self.loop.now - self._active_at > REST_SECONDS:
            return True
        if self.loop.now - self._stored_at > IDLE_SECONDS:
            for service in self.services.values():
                service.relax()
        return False

    def _claims_are_held(self) -> bool:
        """Whether a claimed job has not ended."""
        return any(
            not claim.gone
            and not claim.subject.startswith("_")
            and not any(
                machine.is_left_hanging(claim.subject) for machine in self.machines.values()
            )
            for claim in self.server.claims.last.values()
        )

    def _on_claim(self, claim: Stored) -> None:
        """Sometimes its runner pauses before the job starts."""
        rng = self.rng
        if claim.gone or self.loop.now > self.plan.calm or rng.random() >= PAUSED:
            return
        name = json.loads(claim.data)["runner"]
        seconds = self.claim_seconds * (1.0 + rng.random())
        self.loop.after(
            rng.random() * 0.03, self.faults.strike, Fault(0, name, "pause", seconds, 0.0)
        )

    def _job_ended(self, key: str, kind: str) -> None:
        self.invariants.ended(key, kind)
        self.invariants.machines.ended(key)
        self.invariants.arrays.ended(key)

    def _job_started(self, spec: Spec, name: str) -> None:
        """In some seeds a fault strikes the runner soon, also for longer than the TTL of claims."""
        self.invariants.started(spec.key, name)
        self.invariants.arrays.started(spec.key)
        self.invariants.holds.started(spec.key, spec.units, name)
        self.invariants.machines.started(spec, name, self.machines[name].spec)
        if spec.key in self.machines[name].launched_drained:
            raise Broken(f"{spec.key} starts on {name}, where a prolog has failed")
        rng = self.rng
        if self.seed % SPARED == 1 and self.loop.now < self.plan.calm and rng.random() < STRUCK:
            what = rng.choice(("kill", "kill", "pause", "mute", "partition"))
            seconds = rng.choice((0.2, 3.0, 20.0, 45.0)) * (0.5 + rng.random())
            delay = rng.random() * rng.choice((0.1, 1.0, 8.0))
            self.loop.after(delay, self.faults.strike, Fault(0, name, what, seconds, 0.0))

    # Lives. -----------------------------------------------------------------------------

    def _machine(self, name: str) -> VirtualMachine:
        machine = self.machines.get(name)
        if machine is None:
            machine = self.machines[name] = VirtualMachine(
                name,
                self.kernel,
                self.loop,
                self._course,
                self._job_started,
                self._job_ended,
                self.server.publish,
                self._fails_prolog,
                self.plan.machines.get(name, NO_ROOM),
            )
            if self.seed % SHARING == 0:
                for each in self.machines.values():
                    each.readable = self.machines
        return machine

    def start(self, name: str) -> None:
        """Starts the process of that name anew."""
        letter = name.partition("-")[0]
        kind: Any = {"k": self.checks, "m": self.provider, "r": self.runner, **KINDS}[letter]
        process = Process(self.loop, name, skew=self.plan.skews.get(name, 0.0))
        self.services[name] = ServiceRun(self, process)
        self.transcript.tell(name, "starts")

        def ended(error: BaseException | None) -> None:
            self.transcript.tell(name, f"ends by itself: {error!r}")
            if error is not None and not isinstance(error, BusRefused | BusUnavailable):
                self.loop.complaints.append(f"{name} ended: {error!r}")
            self.kernel.after(RESTART_SECONDS, lambda: self.start(name))

        process.on_end = ended
        process.start(self._run(kind, name))

    async def _run(self, kind: Any, name: str) -> None:
        settings = Settings(
            service=kind.SERVICE,
            instance=name,
            lease_seconds=LEASE_SECONDS,
            compare_seconds=COMPARE_SECONDS * self.plan.interval_factor,
            log_bytes=self.plan.log_bytes,
            beat_seconds=LOUD_BEAT_SECONDS if self._is_loud else BEAT_SECONDS,
        )
        bus = await Bus.connect(
            URL,
            name=name,
            opening=self.network.opening,
            heartbeat_seconds=HEARTBEAT_SECONDS,
        )
        self.service.buses.append(bus)
        try:
            await kind.run(bus, settings, stop=self.service.stop)
        finally:
            await bus.close()

    def _course(self) -> Course:
        calm = self.loop.now > self.plan.calm
        return self.plan.courses.draw(self.rng, calm=calm)

    def _fails_prolog(self) -> bool:
        chance = self.plan.courses.unprepared
        return bool(chance) and self.loop.now < self.plan.calm and self.rng.random() < chance

    @property
    def service(self) -> ServiceRun:
        """The service of the process that runs at the moment."""
        current = self.loop.current
        assert current is not None
        return self.services[current.name]

    def _shell(self, *args: Any) -> Any:
        made = _SHELL(*args)
        self.service.shells.append(made)
        return made

    def _log(self, _: Any, level: str, event: MutableMapping[str, Any]) -> Any:
        current = self.loop.current
        what = event.pop("event")
        rest = " ".join(f"{name}={value}" for name, value in event.items())
        self.transcript.tell(current.name if current is not None else "-", f"{level} {what} {rest}")
        raise structlog.DropEvent


@contextmanager
def collector_off() -> Iterator[None]:
    """Keeps the garbage collector off: it would run `finally` clauses of dead processes while
    others live. Around many stories it collects them all at once, which costs less."""
    if not gc.isenabled():
        yield
        return
    freeze_modules()
    gc.disable()
    try:
        yield
    finally:
        with warnings.catch_warnings():
            # What a process had not awaited when it ended.
            warnings.simplefilter("ignore", RuntimeWarning)
            gc.collect()
        gc.enable()


@cache
def freeze_modules() -> None:
    """Keeps the objects of modules from the collector, which would look at them each time."""
    gc.collect()
    gc.freeze()


_SHELL: Final = scheduler.SchedulerService
_run: Final = LeaderElector.run


def _noting(world: World) -> Callable[[LeaderElector], Coroutine[Any, Any, None]]:
    """`LeaderElector.run` that notes each elector with the life that made it."""

    async def run(self: LeaderElector) -> None:
        world.service.electors.append(self)
        await _run(self)

    return run


def _controllers(manifests: list[dict[str, Any]]) -> list[str]:
    """The controllers of the checks, without those that are services."""
    checks = (manifest["spec"] for manifest in manifests if manifest["kind"] == "AdmissionCheck")
    services = {BUDGET_CONTROLLER, PROVISIONING, MACHINES_CONTROLLER}
    return sorted({spec["controllerName"] for spec in checks} - services)
