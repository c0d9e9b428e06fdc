"""Hands runs to shims, passes on what shims have to say, and tells them to stop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from admittance.runner.folder import DataFolder, RunFolder

SHIM: Final = Path(__file__).with_name("shim.py")
STARTING_MAX: Final = 32
"""Runs handed over whose processes do not run yet: more would only crowd the processors."""
STARTING_SECONDS: Final = 10.0
"""After this a start counts as under way, whatever it does, so that one cannot block the others."""

log = structlog.get_logger(service="runner")


class Launcher:
    """Use `open`, then `launch`; `close` leaves the shims running."""

    def __init__(self, folder: DataFolder, news: Callable[[str], None]) -> None:
        """``news`` is called with the key of a run whose journal has grown."""
        self._folder = folder
        self._news = news
        self._nursery: asyncio.subprocess.Process | None = None
        self._opening = asyncio.Lock()
        self._slots = asyncio.Semaphore(STARTING_MAX)
        self._starting: dict[str, asyncio.TimerHandle] = {}
        self._waiting: set[str] = set()
        self._pipe = -1
        self._heard = b""
        self._closed = False

    async def open(self) -> None:
        # For reading and writing: it never ends, and shims always find a reader.
        self._pipe = os.open(self._folder.notify, os.O_RDWR | os.O_NONBLOCK)
        asyncio.get_running_loop().add_reader(self._pipe, self._on_news)
        await self._living_nursery()

    async def close(self) -> None:
        self._closed = True
        for key in list(self._starting):
            self.settled(key)
        if self._pipe >= 0:
            asyncio.get_running_loop().remove_reader(self._pipe)
            os.close(self._pipe)
            self._pipe = -1
        nursery, self._nursery = self._nursery, None
        if nursery is not None and nursery.stdin is not None:
            nursery.stdin.close()
            await nursery.wait()

    async def launch(self, run: RunFolder) -> None:
        """Hands the run to a shim, when there is room. Doing so twice starts nothing twice."""
        key = run.identity.key
        if key in self._waiting or key in self._starting:
            return
        self._waiting.add(key)
        try:
            await self._slots.acquire()
        finally:
            self._waiting.discard(key)
        if self._closed:
            self._slots.release()
            return
        loop = asyncio.get_running_loop()
        self._starting[key] = loop.call_later(STARTING_SECONDS, self.settled, key)
        for _ in range(3):
            nursery = await self._living_nursery()
            assert nursery.stdin is not None, "it was made with a pipe"
            try:
                nursery.stdin.write(os.fsencode(run.path) + b"\n")
                await nursery.stdin.drain()
                return
            except (ConnectionError, RuntimeError):
                continue  # it died this moment: the next one gets the folder
        log.error("nursery_dies", run=key)

    def settled(self, key: str) -> None:
        """The processes of the run are started, or it has ended: room for another one."""
        timer = self._starting.pop(key, None)
        if timer is not None:
            timer.cancel()
            self._slots.release()

    def stop(self, run: RunFolder) -> None:
        """Tells the shim to end its pods. One that is yet to begin finds the note of the stop."""
        pid = run.shim_pid()
        if pid and run.shim_lives():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGTERM)

    async def _living_nursery(self) -> asyncio.subprocess.Process:
        async with self._opening:
            if self._nursery is None or self._nursery.returncode is not None:
                if self._nursery is not None:
                    log.warning("nursery_restarted", status=self._nursery.returncode)
                with (self._folder.root / "shim.log").open("ab") as errors:
                    self._nursery = await asyncio.create_subprocess_exec(
                        sys.executable,
                        "-I",
                        "-S",
                        str(SHIM),
                        stdin=asyncio.subprocess.PIPE,
                        stdout=asyncio.subprocess.DEVNULL,
                        stderr=errors,
                        # Ctrl-C at the terminal is for the runner alone.
                        start_new_session=True,
                    )
            return self._nursery

    def _on_news(self) -> None:
        try:
            data = os.read(self._pipe, 65536)
        except BlockingIOError:
            return
        *keys, self._heard = (self._heard + data).split(b"\n")
        for key in dict.fromkeys(keys):
            self._news(key.decode(errors="replace"))
