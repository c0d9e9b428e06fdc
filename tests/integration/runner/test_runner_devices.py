"""A job opens the devices that were assigned to it, and no others; a device that is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from admittance.events.placement import PlacementPart
from admittance.events.stored.machines import (
    INVENTORIES,
    RunnerInventory,
    key_of_runner,
)
from admittance.events.subjects import CLAIMS
from admittance.job_rules.machine_options import MachineTexts, machine_of_texts
from admittance.runner.machines import device_watch
from admittance.runtime.bus.bucket import get
from integration.runner.harness import RunnerTestbed, until

pytestmark = pytest.mark.bus

CARD = "example.com/card"
OPENS = """
for card in $CARDS/*; do head -c 1 $card >/dev/null 2>&1 && echo opens ${card##*/}; done
echo has $ADMITTANCE_DEVICES_EXAMPLE_COM_CARD
"""


async def test_a_job_opens_its_own_devices_until_they_are_lost(
    testbed: RunnerTestbed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LOOK_SECONDS", "CONFIRM_SECONDS"):
        monkeypatch.setattr(device_watch, name, 0.02)
    cards = tmp_path / "cards"
    cards.mkdir()
    for name, device in (("card0", "/dev/zero"), ("card1", "/dev/full")):
        (cards / name).symlink_to(device)
    option = f"{CARD}={cards}/card0x2,{cards}/card1"
    given = machine_of_texts(MachineTexts(devices=(option,)), {})

    async def inventory() -> RunnerInventory:
        entry = await get(testbed.bus, key_of_runner(INVENTORIES, "m-1"), bucket=CLAIMS)
        assert entry is not None
        return msgspec.json.decode(entry.value or b"", type=RunnerInventory)

    async with testbed.runner("a", user="m-1", given=given):
        machine = await inventory()
        assert machine.capacity[CARD] == 3
        advice = any("advice for example.com/card" in message for message in machine.messages)

        def placed(count: int, *units: str) -> dict[str, Any]:
            devices = {CARD: tuple(f"{cards}/{unit}" for unit in units)} if units else {}
            part = PlacementPart(
                runner="m-1", id=machine.id, pod_set="main", first=0, count=count, devices=devices
            )
            container = {
                "name": "c",
                "command": ["/bin/sh", "-c", OPENS],
                "env": [{"name": "CARDS", "value": str(cards)}],
            }
            return {"count": count, "placement": (part,), "containers": [container]}

        await testbed.admit("both", "", **placed(2, "card0::1", "card1"))
        await testbed.admit("none", "", **placed(1))
        outputs = {}
        for name in ("both", "none"):
            assert (await testbed.wait_for_fact("finished", name)).succeeded
            for path in (tmp_path / "a/runner/runs").glob(f"team.{name}.*/out/*.log"):
                outputs[name, path.stem] = path.read_text().split("\n")[:-1]
        opens = ["opens card0", "opens card1"]
        assert outputs == {
            ("both", "main-0"): [*(opens if advice else opens[:1]), f"has {cards}/card0"],
            ("both", "main-1"): [*(opens if advice else opens[1:]), f"has {cards}/card1"],
            ("none", "main-0"): [*(opens if advice else []), "has"],
        }
        sleeps = {"containers": None}
        await testbed.admit("stays", "sleep 100", **{**placed(1, "card0::0"), **sleeps})
        await testbed.admit("moves", "sleep 100", **{**placed(1, "card1"), **sleeps})
        for name in ("stays", "moves"):
            await testbed.wait_for_fact("started", name)
        (cards / "card1").unlink()
        stopped = await testbed.wait_for_fact("stopped", "moves")
        assert (stopped.reason, stopped.message) == (
            "RunnerEnded",
            f"the device {cards}/card1 of {CARD} is lost",
        )

        async def is_said() -> bool:
            return (await inventory()).capacity[CARD] == 2

        await until(is_said, "the announcement of the loss")
        lost = f"the device {cards}/card1 of {CARD} is lost, so no job gets it"
        assert lost in (await inventory()).messages
        assert await testbed.said("stopped", "stays") is None
        await testbed.admit("late", "true", **{**placed(1, "card1"), **sleeps})
        late = await testbed.wait_for_fact("stopped", "late")
        assert late.message == f"this machine has no device {cards}/card1 of {CARD} any more"
