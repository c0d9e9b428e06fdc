"""The accounts of an embedded nats-server, and the folder that JetStream keeps for each of them.

A server that demands no credentials has the implicit account ``$G``, which cannot be declared
beside other accounts. A server that demands credentials has the accounts of `access.server_config`,
and its streams belong to the account CORE. Streams of a folder from before the lock are moved
there; an open server on a locked folder serves CORE to every client.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import structlog

from admittance.access.roles import Account
from admittance.runtime.errors import SetupError

IMPLICIT: Final = "$G"
OPEN_CORE: Final = (
    "# Open, on streams of a locked server: without credentials a client is a user of CORE.\n"
    "accounts { CORE { jetstream: enabled, users: [{ user: open, password: open }] } }\n"
    "no_auth_user: open"
)


log = structlog.get_logger()


LOCKED: Final = 'include "./auth/auth.conf"'
"""For a server with the users in ``auth`` beside its configuration; the server takes the path as
relative to its configuration."""


def open_accounts(store: Path) -> str:
    """The lines of the configuration for a server that demands no credentials; "" for a store that
    was never locked. ``store``: the server's folder of streams."""
    return OPEN_CORE if _has_streams(_folder(store, Account.CORE)) else ""


def move_streams(store: Path) -> bool:
    """Moves the streams of the implicit account to CORE, while no server runs; returns whether it
    moved any. The move is one rename of a folder, so a crash leaves all streams in one of the two
    accounts. Raises SetupError.
    """
    old, new = _folder(store, IMPLICIT), _folder(store, Account.CORE)
    if not _has_streams(old):
        return False
    if _has_streams(new):
        log.warning("streams_ignored", folder=str(old), reason="CORE has streams")
        return False
    try:
        if new.exists():
            _remove_empty(new)
        old.rename(new)
    except OSError as error:
        raise SetupError(f"cannot move the streams in {old} to {new}: {error.strerror}") from None
    log.info("streams_moved", to=str(new))
    return True


def _folder(store: Path, account: str) -> Path:
    return store / "jetstream" / account


def _has_streams(account: Path) -> bool:
    try:
        return any((account / "streams").iterdir())
    except OSError:
        return False


def _remove_empty(folder: Path) -> None:
    """Removes a folder of folders; raises OSError if there is a file in it."""
    for inner in folder.iterdir():
        _remove_empty(inner)
    folder.rmdir()
