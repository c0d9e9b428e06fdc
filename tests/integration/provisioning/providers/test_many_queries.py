"""A provider that has restarted is queried about all its requests, several queries at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import msgspec
import pytest
from nats.aio.msg import Msg

from admittance.api.meta import ObjectMeta
from admittance.checks import AdmissionCheckController
from admittance.events.codec import encode
from admittance.events.provisioning import Provisioned, ProvisioningStatus
from admittance.events.requests.services import ProviderQuery, ProviderReply
from admittance.events.subjects import ALIVE_PROVISIONING
from admittance.events.system import ProviderAlive
from admittance.provisioning.core import ProvisioningCore
from admittance.provisioning.observed_state import CONTROLLER
from admittance.provisioning.records import Record, RecordSpec
from admittance.provisioning.steps import RequestSlot
from admittance.provisioning_check.provider_monitor import AT_ONCE, ProviderMonitor
from admittance.runtime.bus.bus import Bus
from admittance.runtime.process.settings import Settings
from support.servers import until

pytestmark = [pytest.mark.bus, pytest.mark.servers("simulated")]
MANY = 1000


def a_record(number: int) -> Record:
    name = f"w{number:04}"
    return Record(
        api_version="autoscaling.x-k8s.io/v1",
        kind="ProvisioningRequest",
        metadata=ObjectMeta(name=f"{name}-c-1", namespace="ns", generation=1),
        spec=RecordSpec(
            id=f"u{number:04}/c/0/1",
            workload=name,
            uid=f"u{number:04}",
            check="c",
            cycle=0,
            attempt=1,
            provisioning_class_name="class",
        ),
    )


class ProviderStub:
    """Answers queries, each after a pause; ``knows``: the largest number of a request that the
    provider knows."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._tasks: list[asyncio.Task[None]] = []
        self.knows = MANY
        self.says = b""
        self.at_once = 0
        self.most = 0
        self.asked = 0
        self.odd: dict[int, bytes] = {}

    async def open(self) -> None:
        await self._bus.nc.subscribe("admit.api.provider.class", cb=self._on)

    async def _on(self, message: Msg) -> None:
        self._tasks.append(asyncio.create_task(self._answer(message)))

    async def _answer(self, message: Msg) -> None:
        self.asked += 1
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        asked = msgspec.json.decode(message.data, type=ProviderQuery).id
        number = int(asked[1:5])
        # The last of a window comes first.
        await asyncio.sleep(0.002 + 0.0001 * (-number % AT_ONCE))
        self.at_once -= 1
        if number in self.odd:
            await message.respond(self.odd[number])
            return
        reply = ProviderReply(id=asked, known=number < self.knows, status="provisioned", seq=1)
        await message.respond(self.says or encode(reply))


class StatusReceiver:
    """Receives the answers."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.lost: list[tuple[RequestSlot, str]] = []
        self.strange: dict[str, str] = {}

    async def apply_answers(self, said: Sequence[ProvisioningStatus]) -> None:
        assert all(isinstance(answer, Provisioned) for answer in said)
        self.taken += [answer.id for answer in said]

    async def note_unreadable(
        self, workload: tuple[str, str], provisioning_class: str, why: str
    ) -> None:
        assert provisioning_class == "class"
        self.strange[workload[1]] = why

    def send_again(self, slot: RequestSlot, request_id: str) -> None:
        self.lost.append((slot, request_id))


@pytest.fixture
def receiver() -> StatusReceiver:
    return StatusReceiver()


@pytest.fixture
async def listening(bus: Bus, receiver: StatusReceiver) -> AsyncIterator[None]:
    core = ProvisioningCore(None)
    for number in range(MANY):
        core.observed.record(("ns", f"w{number:04}-c-1"), a_record(number), number + 1)
    controller = AdmissionCheckController(CONTROLLER)
    settings = Settings(service="provisioning-check", instance="a", url="")
    providers = ProviderMonitor(bus, controller, core, settings, lambda: None, receiver)
    loaded = asyncio.Event()
    loaded.set()
    task = asyncio.create_task(providers.run(loaded))
    await asyncio.sleep(0)
    await bus.nc.flush()
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def beat(bus: Bus) -> None:
    await bus.nc.publish(f"{ALIVE_PROVISIONING}class", encode(ProviderAlive()))


async def test_a_thousand_requests_are_queried_and_applied_in_order(
    bus: Bus, receiver: StatusReceiver, listening: None
) -> None:
    provider = ProviderStub(bus)
    provider.knows = MANY - 1
    await provider.open()

    await beat(bus)

    await until(lambda: len(receiver.taken) + len(receiver.lost) == MANY)
    assert receiver.taken == [a_record(number).spec.id for number in range(MANY - 1)]
    last = a_record(MANY - 1)
    assert receiver.lost == [(RequestSlot("ns", last.spec.workload, "c"), last.spec.id)]
    assert 1 < provider.most <= AT_ONCE


async def test_a_provider_with_unreadable_replies_is_not_queried_further(
    bus: Bus, receiver: StatusReceiver, listening: None
) -> None:
    provider = ProviderStub(bus)
    provider.says = b"what?"
    await provider.open()

    await beat(bus)

    await until(lambda: provider.asked > 0)
    await asyncio.sleep(0.2)
    assert provider.asked <= AT_ONCE
    assert not receiver.taken
    assert not receiver.lost


async def test_one_unreadable_reply_does_not_block_others(
    bus: Bus, receiver: StatusReceiver, listening: None
) -> None:
    provider = ProviderStub(bus)
    provider.knows = MANY
    deep = (
        b'{"status": "provisioned", "podSetUpdates": [{"name": "a", "tolerations": [{"a": %s}]}]}'
    )
    provider.odd = {
        0: b'{"status": "\xff"}',
        1: deep % (b"[" * 900 + b"]" * 900),
        2: deep % (b"[" * 100_000 + b"]" * 100_000),
        3: b'{"status": "provisioned", "seq": "one"}',
        4: b"[]",
    }
    await provider.open()

    await beat(bus)

    await until(lambda: len(receiver.taken) == MANY - len(provider.odd))
    assert sorted(receiver.strange) == [a_record(number).spec.workload for number in provider.odd]
    assert not receiver.lost
