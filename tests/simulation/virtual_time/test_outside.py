"""A simulated process that touches the world outside is found by its name."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from admittance.scheduling.scheduler import Scheduler
from simulation.run import run
from simulation.virtual_time.loop import Process, VirtualLoop
from simulation.virtual_time.outside import TouchedOutside, forbidden


@pytest.mark.parametrize(
    ("touch", "said"),
    [
        pytest.param(lambda: time.sleep(0), "time.sleep", id="it sleeps in its thread"),
        pytest.param(lambda: open("x"), "builtins.open", id="it opens a file"),  # noqa: PTH123, SIM115
        pytest.param(lambda: Path("x").read_text(), "io.open", id="it reads a path"),
        pytest.param(
            lambda: threading.Thread(target=print).start(), "Thread.start", id="it starts a thread"
        ),
        pytest.param(lambda: time.time(), "time.time", id="it reads the clock"),  # noqa: PLW0108
        pytest.param(lambda: time.monotonic(), "time.monotonic", id="it measures time"),  # noqa: PLW0108
        pytest.param(
            lambda: socket.socket(socket.AF_INET), "socket.socket", id="it makes a socket"
        ),
    ],
)
def test_a_process_that_touches_the_outside_is_named(
    touch: Callable[[], object], said: str
) -> None:
    loop = VirtualLoop()

    async def main() -> None:
        await asyncio.sleep(1)
        touch()

    Process(loop, "scheduler-a").start(main())
    with forbidden(loop):
        loop.play(5.0)
    assert len(loop.complaints) == 1
    assert loop.complaints[0].startswith(f"scheduler-a calls {said}")
    loop.close()


def test_a_process_that_sleeps_in_a_thread_is_named() -> None:
    loop = VirtualLoop()

    async def main() -> None:
        with suppress(TouchedOutside):
            await asyncio.to_thread(time.sleep, 1)

    Process(loop, "runner-a").start(main())
    with forbidden(loop) as touched:
        loop.play(5.0)
    assert touched == ["runner-a calls time.sleep(1,)"]
    loop.close()


def test_the_harness_may_touch_the_outside(tmp_path: Path) -> None:
    loop = VirtualLoop()
    with forbidden(loop):
        (tmp_path / "x").write_text("y")
        time.sleep(0)
    loop.close()


def test_a_service_that_reads_the_real_clock_breaks_its_story() -> None:
    def decide(self: Scheduler, *args: Any, **named: Any) -> Any:
        time.time()
        return _decide(self, *args, **named)

    with patch.object(Scheduler, "decide", decide):
        assert re.match(r"s-[ab] calls time\.time\(", run(0).broken)


_decide = Scheduler.decide
