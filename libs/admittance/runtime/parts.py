"""Several tasks that are one work: they begin together, and when one of them fails all end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from admittance.runtime.errors import AdmittanceError


@asynccontextmanager
async def parts() -> AsyncIterator[asyncio.TaskGroup]:
    """Goes on until all tasks of the group have ended. Raises what one of them raised: an
    AdmittanceError alone, so that whoever began tells a lost bucket from a bug by its type."""
    try:
        async with asyncio.TaskGroup() as tasks:
            yield tasks
    except* AdmittanceError as group:
        raise group.exceptions[0] from None
