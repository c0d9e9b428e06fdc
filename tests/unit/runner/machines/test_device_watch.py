"""When a runner announces that devices are lost, and gives their jobs back."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from admittance.events.stored.machines import Device, RunnerInventory
from admittance.runner.decide import ShutDown
from admittance.runner.machines import device_watch
from admittance.runner.machines.device_watch import DeviceWatch

GPU = "nvidia.com/gpu"
A, B = (Device(resource=GPU, index=index, id=f"GPU-{index}") for index in range(2))


class _Runner:
    """A runner whose run ``r0`` has a slice of the first device, and ``r1`` the second one."""

    def __init__(self, leaving: str = "") -> None:
        units = {"r0": f"{GPU}=GPU-0::1", "r1": f"{GPU}=GPU-1"}
        self.folders = {
            key: SimpleNamespace(identity=SimpleNamespace(units=(unit,)))
            for key, unit in units.items()
        }
        self.runs = {key: SimpleNamespace(leaving=key == leaving) for key in units}
        self.executor = SimpleNamespace(take_devices=self.take_devices)
        self.inventory = inventory(A, B)
        self.taken = self.inventory.devices
        self.handled: list[tuple[str, str]] = []
        self.announced = 0

    def take_devices(self, _: str, devices: tuple[Device, ...]) -> tuple[str, ...]:
        self.taken = devices
        return ("advice",)

    def handle(self, key: str, event: ShutDown) -> None:
        self.handled.append((key, event.why))

    async def announce(self, _: object) -> None:
        assert not self.handled, "placement would assign a lost device again"
        self.announced += 1


def inventory(*devices: Device) -> RunnerInventory:
    messages = ("advice",)
    return RunnerInventory(
        id="r1", name="m", devices=devices, messages=messages, capacity={GPU: len(devices)}
    )


async def looked(runner: _Runner, *looks: tuple[Device, ...]) -> list[bool]:
    """What each look returns. ``looks``: for each call of the watch what the machine has."""
    left = [seen(each) for each in looks]
    watch = DeviceWatch(cast(Any, runner), cast(Any, runner), lambda: left.pop(0))
    return [await watch.look() for _ in looks]


def seen(devices: tuple[Device, ...]) -> RunnerInventory:
    return RunnerInventory(id="r1", name="m", devices=devices, capacity={GPU: len(devices)})


async def test_a_device_is_lost_when_two_looks_in_a_row_miss_it() -> None:
    runner = _Runner()
    assert await looked(runner, (A, B), (B,), (A, B), (B,)) == [False, True, False, True]
    assert (runner.announced, runner.handled, runner.taken) == (0, [], (A, B))
    assert await looked(runner, (B,), (B,), (B,)) == [True, False, False]
    assert (runner.announced, runner.taken) == (1, (B,))
    assert (runner.inventory, runner.inventory.capacity) == (inventory(B), {GPU: 1})
    assert runner.handled == [("r0", f"the device GPU-0 of {GPU} is lost")]


async def test_a_missing_device_is_looked_for_again_in_a_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = iter(((A, B), (B,), (B,)))
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 4:
            raise asyncio.CancelledError

    quick = SimpleNamespace(sleep=sleep, to_thread=asyncio.to_thread)
    monkeypatch.setattr(device_watch, "asyncio", quick)
    runner = cast(Any, _Runner())
    watch = DeviceWatch(runner, runner, lambda: seen(next(looks, ())))
    with pytest.raises(asyncio.CancelledError):
        await watch.run()
    long, short = device_watch.LOOK_SECONDS, device_watch.CONFIRM_SECONDS
    assert (pauses, long > short) == ([long, long, short, long], True)


async def test_a_device_that_comes_back_is_announced_at_once() -> None:
    runner = _Runner()
    runner.inventory = inventory(B)
    assert await looked(runner, (A, B)) == [False]
    assert (runner.announced, runner.inventory, runner.handled) == (1, inventory(A, B), [])


async def test_a_run_that_is_given_back_already_is_not_given_back_again() -> None:
    runner = _Runner(leaving="r1")
    await looked(runner, (), ())
    assert [key for key, _ in runner.handled] == ["r0"]
