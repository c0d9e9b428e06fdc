"""Processes of check controllers."""

from __future__ import annotations

import os
from pathlib import Path

from support.check_requests import NAME
from support.processes.fork_server import ForkedProcess
from support.servers import until

PROGRAM = "integration.checks.controllers"


class Replicas:
    """Processes of one controller."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self.processes: list[ForkedProcess] = []

    async def start(self, which: str, name: str = NAME) -> ForkedProcess:
        number = len(self.processes)
        log = self.folder / f"log-{number}"
        log.touch()
        env = {**os.environ, "ADMIT_NATS_URL": self.url, "ADMIT_LOG": "json"}
        process = ForkedProcess([PROGRAM, which, name, str(self.folder)], env, out=log)
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
