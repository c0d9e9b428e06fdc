"""Processes of check controllers."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from support.check_requests import NAME
from support.servers import until

PROGRAM = Path(__file__).with_name("controllers.py")


class Replicas:
    """Processes of one controller."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self.processes: list[asyncio.subprocess.Process] = []

    async def start(self, which: str, name: str = NAME) -> asyncio.subprocess.Process:
        number = len(self.processes)
        with (self.folder / f"log-{number}").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                str(PROGRAM),
                which,
                name,
                str(self.folder),
                env={**os.environ, "ADMIT_NATS_URL": self.url, "ADMIT_LOG": "json"},
                stderr=log,
            )
        self.processes.append(process)
        return process

    def log(self, number: int) -> str:
        return (self.folder / f"log-{number}").read_text()

    async def until_serving(self, count: int = 1) -> None:
        def all_serve() -> bool:
            return all("check_controller_started" in self.log(i) for i in range(count))

        await until(all_serve)

    def begun(self) -> list[str]:
        notes = self.folder / "begun"
        return notes.read_text().split() if notes.exists() else []

    async def stop(self) -> None:
        for process in self.processes:
            if process.returncode is None:
                process.kill()
                await process.wait()
