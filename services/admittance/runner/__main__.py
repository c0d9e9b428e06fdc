"""``python -m admittance.runner``: one runner against the bus of the environment."""

from __future__ import annotations

import asyncio
import os
import sys

from admittance.runner.service import SERVICE
from admittance.runner.service import run as run_jobs
from admittance.runtime.bus import Bus
from admittance.runtime.environment import choice
from admittance.runtime.service import main
from admittance.runtime.settings import Settings


async def run(bus: Bus, settings: Settings, *, stop: asyncio.Event) -> None:
    await run_jobs(
        bus,
        settings,
        executor=os.environ.get("ADMIT_EXECUTOR") or "local",
        claim_ttl=settings.claim_seconds,
        stop=stop,
        detach_jobs=bool(choice(os.environ, "ADMIT_DETACH_JOBS", {"1": True, "0": False})),
    )


if __name__ == "__main__":
    sys.exit(main(SERVICE, run))
