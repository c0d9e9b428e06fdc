"""Carries the recorded story to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
import yaml

from recorded.player import Player, condition
from recorded.story import NAMESPACE, OBJECTS, STEPS

_IMPATIENT = next(
    {
        **manifest,
        "spec": {
            **manifest["spec"],
            "retryStrategy": {
                "backoffBaseSeconds": 1,
                "backoffMaxSeconds": 1,
                "backoffLimitCount": 100,
            },
        },
    }
    for manifest in OBJECTS
    if manifest["kind"] == "ProvisioningRequestConfig"
)
CAN_FINISH = [manifest["metadata"]["name"] for step in STEPS for manifest in step]


async def finish_all(player: Player, more: Sequence[str] = ()) -> None:
    """Lets every workload of the story compete again, answers its checks, and ends its job.

    ``more``: other workloads with ended jobs."""
    # `burst` waits for the machine of `booked`: without a shorter delay it could wait for minutes.
    await player.admit("apply", "-f", "-", stdin=yaml.safe_dump(_IMPATIENT))
    await player.admit("stop", "workload", "burst", "-n", NAMESPACE)
    for name in ("stopped", "rejected", "retried", "burst"):
        await player.admit("activate", "workload", name, "-n", NAMESPACE)
    await player.admit("release", "workload", "held", "-n", NAMESPACE)
    waiting = dict.fromkeys([*CAN_FINISH, *more])
    try:
        async with asyncio.timeout(120):
            while waiting:
                for name in list(waiting):
                    stored = await player.workload(name)
                    if condition("Finished")(stored):
                        del waiting[name]
                    elif condition("Admitted")(stored):
                        await player.finish(name)
                await asyncio.sleep(0.2)
    except TimeoutError:
        pytest.fail("\n".join([await _why(player, name) for name in waiting]))


async def _why(player: Player, name: str) -> str:
    """Says why the workload has not finished, and lists its facts on the log."""
    explained = await player.admit("explain", "workload", name, "-n", NAMESPACE)
    facts = await player.admit("events", "-n", NAMESPACE, "--workload", name)
    return f"{explained}\nrunning as {player.running.get(name)}\n{facts}"
