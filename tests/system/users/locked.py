"""A locked server with all services, a runner, and people with roles."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import nats
import nats.errors
from nats.aio.client import Client

from admittance.access.jwt_claims import system_user_claims
from admittance.access.role import Account
from admittance.access.server_config import server_config
from admittance.access.users import User
from admittance.events.requests.manifests import Apply
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.streams import problems_of, stream_infos
from admittance.runtime.nats.connection_options import ConnectionOptions
from admittance.runtime.nats_server.credentials_files import credentials_text
from admittance.runtime.nats_server.jwt_issuer import (
    KEYS,
    JwtIssuer,
    new_issuer_key,
    new_key,
    sign_jwt,
)
from support.builders import an_object
from support.cluster import Cluster
from support.nats.logins import write_secret
from support.processes.fork_server import Answer, run_admit
from support.requests import eventually
from support.servers import LIMIT, ConfiguredServer

SERVICES = (
    *("workload-controller", "scheduler", "retry-timer", "variant-controller"),
    *("array-controller", "provisioning-check", "provider-pool"),
)
CONTROLLER = "example.com/budget"
ADA = User(name="ada", role="user", key="", namespaces=("team-a",))
BOB = User(name="bob", role="user", key="", namespaces=("team-b",))
USERS = [
    User(name=service, role=service, key="") for service in SERVICES if service != "provider-pool"
]
USERS += [
    User(name="provider-pool", role="built-in-provider", key="", class_name="pool"),
    User(name="first", role="runner", key=""),
    User(name="budget", role="check", key="", controller=CONTROLLER),
    User(name="other", role="check", key="", controller="example.com/other"),
    ADA,
    BOB,
    User(name="ola", role="owner", key="", namespaces=("team-a",)),
    User(name="eve", role="approver", key="", namespaces=("team-a",)),
    User(name="root", role="admin", key=""),
]


class Locked:
    """A locked server with services and a runner. ``core``: may do everything in CORE.

    ``users``: all users; ``services`` start in this order, then the ``runner``. ``jwt``: users
    have JWTs instead of NKeys."""

    def __init__(
        self,
        folder: Path,
        users: Sequence[User] = USERS,
        services: Sequence[str] = SERVICES,
        runner: str = "first",
        *,
        jwt: bool = False,
    ) -> None:
        self.folder = folder
        issuing = {name: new_issuer_key(name) for name in KEYS}
        public = {name: key.public for name, key in issuing.items()}
        issuer = JwtIssuer(public, lambda name: issuing[name].seed) if jwt else None
        self.users: list[User] = []
        self._services = services
        self._runner = runner
        self._seeds: dict[str, str] = {}
        for user in users:
            key = new_key()
            self.users.append(replace_key(user, key.public))
            self._seeds[user.name] = key.seed
            signed = issuer.user_jwt(self.users[-1]) if issuer else ""
            write_secret(folder / f"{user.name}.creds", credentials_text(user, key.seed, signed))
        core, system = new_key(), new_key()
        self._seeds["core"] = core.seed
        everything = system_user_claims()
        signed = sign_jwt(issuing[Account.CORE], core.public, "core", everything, issued=1)
        write_secret(folder / "core.creds", f"{signed}\n{core.seed}\n" if jwt else core.seed)
        config = server_config(self.users, system.public).replace(
            "    users: [\n", f"    users: [\n      {{ nkey: {core.public} }}\n", 1
        )
        if issuer is not None:
            config = issuer.config((), str(folder / "jwt"))
        self.server = ConfiguredServer(
            folder / "server", f'{config}\njetstream {{ store_dir: "STORE" }}\n'
        )
        self.cluster: Cluster
        self.core: Bus

    def creds(self, name: str) -> str:
        return str(self.folder / f"{name}.creds")

    def access(self, name: str) -> ConnectionOptions:
        return ConnectionOptions(creds=self.creds(name))

    def revoke(self, name: str) -> None:
        """Makes the server refuse the user from now on."""
        (key,) = (user.key for user in self.users if user.name == name)
        self.server.reload(key, new_key().public)

    async def start(self) -> None:
        await self.server.start()
        self.cluster = Cluster(self.server.url(), self.folder)
        self.core = await Bus.connect(self.server.url(), name="test", access=self.access("core"))
        for service in self._services:
            await self.cluster.start(service, ADMIT_NATS_CREDS=self.creds(service))
            # The others may not create streams, and would wait with a warning.
            await eventually(self._has_streams)
        name = self._runner
        await self.cluster.start("runner", ADMIT_NATS_CREDS=self.creds(name))

    async def stop(self) -> None:
        await self.cluster.stop()
        await self.core.close()
        self.server.stop()

    async def _has_streams(self) -> bool:
        infos = await stream_infos(self.core)
        return all(isinstance(info, dict) for info in infos.values()) and not problems_of(infos)

    async def client(self, name: str, refused: list[str] | None = None) -> Client:
        """A connection of the NATS client alone, as a program in another language has it."""

        async def on_error(error: Exception) -> None:
            if refused is not None:
                refused.append(str(error))

        return await nats.connect(
            self.server.url(),
            nkeys_seed_str=self._seeds[name],
            inbox_prefix=f"_INBOX.{name}",
            error_cb=on_error,
        )

    async def admit(self, user: str, *words: str) -> str:
        """The output of a command of the user; the command must succeed."""
        printed = await self.run(user, *words)
        assert printed.status == 0, printed.err
        return printed.out

    async def run(self, user: str, *words: str) -> Answer:
        """Runs a command of the user."""
        env = {"ADMIT_NATS_URL": self.server.url()}
        return await asyncio.to_thread(run_admit, "--creds", self.creds(user), *words, env=env)

    def submission(self, user: User, name: str, queue: str) -> bytes:
        """The fact that submits a job of the user's namespace, which prints a line."""
        container = {
            "name": "main",
            "command": ["echo", "through the border"],
            "resources": {"requests": {"cpu": "1"}},
        }
        template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
        pod_set = {"name": "main", "count": 1, "template": template}
        space = user.namespaces[0]
        fact = {
            "namespace": space,
            "name": name,
            "workload": an_object(
                "Workload", name, {"queueName": queue, "podSets": [pod_set]}, namespace=space
            ),
        }
        return json.dumps(fact).encode()

    async def submit(self, client: Client, user: User, name: str, queue: str) -> None:
        """Submits a job of the user's namespace."""
        subject = f"admit.user.{user.name}.submitted.{user.namespaces[0]}.{name}"
        answer = await client.request(subject, self.submission(user, name, queue), timeout=LIMIT)
        assert json.loads(answer.data)["seq"]


def replace_key(user: User, key: str) -> User:
    return msgspec.structs.replace(user, key=key)


async def applied(root: Client, objects: list[dict[str, Any]]) -> bool:
    """Whether the admin's manifests were applied: services may still be starting."""
    raws = tuple(msgspec.Raw(json.dumps(manifest).encode()) for manifest in objects)
    data = msgspec.json.encode(Apply(objects=raws))
    try:
        answer = await root.request("admit.user.root.apply", data, timeout=LIMIT / 4)
    except nats.errors.Error:
        return False
    reply = json.loads(answer.data)
    assert not reply.get("error"), reply
    return True
