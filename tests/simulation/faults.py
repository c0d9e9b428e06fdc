"""Faults that strike processes, wires and the server of a world."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final

import msgspec

from admittance.events.names import token
from admittance.events.subjects import EPOCH, STREAM
from admittance.lease import service_domain
from admittance.runtime.bus.streams import KV_LOG
from simulation.nats.network import STALE_SECONDS
from simulation.nats.observed import Stored
from simulation.plots.scenario import ACTIVE_SECONDS, Fault
from simulation.virtual_time.loop import Process

if TYPE_CHECKING:
    from simulation.world import World

LEAVING: Final = 0.3
LOSING_SHIMS: Final = 0.3
"""Probability that a kill ends all shims of a runner's machine instead of the runner."""


class Faults:
    """Strikes a world. ``struck``: the faults so far, by kind."""

    def __init__(self, world: World) -> None:
        self.struck: Counter[str] = Counter()
        self._world = world

    def plan_for_server(self, rng: Random) -> None:
        """Schedules one to three faults of the server."""
        world = self._world
        for _ in range(rng.randint(1, 3)):
            strike = rng.choice(
                (
                    self._restart_server,
                    self._restart_server,
                    self._fill_log,
                    self._slow_bucket,
                    self._redeliver,
                )
            )
            world.loop.at(world.plan.begins + 2.0 + rng.random() * ACTIVE_SECONDS, strike, rng)

    def _restart_server(self, rng: Random) -> None:
        world = self._world
        if not world.server.nats.up or world.loop.now > world.plan.calm:
            return
        # In the longest, leases and claims expire.
        seconds = rng.choice((0.1, 1.0, 4.0, 12.0, 30.0)) * rng.random()
        self.struck["restart of the server"] += 1
        world.transcript.tell("fault", f"the server is killed and starts after {seconds:.1f} s")
        for service in world.services.values():
            service.silence()
        world.server.nats.stop()
        world.loop.after(seconds, world.server.nats.start)

    def _fill_log(self, rng: Random) -> None:
        world = self._world
        seconds = rng.choice((0.5, 3.0, 15.0)) * rng.random()
        self.struck["full log"] += 1
        world.transcript.tell("fault", f"the log is full for {seconds:.1f} s")
        log = world.server.nats.streams[STREAM]
        log.full = True

        def empty() -> None:
            log.full = False

        world.loop.after(seconds, empty)

    def _slow_bucket(self, rng: Random) -> None:
        world = self._world
        seconds, each = rng.choice((1.0, 5.0, 15.0)) * rng.random(), rng.choice((0.01, 0.1, 0.5))
        self.struck["slow bucket"] += 1
        world.transcript.tell("fault", f"each put takes {each} s for {seconds:.1f} s")
        bucket = world.server.nats.streams[KV_LOG]
        bucket.store_seconds = each

        def recover() -> None:
            bucket.store_seconds = 0.0

        world.loop.after(seconds, recover)

    def _redeliver(self, _: Random) -> None:
        world = self._world
        if world.server.nats.up:
            self.struck["redelivery"] += 1
            world.transcript.tell("fault", "all that is not acknowledged is delivered again")
            for stream in world.server.nats.streams.values():
                for consumer in stream.consumers.values():
                    consumer.redeliver_all()

    def strike(self, fault: Fault) -> None:
        """Applies the fault now, unless its process is dead or has another fault."""
        world = self._world
        leaders: dict[str, Callable[[], str]] = {
            "leader": partial(self._leader, "workload-controller", "wc-a"),
            "placer": partial(self._leader, "placement", "pl-a"),
            "array-leader": partial(self._leader, "array-controller", "a-a"),
            "budget-leader": partial(self._leader, "budget-controller", "b-a"),
            "decider": self._decider,
        }
        name = leaders[fault.target]() if fault.target in leaders else fault.target
        process = world.services[name].process
        wires = world.network.wires(process)
        muted = any(wire.out.silent_until > world.loop.now for wire in wires)
        orphans = name in world.machines and world.machines[name].has_orphans()
        if not process.alive or process.paused or muted or orphans:
            return
        self.struck[fault.kind] += 1
        world.transcript.tell("fault", f"{fault.kind} {name} for {fault.seconds:.1f} s")
        match fault.kind:
            case "kill" if fault.target in world.machines and world.rng.random() < LEAVING:
                # It ends in order: its jobs end, and their admissions run again later.
                world.loop.post(process, world.services[name].stop.set)
            case "kill" if fault.target in world.machines and world.rng.random() < LOSING_SHIMS:
                world.machines[name].kill_shims()
            case "kill" | "crash" | "unplug":
                process.kill()
                if fault.kind == "crash":
                    world.machines[name].crash()
                elif fault.kind == "unplug":
                    world.machines[name].lose_device()
                world.kernel.after(fault.seconds, lambda: world.start(name))
            case "pause":
                process.pause()
                world.services[name].silence()
                world.kernel.after(fault.seconds, lambda: self._resume(process))
            case "partition" | "mute":
                outgoing, incoming = world.rng.choice(((True, True), (True, False), (False, True)))
                if fault.kind == "mute":
                    outgoing, incoming = True, False
                resets = world.rng.random() < 0.3
                if outgoing or resets:
                    world.services[name].silence()
                for wire in wires:
                    wire.silence(fault.seconds, out=outgoing, back=incoming)
                    if resets:
                        wire.lose()
                self._silence_when_lost(process, fault.seconds)
                world.kernel.after(fault.seconds, lambda: self._restore(process))
            case "stall":
                for wire in wires:
                    wire.stall(fault.seconds)
                self._silence_when_lost(process, fault.seconds)
                world.kernel.after(fault.seconds, lambda: self._restore(process))
            case _:
                for wire in wires:
                    wire.slow = 200.0 if fault.kind == "slower" else 40.0
                world.kernel.after(fault.seconds, lambda: self._speed_up(process))

    def repair_machines(self) -> None:
        """All devices are there again; runners that had lost some are started anew."""
        world = self._world
        for name, machine in world.machines.items():
            if machine.spec.lost:
                machine.spec = machine.spec._replace(lost=frozenset())
                process = world.services[name].process
                if process.alive:
                    process.kill()
                    world.kernel.after(1.0, partial(world.start, name))

    def _silence_when_lost(self, process: Process, seconds: float) -> None:
        """A process that receives nothing takes its connection for lost after a while. From then on
        its heartbeats do not arrive."""
        service = self._world.services[process.name]
        if seconds > STALE_SECONDS[1]:
            self._world.loop.after(STALE_SECONDS[1], service.silence)

    def die(self) -> None:
        """Kills the process that is running now."""
        world = self._world
        current = world.loop.current
        assert current is not None
        world.transcript.tell(current.name, "dies between booking and answering")
        seconds = world.rng.random() * 12.0
        world.loop.after(0.0, self.strike, Fault(0, current.name, "kill", seconds, 0.0))

    def _resume(self, process: Process) -> None:
        world = self._world
        if process.alive:
            process.resume(world.rng)
        self._restore(process)

    def _restore(self, process: Process) -> None:
        world = self._world
        world.stir()
        service = world.services[process.name]
        if process.alive and service.process is process:
            service.disturb()

    def _speed_up(self, process: Process) -> None:
        world = self._world
        world.stir()
        for wire in world.network.wires(process):
            wire.slow = 1.0

    def _leader(self, service: str, first: str) -> str:
        """The active instance of a service; ``first`` while there is none."""
        epoch = self._world.server.log.last.get(f"{EPOCH}{token(service_domain(service))}")
        return _owner(epoch) if epoch is not None else first

    def _decider(self) -> str:
        world = self._world
        epochs = [m for subject, m in world.server.log.last.items() if subject.startswith(EPOCH)]
        owners = sorted({owner for owner in map(_owner, epochs) if owner.startswith("s-")})
        return owners[0] if owners else "s-a"


def _owner(epoch: Stored) -> str:
    return str(msgspec.json.decode(epoch.data)["owner"])
