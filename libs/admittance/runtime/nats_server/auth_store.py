"""The folder of `admit auth`: the users, their keys, and the file that nats-server includes.

Files, all of mode 0600 in a folder of mode 0700:

- ``users.json``: the users with their public keys; never a secret of a user.
- ``auth.conf``: the accounts and users for nats-server, made from ``users.json``.
- ``system.nk``: the seed with which the server is asked to read ``auth.conf`` again.
- ``run-as``: the Unix users of jobs, for the runner of `admit up`.
- ``NAME.creds``: the credentials of the users that `admit up` needs itself.
- ``OPERATOR.nk``, ``CORE.nk``, ``OUT.nk``, ``SYS.nk``: in a folder with JWTs, the seeds that sign
  them. In such a folder, ``auth.conf`` has no users, and the server keeps JWTs in ``jwt``.
- ``lock``: a file that a process locks while it changes the folder; ``sending``: while it sends
  JWTs to servers.

Root may change the folder of another Unix user: each file gets the owner of its folder.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import shlex
import stat
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec
import structlog

from admittance.access.jwt_claims import Revoked
from admittance.access.roles import problems
from admittance.access.server_config import server_config
from admittance.access.users import (
    FurtherKey,
    User,
    expired_users,
    is_expired,
    is_public_key,
    login_with,
    logins,
    without_expired,
)
from admittance.runtime.errors import AccessDenied, SetupError
from admittance.runtime.nats.credentials import read_user_key
from admittance.runtime.nats_server.credentials_files import credentials_file, credentials_text
from admittance.runtime.nats_server.jwt_issuer import (
    KEYS,
    JwtIssuer,
    NewJwt,
    is_seed_of,
    issue_after,
    later_than,
    new_issuer_key,
    new_key,
    revocation,
    still_needed,
)
from admittance.runtime.nats_server.secret_files import (
    check_own,
    create_file,
    open_new,
    read_own,
    write_secret_file,
)

USERS: Final = "users.json"
CONFIG: Final = "auth.conf"
SYSTEM: Final = "system.nk"
LOCK: Final = "lock"
SENDING: Final = "sending"
RUN_AS: Final = "run-as"
RESOLVER: Final = "jwt"
KEYS_MAX: Final = 100
"""The most further keys of one user."""
VERSIONS: Final = (1, 2)
"""The versions of ``users.json``: 2 is a folder with JWTs."""

log = structlog.get_logger()


class _Content(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``users.json``. ``system``: the public key of the user that reloads. ``servers``: the address
    of the nats-servers that must reload after a change of users. ``issuer``: the public
    keys of the operator and the accounts, if users have JWTs. ``revoked``: the users whose JWTs
    are revoked, if users have JWTs. ``issued``: when the JWTs of accounts were made, in seconds
    since 1970.
    """

    version: int
    system: str
    servers: str
    users: tuple[User, ...] = ()
    issuer: dict[str, str] | None = None
    revoked: tuple[Revoked, ...] = ()
    issued: int = 0


def _revoke(user: User) -> str:
    return f"admit auth revoke {shlex.quote(user.name)}"


