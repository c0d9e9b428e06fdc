"""``admit auth expire``: removes users when they expire."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Final

from admittance.access.users import User
from admittance.cli.auth.auth import reload_servers
from admittance.cli.support.options import Call
from admittance.runtime.nats_server.auth_store import AuthStore
from admittance.runtime.nats_server.server_reload import remove_expired_users
from admittance.runtime.process.admin import admin_port
from admittance.runtime.process.settings import Settings
from admittance.runtime.process.supervise import ServiceTask, stop_on_signals, supervise
from admittance.runtime.telemetry import logs

NAME: Final = "auth-expire"
"""The name of the process in its log and at its admin port."""


async def expire(call: Call, folder: Path) -> None:
    """Removes users when they expire, until a stop signal. After an error, which is logged, the
    removal is tried again.
    """
    settings = Settings.from_env(NAME, url=call.url, connection=call.connection)
    logs.configure(NAME, settings.instance, settings.json_logs, level=settings.log_level)
    store = AuthStore(folder)
    stop = asyncio.Event()
    stop_on_signals(stop, in_time=True)

    async def reload(_: Sequence[User]) -> None:
        await reload_servers(call, store)

    async def remove(serves: asyncio.Event) -> None:
        serves.set()
        await remove_expired_users(store, reload)

    async def ready() -> str:
        return ""

    async with admin_port(settings) as admin:
        with nullcontext() if admin is None else admin.ready_if(NAME, ready):
            await supervise([ServiceTask(NAME, remove)], stop)
