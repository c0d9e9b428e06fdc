"""A bug in what follows the objects of a cluster ends no provider."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from admittance.provider_kubernetes import object_watch
from admittance.provider_kubernetes.object_watch import PAUSE_MAX, ObjectWatch
from admittance.providers.builtin import INSTALLATION, REQUEST
from admittance.runtime.tasks import cancel_and_wait
from admittance.runtime.telemetry.object_faults import faults

OBJECT: dict[str, Any] = {
    "metadata": {
        "name": "p",
        "namespace": "ns",
        "uid": "u",
        "annotations": {REQUEST: "r"},
        "labels": {INSTALLATION: "ours"},
    },
    "spec": {"provisioningClassName": "c"},
}


class Listing:
    """A cluster with one object and without changes."""

    server = "https://cluster"

    async def list(self, *_: Any) -> tuple[list[dict[str, Any]], str]:
        return [OBJECT], "1"

    async def watch(self, *_: Any) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        await asyncio.Event().wait()
        yield "ADDED", OBJECT


async def test_a_bug_makes_the_class_inactive_until_the_objects_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []
    healths: list[str] = []
    listed = asyncio.Event()

    async def pause(_: ObjectWatch, seconds: float) -> None:
        pauses.append(seconds)

    def raises_once(_: str) -> None:
        if not pauses:
            raise KeyError("a bug")

    monkeypatch.setattr(object_watch.ObjectWatch, "_wait", pause)
    cluster: Any = Listing()
    watch = ObjectWatch(
        cluster,
        None,
        "",
        on_change=raises_once,
        on_listed=listed.set,
        on_health=healths.append,
        away_seconds=5.0,
    )
    running = asyncio.create_task(watch.run())
    await listed.wait()
    await cancel_and_wait(running)
    assert healths == ["", "https://cluster: KeyError: 'a bug'", ""]
    assert pauses == [PAUSE_MAX]
    [fault] = faults.take()
    assert fault.step == "read objects"
