"""The accounts of an embedded nats-server, and the folder that JetStream keeps for each of them.

A server that demands no credentials has the implicit account ``$G``, which cannot be declared
beside other accounts. A server that demands credentials has the accounts of `access.server_config`,
and its streams belong to the account CORE. If a server demands credentials for the first time on a
folder, the folder's streams are moved to CORE; a server that later demands none on that folder
serves CORE to every client.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import structlog

from admittance.access.role import Account
from admittance.runtime.errors import SetupError

IMPLICIT: Final = "$G"
OPEN_CORE: Final = (
    "# Open, on streams of a locked server: without credentials a client is a user of CORE.\n"
    "accounts { CORE { jetstream: enabled, users: [{ user: open, password: open }] } }\n"
    "no_auth_user: open"
)


log = structlog.get_logger()


LOCKED: Final = 'include "./auth/auth.conf"'
"""The line of the configuration for a server with its users in the folder ``auth`` beside the
configuration; nats-server takes the path as relative to its configuration.
"""


def open_accounts(store: Path) -> str:
    """The lines of the configuration for a server that demands no credentials; "" if no server on
    this store has ever demanded credentials. ``store``: the server's folder of streams.
    """
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
