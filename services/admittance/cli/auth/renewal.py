"""``admit auth renew`` and ``revoke --older``: JWTs with the permissions that roles have now,
for the same keys.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from admittance.access.users import is_expired
from admittance.cli.auth.auth import tell_servers
from admittance.cli.support import output
from admittance.cli.support.options import Call
from admittance.client.errors import BadInput
from admittance.runtime import clock
from admittance.runtime.nats.credentials import claims_of
from admittance.runtime.nats_server.auth_store import AuthStore
from admittance.runtime.nats_server.credentials_files import read_jwt, write_jwt
from admittance.runtime.nats_server.jwt_issuer import NewJwt

NOTHING_TO_RENEW: Final = (
    "nothing to renew: users with NKeys have the permissions that auth.conf gives them, which "
    "`admit auth reload` writes anew"
)
OLDER_STAY: Final = (
    "older JWTs stay valid, with the permissions that they had: `admit auth revoke NAME --older` "
    "ends them"
)


async def renew(
    call: Call,
    folder: Path,
    names: Sequence[str],
    file: Path | None,
    *,
    every: bool,
    revoke_old: bool,
) -> None:
    """Writes a new JWT for each user into its credentials file, or alone into a file if that is
    elsewhere. ``file``: of a single user, instead of NAME.creds in the working folder."""
    store = AuthStore(folder)
    wanted = [store.user(name) for name in dict.fromkeys(names)]
    if not store.has_jwts:
        output.note(NOTHING_TO_RENEW)
        return
    now = clock.now()
    expired = [user.name for user in wanted if is_expired(user, now)]
    if expired:
        raise BadInput(f"{expired[0]} has expired: revoke this user, and add it again")
    if every:
        wanted = [user for user in store.users if not is_expired(user, now)]
    if not wanted:
        output.note(f"no users in {folder}: admit auth add ROLE NAME -o FILE")
        return
    written: list[NewJwt] = []
    try:
        for jwt in store.new_jwts([user.name for user in wanted]):
            _write(jwt, file or _default_file(jwt.user.name))
            written.append(jwt)
    finally:
        if written:
            store.note_renewed(written)
    if not revoke_old:
        output.note(OLDER_STAY)
        return
    store.revoke_older([new.user.name for new in written])
    await tell_servers(call, store)


def _write(made: NewJwt, target: Path) -> None:
    about = f"renewed {made.user.name} ({made.user.role})"
    if write_jwt(target, made.jwt):
        output.say(f"{about}: credentials in {target}")
        return
    command = f"admit auth renew --jwt {shlex.quote(target.name)} -o FILE"
    output.say(f"{about}: JWT in {target}; `{command}` puts it into a credentials FILE")


async def revoke_older(call: Call, folder: Path, name: str) -> None:
    """Ends the JWTs of the user but the newest, and tells the running servers."""
    store = AuthStore(folder)
    user = store.user(name)
    if not store.has_jwts:
        raise BadInput(f"--older: the users in {folder} have NKeys and no JWTs")
    if not store.revoke_older([name]):
        output.note(f"{name} has no older JWT: `admit auth renew` makes a newer one")
        return
    output.say(f"revoked the older JWTs of {name} ({user.role})")
    await tell_servers(call, store)


def _default_file(name: str) -> Path:
    credentials = Path(f"{name}.creds")
    return credentials if credentials.exists() else Path(f"{name}.jwt")


def put(jwt_file: Path, file: Path) -> None:
    """Puts the JWT of a file into a credentials file with its key."""
    jwt = read_jwt(jwt_file)
    if not file.exists():
        raise BadInput(f"-o {file}: there is no such credentials file")
    write_jwt(file, jwt)
    claims = claims_of(jwt)
    output.say(f"renewed {claims.name if claims is not None else ''}: credentials in {file}")
