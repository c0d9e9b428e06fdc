"""The users of a locked `admit up`, where each service has credentials of its own role, and what
the runner of `admit up` and `admit serve` may start.

The users lie in ``auth`` in the data folder, which only the Unix user of `admit up` may read. The
credentials of the admin are those of the context that `admit up` writes for people.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final

import msgspec
import structlog

from admittance.access.users import User
from admittance.job_rules.options import VARIABLES, RuleTexts, rules_of
from admittance.job_rules.rules import EVERY, UNKNOWN, JobRules
from admittance.job_rules.runner_name import runner_name
from admittance.runtime import clock
from admittance.runtime.errors import AdmittanceError, SetupError
from admittance.runtime.nats.connection_options import NO_OPTIONS, ConnectionOptions
from admittance.runtime.nats.credentials import read_user_key
from admittance.runtime.nats_server.auth_store import RUN_AS, USERS, AuthStore
from admittance.runtime.nats_server.embedded_server import EmbeddedServer
from admittance.runtime.nats_server.server_reload import reload, remove_expired_users
from admittance.runtime.process.service import WithUp
from admittance.runtime.process.settings import text_list
from admittance.services import SERVICES

ADMIN: Final = "admin"
WATCH: Final = "server-watch"
LINK_KEY_SECONDS: Final = 12 * 3600
"""How long a session lasts that began with a link of `admit up` or `admit web`."""

log = structlog.get_logger()


class Lock:
    """The users of one data folder. Raises SetupError if a file cannot be read or written, and
    AccessDenied if the key that reloads the server is missing, damaged, or readable for others."""

    def __init__(self, data_dir: Path, *, has_page: bool = False) -> None:
        folder = (data_dir / "auth").absolute()
        _make_folder(folder)
        self._store = AuthStore(folder)
        read_user_key(self._store.system_seed_file)
        self.runner = runner_name(data_dir)
        now = clock.now()
        users = [User(name=name, role=role, key="", created=now) for name, role in self._roles()]
        self._store.provide(users)
        # Before the server reads its users. Earlier links of the folder led to an earlier page.
        self.page_credentials = new_link_key(self._store, ADMIN, alone=True) if has_page else ""
        """The credentials of the page's first link; "": there is no page."""
        self._known = self._store.known_by_servers

    def _roles(self) -> list[tuple[str, str]]:
        services = [service for service in SERVICES.values() if service.with_up is not WithUp.NEVER]
        roles = [(self._user_of(service.name), service.role) for service in services]
        return [*roles, (ADMIN, "admin"), (WATCH, "server-watch")]

    def _user_of(self, name: str) -> str:
        # The name of a runner's consumer includes the runner's name, so the name stays when `admit
        # up` begins to demand credentials.
        service = SERVICES.get(name)
        return self.runner if service is not None and service.runs_jobs else name

    def access(self, name: str) -> ConnectionOptions:
        """The login with this name: the name of a service, of the admin, or of the server watch."""
        return ConnectionOptions(creds=self._store.credentials_of(self._user_of(name)))

    async def apply(self, server: EmbeddedServer) -> None:
        """If an earlier `admit up` left the server running, makes the server read the current
        users.
        """
        self._store.note_servers(server.url)
        if not server.adopted:
            return
        try:
            await self._reload(server)
        except AdmittanceError as error:
            log.warning("server_restarted", reason=str(error))
            await server.stop()
            await server.start()

    async def remove_expired(self, server: EmbeddedServer) -> None:
        """Removes expired users, until cancelled."""

        async def reload(_: Sequence[User]) -> None:
            await self._reload(server)

        # The server has read the users at its start or in `apply`. While a server reads them, it
        # refuses new connections, so services would be interrupted.
        await remove_expired_users(self._store, reload, known=self._known)

    async def _reload(self, server: EmbeddedServer) -> None:
        await reload(server.url, self._store.system_seed_file, NO_OPTIONS)


def new_link_key(store: AuthStore, name: str, *, alone: bool = False) -> str:
    """Makes the key for a link that signs in to the page; returns its credentials. ``alone``:
    earlier links end."""
    now = clock.now()
    ends = now + timedelta(seconds=LINK_KEY_SECONDS)
    return store.add_key(name, now, ends, purpose="link", alone=alone)


def _make_folder(folder: Path) -> None:
    """Makes the folder of users if there is none. A crash leaves either the whole folder or no
    folder.
    """
    draft = folder.with_name(".auth.new")
    try:
        if (folder / USERS).exists():
            return
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True, mode=0o700)
        AuthStore(draft).create("")
        draft.rename(folder)
    except OSError as error:
        raise SetupError(
            f"cannot write to the data folder {folder.parent} ({error.strerror}): choose another "
            "with --data-dir"
        ) from None


OWN_JOBS: Final = (f"user:{ADMIN}", UNKNOWN)
"""The submitters of jobs that a locked `admit up` runs as its own Unix user unless a rule names
another: the admin, and the unknown submitters of jobs from before the lock.
"""


def rules_of_server(texts: RuleTexts, data_dir: Path, *, executor: str, insecure: bool) -> JobRules:
    """The rules of the runner beside an embedded server. The Unix user of `admit up` runs the jobs
    of the admin (with ``insecure`` all jobs), unless options or variables name a Unix user for
    these jobs or for all jobs. More rules are in a file of the folder of users, unless options or
    variables name another file, or with ``insecure``. Raises SetupError.
    """
    given = texts.run_as or text_list(os.environ, VARIABLES["run_as"])
    named = {rule.rpartition("=")[0] for rule in given}
    keys = (EVERY,) if insecure else OWN_JOBS
    own = [f"{key}={os.geteuid()}" for key in keys if not {key, EVERY} & named]
    rules = rules_of(texts._replace(run_as=(*given, *own)), os.environ, executor=executor)
    if rules.file or insecure:
        return rules
    return msgspec.structs.replace(rules, file=str((data_dir / "auth" / RUN_AS).absolute()))
