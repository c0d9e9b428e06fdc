"""A data folder of `admit up` with streams that a restore creates.

A server of its own serves a draft inside the folder, to one key that no other program has. Only
when all streams are restored and on the disk does the draft become the folder's streams, by one
rename: after a crash in the middle, the folder has no streams, and `admit up` starts on none.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from admittance.access.users import User
from admittance.client.errors import RequestFailed
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import SetupError
from admittance.runtime.nats.connection_options import ConnectionOptions
from admittance.runtime.nats_server.credentials_files import credentials_text
from admittance.runtime.nats_server.embedded_server import EmbeddedServer
from admittance.runtime.nats_server.jwt_issuer import new_key
from admittance.runtime.nats_server.secret_files import write_secret_file
from admittance.runtime.telemetry import logs

DRAFT: Final = "restore"
"""The folder in the data folder with the server of the restore."""
STORE: Final = "nats"


@asynccontextmanager
async def served_folder(folder: Path) -> AsyncIterator[Bus]:
    """A connection to an empty server; its streams become those of the data folder, unless an
    error ends the block. Raises RequestFailed for a folder that cannot be used or has streams, and
    if an `admit up` runs on it.
    """
    logs.configure("admit", "", json=False, level="error")
    owner = EmbeddedServer(folder)
    draft = folder / DRAFT
    try:
        owner.take_folder()
    except SetupError as error:
        raise RequestFailed(str(error)) from None
    try:
        if _has_files(folder / STORE):
            raise RequestFailed(
                f"{folder} has the data of a deployment: restore into a new folder, or move "
                f"{folder / STORE} away"
            )
        # A restore that was killed leaves its server running.
        await EmbeddedServer(draft).end_left()
        shutil.rmtree(draft, ignore_errors=True)
        with TemporaryDirectory() as secrets:
            key, creds = new_key(), Path(secrets) / "restore.creds"
            user = User(name="restore", role="backup", key=key.public)
            write_secret_file(creds, credentials_text(user, key.seed))
            server = EmbeddedServer(
                draft, accounts=f'authorization {{ users: [{{ nkey: "{key.public}" }}] }}'
            )
            bus = None
            try:
                url = await server.start()
                access = ConnectionOptions(creds=str(creds))
                bus = await Bus.connect(url, name="admit-restore", access=access)
                yield bus
            finally:
                if bus is not None:
                    await bus.close()
                await server.stop()
        _sync(draft / STORE)
        shutil.rmtree(folder / STORE, ignore_errors=True)
        (draft / STORE).rename(folder / STORE)
        _sync_folder(folder)
    except SetupError as error:
        raise RequestFailed(str(error)) from None
    except OSError as error:
        raise RequestFailed(f"cannot write to {folder}: {error.strerror or error}") from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        owner.release_folder()


def _has_files(folder: Path) -> bool:
    return any(files for _, _, files in os.walk(folder))


def _sync(folder: Path) -> None:
    """Writes everything in the folder to the disk."""
    for inner, _, files in os.walk(folder):
        for name in files:
            descriptor = os.open(Path(inner) / name, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        _sync_folder(Path(inner))


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
