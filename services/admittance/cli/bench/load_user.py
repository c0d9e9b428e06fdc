"""Adds a user for load generators to a locked server. The user may do everything in the account
of the
services, because a load generator plays people, runners and checks at once.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from admittance.runtime.auth.keys import new_key
from admittance.runtime.auth.reload import reload
from admittance.runtime.auth.store import CONFIG, SYSTEM
from admittance.runtime.connection_options import NO_OPTIONS, ConnectionOptions

USERS: Final = "    users: ["


def add_load_user(auth: Path) -> ConnectionOptions:
    """Adds the user to the file that the server includes, until `admit auth` or `admit up` writes
    the file again. ``auth``: the folder of users; if it does not exist, the server is open. Returns
    the user's login."""
    if not auth.exists():
        return NO_OPTIONS
    key = new_key()
    file = auth.parent / "load.creds"
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as credentials:
        credentials.write(f"{key.seed}\n")
    config = auth / CONFIG
    # The list of CORE's users is the first in the file.
    text = config.read_text().replace(USERS, f"{USERS}\n      {{ nkey: {key.public} }}", 1)
    config.write_text(text)
    return ConnectionOptions(creds=str(file))


async def with_load_user(auth: Path, url: str) -> ConnectionOptions:
    """Adds a user as `add_load_user` does, and reloads the running server."""
    login = add_load_user(auth)
    if login is not NO_OPTIONS:
        await reload(url, str(auth / SYSTEM), NO_OPTIONS)
    return login
