"""Connections over a simulated wire: what a death, a silence and a loss leave of what was sent."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from random import Random

import pytest

from admittance.runtime.bus import streams
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.errors import NoServer
from simulation.nats.network import Network
from simulation.nats.simulated_server import SimulatedServer
from simulation.virtual_time.loop import Process, VirtualLoop


@pytest.fixture
def server() -> Iterator[SimulatedServer]:
    loop = VirtualLoop()
    made = SimulatedServer(loop)
    with made.installed():
        yield made
    loop.close()


def submitted(number: int) -> Outgoing:
    return Outgoing(f"admit.workload.submitted.a.n{number}", b"{}")


async def prepare(server: SimulatedServer) -> None:
    bus = await Bus.connect(server.url, name="outside")
    await streams.ensure(bus)
    await bus.close()


def stored(server: SimulatedServer) -> int:
    return server.server.streams["ADMITTANCE"].end


def test_of_what_a_killed_process_sent_a_beginning_arrives() -> None:
    counts = set()
    for seed in range(40):
        loop = VirtualLoop()
        server = SimulatedServer(loop, seed)

        async def publish(server: SimulatedServer = server) -> None:
            bus = await Bus.connect(server.url, name="p")
            try:
                await bus.publish_all([submitted(number) for number in range(10)])
            finally:
                await bus.publish(submitted(99))

        with server.installed():
            loop.run_until_complete(prepare(server))
            process = Process(loop, "p")
            process.start(publish())
            while not server.network.wires(process) or not server.network.wires(process)[0].open:
                loop.play(loop.now + 0.0001)
            loop.play(loop.now + 0.0003)
            process.kill()
            loop.play(loop.now + 60.0)
        subjects = [message.subject for message in server.server.streams["ADMITTANCE"].since(1)]
        assert subjects == [submitted(number).subject for number in range(len(subjects))]
        counts.add(len(subjects))
        loop.close()
    assert {0, 10} <= counts
    assert len(counts) > 3


def test_a_client_takes_a_long_silence_for_a_loss_and_reconnects(server: SimulatedServer) -> None:
    async def main() -> tuple[float, int]:
        await prepare(server)
        bus = await Bus.connect(server.url, name="p")
        loop = asyncio.get_running_loop()
        server.network.wires(None)[-1].silence(15.0)
        began = loop.time()
        while bus.is_up:  # noqa: ASYNC110  (it takes no time)
            await asyncio.sleep(0.1)
        lost = loop.time() - began
        await bus.connected(30.0)
        return lost, await bus.publish(submitted(1))

    loop = server.loop
    lost, sequence = loop.run_until_complete(main())
    assert 9.0 < lost < 12.5
    assert sequence == 1


def test_a_short_silence_only_delays(server: SimulatedServer) -> None:
    async def main() -> float:
        await prepare(server)
        bus = await Bus.connect(server.url, name="p")
        server.network.wires(None)[-1].silence(5.0)
        began = asyncio.get_running_loop().time()
        await bus.publish(submitted(1))
        assert bus.is_up
        return asyncio.get_running_loop().time() - began

    assert 5.0 <= server.loop.run_until_complete(main()) < 5.5


def test_no_connection_is_made_to_a_server_that_is_down(server: SimulatedServer) -> None:
    async def main() -> None:
        await server.kill()
        await Bus.connect(server.url, name="p")

    with pytest.raises(NoServer):
        server.loop.run_until_complete(main())


def test_a_seed_draws_the_same_delays() -> None:
    drawn = []
    for _ in range(2):
        loop, rng = VirtualLoop(), Random(5)
        server = SimulatedServer(loop)
        server.network = Network(loop, server.server, rng)

        async def main(server: SimulatedServer = server) -> float:
            bus = await Bus.connect(server.url, name="p")
            await streams.ensure(bus)
            return asyncio.get_running_loop().time()

        with server.installed():
            drawn.append(loop.run_until_complete(main()))
        loop.close()
    assert drawn[0] == drawn[1]
