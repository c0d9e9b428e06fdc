"""``admit auth init --compose``: the users of compose.yaml, each with a credentials file.

Files under the folder, which belongs to the person that starts the containers:

- ``server/``: the folder of users; the container of nats-server reads ``auth.conf`` in it, and
  those of compose.ha.yaml ``cluster.conf`` with the password of their routes.
- ``containers/NAME.creds``: the credentials of each container, which compose gives to it as a
  secret. ``containers/admin.creds`` is for the container of commands.
- ``admin.creds``: the credentials of the admin again, for commands outside containers.

``server`` and ``containers`` belong to the Unix user of the containers, because docker shows files
to a container with the owner and the mode that they have outside.
"""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from typing import Final

from admittance.access.users import User
from admittance.cli.auth.auth import tell_servers
from admittance.cli.support import output
from admittance.cli.support.options import Call
from admittance.runtime import chance, clock
from admittance.runtime.errors import SetupError
from admittance.runtime.nats_server.auth_store import USERS, AuthStore
from admittance.runtime.nats_server.credentials_files import credentials_file
from admittance.runtime.nats_server.secret_files import write_secret_file
from admittance.services import RUNNER, SERVICES

CONTAINER_UID: Final = 65532
"""The Unix user of all containers of compose.yaml."""
ADMIN: Final = "admin"
CHECKS: Final = {
    "approval-check": "admittance.dev/approval",
    "backoff-check": "example.com/backoff",
    "budget-check": "example.com/budget",
    "freeze-check": "example.com/freeze",
}
"""The sample checks of compose.yaml, each with its controller name."""
SECOND_RUNNER: Final = "runner-2"
CLUSTER: Final = "cluster.conf"
CLUSTER_SERVERS: Final = ("nats", "nats-2", "nats-3")
"""The servers of compose.ha.yaml."""


def container_users(now: datetime) -> list[User]:
    """A user for each container that connects, with the name of the container. Raises SetupError
    for a provisioning class in the environment that is no name."""

    def user(name: str, role: str, controller: str = "", class_name: str = "") -> User:
        return User(
            name=name,
            role=role,
            key="",
            controller=controller,
            class_name=class_name,
            created=now,
        )

    users = [
        user(
            service.name,
            service.role,
            class_name=service.provisioning_class(os.environ) if service.provisioning_class else "",
        )
        for service in SERVICES.values()
    ]
    users.append(user(SECOND_RUNNER, RUNNER.role))
    users += [user(name, "check", controller) for name, controller in CHECKS.items()]
    return [*users, user(ADMIN, ADMIN)]


def cluster_config(password: str) -> str:
    """The routes between the servers of compose.ha.yaml, as text of their configuration."""
    routes = ", ".join(
        f'"nats-route://route:{password}@{server}:6222"' for server in CLUSTER_SERVERS
    )
    return (
        "# Written by `admit auth init --compose`. A program that knows the password "
        "is trusted like a server.\n"
        "cluster {\n"
        "  name: admittance\n"
        '  listen: "0.0.0.0:6222"\n'
        f'  authorization {{ user: route, password: "{password}", timeout: 5 }}\n'
        f"  routes: [{routes}]\n"
        "  # Clients are told no addresses of containers, which they may not reach.\n"
        "  no_advertise: true\n"
        "}\n"
    )


async def init(call: Call, folder: Path) -> None:
    """Makes the missing users and credentials files of compose.yaml, and reloads a running server.
    Existing users and files are kept. Raises SetupError.
    """
    if os.geteuid() not in (0, CONTAINER_UID):
        raise SetupError(
            f"only root can give files to the containers' Unix user {CONTAINER_UID}: run `docker "
            "compose run --rm auth`"
        )
    store = AuthStore(_container_folder(folder / "server", 0o700))
    # Other Unix users may pass through this folder, because compose looks whether files exist.
    containers = _container_folder(folder / "containers", 0o711)
    new = not (store.folder / USERS).exists()
    if new:
        store.create(call.url)
    routes = store.folder / CLUSTER
    if not routes.exists():
        write_secret_file(routes, cluster_config(chance.token_hex(16)))
    users = container_users(clock.now())
    changed = store.provide(users, containers)
    for service in SERVICES.values():
        if service.unix_user:
            _give_to_user(credentials_file(containers, service.name), service.unix_user)
    admin = credentials_file(folder, ADMIN)
    try:
        text = credentials_file(containers, ADMIN).read_text()
    except OSError as error:
        raise SetupError(f"cannot read {containers}: {error.strerror}") from None
    write_secret_file(admin, text)
    if changed and not new:
        await tell_servers(call, store)
    output.say(f"{len(users)} users in {store.folder}; credentials of the admin: {admin}")


def _give_to_user(path: Path, variable: str) -> None:
    """Gives the credentials file of a container to the Unix user that the variable names, if it is
    set: the container runs as that user.
    """
    chosen = os.environ.get(variable, "").partition(":")[0]
    if not chosen:
        return
    try:
        os.chown(path, int(chosen), -1)
    except ValueError:
        raise SetupError(f"{variable}={chosen!r} is not the number of a Unix user") from None
    except OSError as error:
        raise SetupError(f"cannot give {path} to user {chosen}: {error.strerror}") from None


def _container_folder(path: Path, mode: int) -> Path:
    """Makes a folder of the containers' Unix user, unless it exists."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(mode)
        if os.geteuid() == 0:
            os.chown(path, CONTAINER_UID, CONTAINER_UID)
    except OSError as error:
        raise SetupError(f"cannot make the folder {path}: {error.strerror}") from None
    return path
