"""``python -m admittance.runner``: one runner against the bus of the environment."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from admittance.runner.service import SERVICE, run
from admittance.runtime import logs
from admittance.runtime.bus import Bus
from admittance.runtime.environment import choice
from admittance.runtime.errors import AdmittanceError
from admittance.runtime.settings import Settings


async def main() -> None:
    settings = Settings.from_env(SERVICE)
    logs.configure(SERVICE, settings.instance, settings.json_logs, level=settings.log_level)
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    bus = await Bus.connect(settings.url, name=SERVICE, creds=settings.creds)
    try:
        await run(
            bus,
            settings,
            executor=os.environ.get("ADMIT_EXECUTOR") or "local",
            claim_ttl=settings.claim_seconds,
            stop=stop,
            detach_jobs=bool(choice(os.environ, "ADMIT_DETACH_JOBS", {"1": True, "0": False})),
        )
    finally:
        await bus.close()


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except AdmittanceError as error:
        sys.exit(str(error))
