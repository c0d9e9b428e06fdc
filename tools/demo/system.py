"""The system that the demo runs on: `admit up` on a temporary data folder."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tools.demo.story import Demo, heading, styled

from admittance.bench.system import Child, start
from admittance.cli.support import output


@asynccontextmanager
async def running_demo(samples: Path) -> AsyncIterator[tuple[Demo, Child]]:
    """A demo with its check, on a system that ends afterwards. Raises SetupError."""
    with tempfile.TemporaryDirectory(prefix="admit-demo-") as folder:
        heading("Everything embedded: a nats-server and all services, on a folder of its own")
        output.say(styled(f"$ admit up --port 0 --data-dir {folder}/data", "1"))
        # Files that jobs keep for their next attempt belong to this run and go with the folder.
        child = await start(
            ["up", "--port", "0", "--data-dir", f"{folder}/data"],
            Path(folder) / "log",
            {"TMPDIR": folder},
        )
        try:
            url = await child.ready()
            if child.web:
                output.say(f"  web {child.web}")
            output.say(f"  ready {url}   ({child.ready_seconds:.1f} s)")
            demo = Demo(url, samples, Path(folder))
            async with demo.allowance_check():
                yield demo, child
        finally:
            await child.stop()
