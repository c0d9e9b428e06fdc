"""``admit auth init|add|revoke``: changes the users, and tells the running servers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from admittance.access.roles import problems
from admittance.access.users import User
from admittance.cli.support import output
from admittance.cli.support.errors import AnswerIsNo, BadInput
from admittance.cli.support.options import Call, UrlFrom
from admittance.runtime import clock
from admittance.runtime.auth.reload import reload
from admittance.runtime.auth.store import CONFIG, AuthStore
from admittance.runtime.errors import AdmittanceError, NoServer

_ANY_KEY = "U" + "A" * 55
YEARS_MAX = 100


class NewUser(NamedTuple):
    """The arguments of `admit auth add`."""

    role: str
    name: str
    namespaces: Sequence[str]
    controller: str
    class_name: str
    expires_seconds: float | None
    file: Path


def init(call: Call, folder: Path) -> None:
    """Makes a folder of users, and prints how a nats-server includes the folder's ``auth.conf``."""
    AuthStore(folder).create(call.url)
    output.say(f"created {folder}")
    output.note(
        f"nats-server: put its configuration into {folder}, with the line: include ./{CONFIG}; "
        f"users: admit auth add ROLE NAME --dir {folder} -o FILE"
    )


async def add(call: Call, folder: Path, wanted: NewUser) -> None:
    """Adds a user, writes the user's credentials file, and reloads the running servers."""
    now = clock.now()
    user = User(
        name=wanted.name,
        role=wanted.role,
        key=_ANY_KEY,
        namespaces=tuple(dict.fromkeys(wanted.namespaces)),
        controller=wanted.controller,
        class_name=wanted.class_name,
        created=now,
        expires=_expiry(now, wanted.expires_seconds),
    )
    if wrong := problems(user):
        raise BadInput(*wrong)
    store = AuthStore(folder)
    store.add(user, wanted.file)
    output.say(f"added {user.name} ({user.role}): credentials in {wanted.file}")
    await _tell_servers(call, store)


async def revoke(call: Call, folder: Path, name: str) -> None:
    """Removes a user, and reloads the running servers, which close the user's connections."""
    store = AuthStore(folder)
    gone = store.remove(name)
    output.say(f"revoked {gone.name} ({gone.role})")
    await _tell_servers(call, store)


async def _tell_servers(call: Call, store: AuthStore) -> None:
    """Reloads the running servers. Raises AnswerIsNo if a server runs and did not accept the
    change."""
    if call.url_from in (UrlFrom.DEFAULT, UrlFrom.CONTEXT):
        call = replace(call, url=store.servers, url_from=UrlFrom.OPTION)
    try:
        await reload(call.url, store.system_seed_file, call.connection)
    except NoServer as error:
        output.note(
            f"takes effect when the server starts; {error}: if it runs elsewhere, reload it there"
        )
    except AdmittanceError as error:
        raise AnswerIsNo(
            f"{store.folder} is changed, but the server does not know it yet: {error}; then run "
            "`nats-server --signal reload`"
        ) from None


def _expiry(now: datetime, seconds: float | None) -> datetime | None:
    if seconds is None:
        return None
    if not 0 < seconds <= YEARS_MAX * 366 * 86_400:
        raise BadInput(f"--expires must be more than 0 s and at most {YEARS_MAX} years")
    return now + timedelta(seconds=seconds)
