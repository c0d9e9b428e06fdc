"""The health check of a container (`deploy/health.sh`) says what `/readyz` says."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from admittance.runtime.process.admin import AdminPort

SCRIPT = Path(__file__).parents[4] / "deploy" / "health.sh"
SERVICE = "digger"


async def checked(port: int) -> tuple[int | None, str]:
    """Exit status and standard error of the check."""
    done = await asyncio.create_subprocess_exec(
        *("bash", str(SCRIPT)),
        env={**os.environ, "ADMIT_ADMIN": f"0.0.0.0:{port}"},
        stderr=asyncio.subprocess.PIPE,
    )
    _, error = await asyncio.wait_for(done.communicate(), 30)
    return done.returncode, error.decode().strip()


async def test_container_check_says_what_readyz_says() -> None:
    trouble = ""

    async def why_not() -> str:
        return trouble

    admin = AdminPort("127.0.0.1:0", "admittance_")
    port = admin.address[1]
    try:
        admin.expect(SERVICE)
        assert await checked(port) == (1, "digger is not ready: starting")
        with admin.ready_if(SERVICE, why_not):
            assert await checked(port) == (0, "")
            trouble = "no $spade; `date`"
            assert await checked(port) == (1, "digger is not ready: no $spade; `date`")
    finally:
        await admin.close()
    assert await checked(port) == (
        1,
        f"no service answers at port {port}: it is starting, or it has ended",
    )