class AuthStore:
    """The users in one folder of `admit auth`. Every method raises SetupError for a folder or file
    that is missing, unreadable, owned by another Unix user, or accessible to other Unix users."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def system_seed_file(self) -> str:
        """The path of the credentials file of the user that may reload servers."""
        return str(self.folder / SYSTEM)

    @property
    def users(self) -> tuple[User, ...]:
        """All users, in the order in which they were added."""
        return self._read().users

    @property
    def servers(self) -> str:
        """The address of the servers that include ``auth.conf``."""
        return self._read().servers

    def user(self, name: str) -> User:
        """The user of that name. Raises SetupError if no user has that name."""
        return _named(self.users, name, self.folder)

    @property
    def known_by_servers(self) -> tuple[User, ...] | tuple[Revoked, ...]:
        """What servers must read again after a change: the users, in a folder with JWTs the
        revoked users."""
        content = self._read()
        return content.users if content.issuer is None else content.revoked

    @property
    def has_jwts(self) -> bool:
        """Whether users get JWTs; False: the folder has NKeys only."""
        return self._read().issuer is not None

    def account_jwts(self) -> dict[str, str]:
        """The JWTs of the accounts, by public key; only for a folder with JWTs."""
        content = self._read()
        return self._issuer(content).account_jwts(content.revoked, content.issued)

    @asynccontextmanager
    async def sending(self) -> AsyncIterator[None]:
        """Holds a lock while the JWTs of accounts are read and sent: a server takes the JWTs that
        arrive last, so the JWTs of an earlier change must not arrive after those of a later change.
        """
        descriptor = self._open_lock(SENDING)
        try:
            await asyncio.to_thread(fcntl.flock, descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def create(self, servers: str, *, jwt: bool = False) -> None:
        """Makes the folder, with the key of the reloading user and without other users.
        ``servers``: the address of the servers that will include ``auth.conf``. ``jwt``: users get
        JWTs, so that servers need not know each of them."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            there = any(self.folder.iterdir())
            if not there:
                self.folder.chmod(0o700)
        except OSError as error:
            raise SetupError(f"cannot make the folder {self.folder}: {error.strerror}") from None
        if there:
            raise SetupError(
                f"{self.folder} is not empty: choose a new folder, or add users with `admit auth "
                "add`"
            )
        key = new_key()
        content = _Content(version=1, system=key.public, servers=servers)
        if jwt:
            content = msgspec.structs.replace(content, version=2, issuer=self._make_issuer())
        system = User(name="system", role="system", key=key.public)
        signed = self._issuer(content).system_jwt(key.public) if jwt else ""
        self._write(SYSTEM, credentials_text(system, key.seed, signed))
        self._save(content)

    def _make_issuer(self) -> dict[str, str]:
        public = {}
        for name in KEYS:
            key = new_issuer_key(name)
            self._write(f"{name}.nk", f"{key.seed}\n")
            public[name] = key.public
        return public

    def _issuer(self, content: _Content) -> JwtIssuer:
        public = content.issuer or {}

        def seed_of(name: str) -> str:
            path = self.folder / f"{name}.nk"
            seed = read_own(path).decode(errors="replace").strip()
            if not is_seed_of(seed, name, public[name]):
                raise SetupError(f"{path} is damaged: restore it from a backup")
            return seed

        return JwtIssuer(public, seed_of)

    def _credentials(self, content: _Content, user: User, seed: str) -> str:
        jwt = "" if content.issuer is None else self._issuer(content).user_jwt(user)
        return credentials_text(user, seed, jwt)

    def add(self, user: User, credentials: Path) -> User:
        """Adds a user with a new key, and writes the credentials file, which must not exist.
        Returns the user with its key."""
        key = new_key()
        added = msgspec.structs.replace(user, key=key.public)
        with self._locked() as content:
            if wrong := "; ".join(problems(added)):
                raise SetupError(wrong)
            if any(known.name == user.name for known in content.users):
                raise SetupError(
                    f"there is a user {user.name} already: choose another name, or revoke that "
                    f"user with `{_revoke(user)}`"
                )
            create_file(credentials, self._credentials(content, added, key.seed))
            try:
                self._save(msgspec.structs.replace(content, users=(*content.users, added)))
            except BaseException:
                credentials.unlink(missing_ok=True)
                raise
        return added

    def add_key(
        self,
        name: str,
        now: datetime,
        expires: datetime,
        *,
        purpose: str = "",
        alone: bool = False,
    ) -> str:
        """Adds a further key to a user. Returns the content of its credentials file, which is
        written nowhere. ``alone``: earlier keys of the purpose end. Raises SetupError for an
        unknown or expired user, and one with too many keys."""
        key = new_key()
        further = FurtherKey(key=key.public, created=now, expires=expires, purpose=purpose)
        with self._locked() as content:
            user = _named(content.users, name, self.folder)
            if is_expired(user, now):
                raise SetupError(f"the user {name} has expired")
            kept = [each for each in user.keys if each.expires > now]
            ended = [each for each in kept if alone and each.purpose == purpose]
            kept = [each for each in kept if each not in ended]
            if len(kept) >= KEYS_MAX:
                raise SetupError(
                    f"the user {name} has {len(kept)} tokens that have not expired: revoke the "
                    f"user with `{_revoke(user)}`, or wait"
                )
            changed = msgspec.structs.replace(user, keys=(*kept, further))
            users = tuple(changed if each is user else each for each in content.users)
            revoked = content.revoked
            if content.issuer is not None:
                gone = [revocation(login_with(user, each)) for each in ended]
                revoked = _with(revoked, gone)
            text = self._credentials(content, login_with(user, further), key.seed)
            self._save(msgspec.structs.replace(content, users=users, revoked=revoked))
        return text

    def provide(self, wanted: Sequence[User], folder: Path | None = None) -> bool:
        """Makes sure that each user exists and that its file, `credentials_of`, holds its key. A
        user with a missing or wrong file gets a new key. Returns whether any user was added or
        changed. ``folder``: the folder of the credentials files, if they are not in this folder.
        """
        with self._locked() as content:
            if content.issuer is not None:
                raise SetupError(
                    f"{self.folder} has users with JWTs, and `admit up` and compose.yaml use "
                    "NKeys: name another folder"
                )
            users = {user.name: user for user in content.users}
            for user in wanted:
                path = credentials_file(folder or self.folder, user.name)
                users[user.name] = self._provided(user, users.get(user.name), path)
            provided = tuple(users.values())
            self._save(msgspec.structs.replace(content, users=provided))
        return provided != content.users

    def credentials_of(self, name: str) -> str:
        """The credentials file of a user of `provide` in this folder."""
        return str(credentials_file(self.folder, name))

    def note_servers(self, servers: str) -> None:
        """Notes the address of the servers that include ``auth.conf``."""
        with self._locked() as content:
            if content.servers != servers:
                self._save(msgspec.structs.replace(content, servers=servers))

    def _provided(self, user: User, there: User | None, path: Path) -> User:
        if there is not None and there.role != user.role:
            raise SetupError(
                f"the user {user.name} in {self.folder} has the role {there.role}, and Admittance "
                f"needs it with the role {user.role}: run `{_revoke(user)}`"
            )
        if there is not None:
            reason = "it belongs to another user"
            try:
                if read_user_key(str(path)).public == there.key:
                    return msgspec.structs.replace(
                        user, key=there.key, created=there.created, keys=there.keys
                    )
            except AccessDenied as error:
                reason = str(error)
            log.warning("key_made_anew", user=user.name, file=str(path), reason=reason)
        key = new_key()
        added = msgspec.structs.replace(user, key=key.public)
        if wrong := "; ".join(problems(added)):
            raise SetupError(wrong)
        write_secret_file(path, credentials_text(added, key.seed))
        return added

    def new_jwts(self, names: Sequence[str]) -> list[NewJwt]:
        """A new JWT for the key of each user, with the permissions that its role has now; only for
        a folder with JWTs. The JWTs that the users have stay valid. Call `note_renewed` when the
        new ones are written."""
        with self._locked() as content:
            issuer, made = self._issuer(content), []
            for name in names:
                user = _named(content.users, name, self.folder)
                issued = issue_after(user)
                made.append(NewJwt(user, issuer.user_jwt(user, issued), issued))
        return made

    def note_renewed(self, made: Sequence[NewJwt]) -> None:
        """Notes which JWT of each user is its newest."""
        issued = {renewed.user.key: renewed.issued for renewed in made}
        with self._locked() as content:
            users = [
                msgspec.structs.replace(user, issued=max(user.issued, issued.get(user.key, 0)))
                for user in content.users
            ]
            self._save(msgspec.structs.replace(content, users=tuple(users)))

    def revoke_older(self, names: Sequence[str]) -> list[User]:
        """Revokes the JWTs of the users but the newest of each. Returns the users that had older
        ones."""
        with self._locked() as content:
            users = [_named(content.users, name, self.folder) for name in names]
            renewed = [user for user in users if user.issued]
            if renewed:
                ends = [revocation(user, at=user.issued - 1) for user in renewed]
                revoked = _with(content.revoked, ends)
                self._save(msgspec.structs.replace(content, revoked=revoked), config_first=True)
        return renewed

    def remove(self, name: str) -> User:
        """Removes the user and returns it."""
        with self._locked() as content:
            gone = _named(content.users, name, self.folder)
            left = tuple(user for user in content.users if user is not gone)
            revoked = content.revoked
            if content.issuer is not None:
                revoked = _with(revoked, [revocation(login) for login in logins([gone])])
            self._save(
                msgspec.structs.replace(content, users=left, revoked=revoked), config_first=True
            )
        return gone

    def remove_expired(self, now: datetime) -> list[User]:
        """Removes the expired users and further keys from the folder, and returns the removed
        users."""
        if not expired_users(logins(self.users), now):
            return []
        with self._locked() as content:
            gone = expired_users(content.users, now)
            left = without_expired(content.users, now)
            self._save(msgspec.structs.replace(content, users=left), config_first=True)
        return gone

    def rewrite(self) -> None:
        """Writes ``auth.conf`` anew: this version may give roles other permissions than the version
        that wrote the file."""
        with self._locked() as content:
            self._save(content)

    @property
    def run_as_file(self) -> Path:
        """The file with the rules of the runner of `admit up`."""
        return self.folder / RUN_AS

    def run_as(self) -> str:
        """The text of the file with the rules of the runner; "": there is no file."""
        return read_own(self.run_as_file).decode() if self.run_as_file.exists() else ""

    def change_run_as(self, change: Callable[[str], str]) -> None:
        """Writes the rules of the runner anew if ``change`` returns another text for them."""
        with self._locked():
            before = self.run_as()
            after = change(before)
            if after != before:
                self._write(RUN_AS, after)

    # Files. -----------------------------------------------------------------------------

    @contextmanager
    def _locked(self) -> Iterator[_Content]:
        self._check_folder()
        descriptor = self._open_lock(LOCK)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            content = self._read()
            yield content
        finally:
            os.close(descriptor)

    def _open_lock(self, name: str) -> int:
        try:
            return open_new(self.folder / name, os.O_RDWR)
        except OSError as error:
            raise SetupError(f"cannot write to {self.folder}: {error.strerror}") from None

    def _read(self) -> _Content:
        self._check_folder()
        path = self.folder / USERS
        data = read_own(path)
        try:
            content = msgspec.json.decode(data, type=_Content)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise SetupError(f"{path} is damaged ({error}): restore it from a backup") from None
        if content.version not in VERSIONS:
            raise SetupError(
                f"{path} has version {content.version}, and this `admit` reads version "
                f"{VERSIONS[-1]}: use a newer `admit`"
            )
        wrong = [
            f"user {user.name}: {problem}"
            for user in logins(content.users)
            for problem in problems(user, is_stored=True)
        ]
        names = [user.name for user in content.users]
        wrong += [f"two users {name}" for name in dict.fromkeys(names) if names.count(name) > 1]
        if set(content.issuer or ()) != (set(KEYS) if content.version == VERSIONS[1] else set()):
            wrong.append("the keys of its accounts do not fit its version")
        if not is_public_key(content.system):
            wrong.append("the system's key is not a public key")
        if wrong:
            raise SetupError(f"{path} is damaged ({wrong[0]}): restore it from a backup")
        return content

    def _save(self, content: _Content, *, config_first: bool = False) -> None:
        """Writes both files. ``config_first``: for removals, so that a crash between the two writes
        leaves the user without access, and a second removal completes the first."""
        if content.issuer is not None:
            content = msgspec.structs.replace(content, issued=later_than(content.issued))
        text = msgspec.json.format(msgspec.json.encode(content), indent=2).decode()
        if content.issuer is None:
            config = server_config(content.users, content.system)
        else:
            folder = str(self.folder.absolute() / RESOLVER)
            config = self._issuer(content).config(content.revoked, folder, content.issued)
        files = [(USERS, f"{text}\n"), (CONFIG, config)]
        for name, written in reversed(files) if config_first else files:
            self._write(name, written)

    def _write(self, name: str, text: str) -> None:
        write_secret_file(self.folder / name, text)

    def _check_folder(self) -> None:
        try:
            status = self.folder.stat()
        except FileNotFoundError:
            raise SetupError(
                f"{self.folder} does not exist: make it with "
                f"`admit auth init {shlex.quote(str(self.folder))}`, or name another with --dir"
            ) from None
        except OSError as error:
            raise SetupError(f"cannot read {self.folder}: {error.strerror}") from None
        if not stat.S_ISDIR(status.st_mode):
            raise SetupError(f"{self.folder} is not a folder: name another with --dir")
        if not (self.folder / USERS).exists():
            raise SetupError(
                f"{self.folder} has no {USERS}: make a new folder with `admit auth init DIR`, or "
                "name another with --dir"
            )
        check_own(self.folder, status, "700")


def _with(revoked: Sequence[Revoked], more: Sequence[Revoked]) -> tuple[Revoked, ...]:
    """The revocations that are still needed, one for each key."""
    keys = {revocation.key for revocation in more}
    return (
        *(revocation for revocation in still_needed(revoked) if revocation.key not in keys),
        *more,
    )


def _named(users: Sequence[User], name: str, folder: Path) -> User:
    for user in users:
        if user.name == name:
            return user
    raise SetupError(f"there is no user {name} in {folder}: `admit auth list` shows the users")
