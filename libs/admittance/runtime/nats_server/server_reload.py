"""Makes running nats-servers read their users again, after a change of users or when users expire.

After a reload a nats-server closes the connections of removed users within milliseconds; other
connections stay. If nats-server cannot read its configuration, it keeps its present users.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

import msgspec

from admittance.access.users import User, next_expiry
from admittance.runtime import clock
from admittance.runtime.errors import AdmittanceError, BusUnavailable, SetupError
from admittance.runtime.nats.connection import Connection
from admittance.runtime.nats.connection_options import ConnectionOptions
from admittance.runtime.nats.jetstream import ApiError
from admittance.runtime.nats.opening import open_system_connection
from admittance.runtime.nats_server.auth_store import AuthStore
from admittance.runtime.tasks import raise_if_cancelled
from admittance.runtime.telemetry.logger import LogThrottle, logger

ANSWER_SECONDS: Final = 5.0
QUIET_SECONDS: Final = 0.3
"""After this many seconds without an answer, all servers of the cluster count as having answered.
"""


class _Server(msgspec.Struct, frozen=True):
    id: str
    name: str = ""


class _Statistics(msgspec.Struct, frozen=True):
    active_servers: int = 1


class _Answer(msgspec.Struct, frozen=True):
    server: _Server
    error: ApiError | None = None
    statsz: _Statistics = _Statistics()


_answer = msgspec.json.Decoder(_Answer)


async def apply_users(url: str, store: AuthStore, access: ConnectionOptions) -> int:
    """Makes all servers of the cluster at ``url`` take the users of the store; returns the number
    of servers. Raises as `reload` does."""
    if not store.has_jwts:
        return await reload(url, store.system_seed_file, access)
    login = _login(access, store.system_seed_file)
    connection = await open_system_connection(url, name="admit auth", access=login)
    try:
        async with store.sending():
            return await _push(connection, store.account_jwts())
    finally:
        await connection.close()


def _login(access: ConnectionOptions, creds: str) -> ConnectionOptions:
    return replace(
        access,
        creds=creds,
        creds_text=None,
        user=None,
        password=None,
        password_file=None,
        token=None,
        token_file=None,
    )


async def _push(connection: Connection, jwts: Mapping[str, str]) -> int:
    """Sends the JWTs of accounts to all nats-servers of a cluster; returns the number of
    servers.
    """
    pushed = await asyncio.gather(*(_push_one(connection, *item) for item in jwts.items()))
    return len(set().union(*pushed))


async def _push_one(connection: Connection, account: str, jwt: str) -> set[str]:
    """Sends the JWT of one account to all nats-servers of the cluster; returns the ids of the
    servers.
    """
    subscription = await connection.subscribe(inbox := connection.new_inbox())
    subject = f"$SYS.REQ.ACCOUNT.{account}.CLAIMS.UPDATE"
    await connection.publish(subject, jwt.encode(), reply=inbox)
    answered: set[str] = set()
    with suppress(TimeoutError, asyncio.TimeoutError):
        while True:
            limit = QUIET_SECONDS if answered else ANSWER_SECONDS
            message = await subscription.next_msg(timeout=limit)
            if not message.data:
                raise BusUnavailable(
                    "the server does not include this auth.conf: the server has no JWTs of "
                    "the operator that auth.conf names"
                )
            answer = _answer.decode(message.data)
            if answer.error is not None:
                raise SetupError(
                    f"the server {answer.server.name} refuses a JWT of its accounts "
                    f"({answer.error.description}) and keeps its earlier users"
                )
            answered.add(answer.server.id)
    if not answered:
        raise BusUnavailable("the server does not answer: restart it")
    return answered


async def reload(url: str, seed_file: str, access: ConnectionOptions) -> int:
    """Makes all servers of the cluster at ``url`` reload their configuration; returns the number of
    servers.

    ``seed_file``: the credentials of the user that may reload; ``access``: the TLS of the
    connection.
    Raises NoServer if no server runs, SetupError if a server refuses the configuration, and
    BusUnavailable if a server does not answer.
    """
    login = _login(access, seed_file)
    connection = await open_system_connection(url, name="admit auth", access=login)
    try:
        return await _reload_all(connection)
    finally:
        await connection.close()


async def _reload_all(connection: Connection) -> int:
    """Sends a reload to each server of the cluster when the server answers a ping; returns the
    number of servers."""
    subscription = await connection.subscribe(inbox := connection.new_inbox())
    await connection.publish("$SYS.REQ.SERVER.PING", b"", reply=inbox)
    reloaded: set[str] = set()
    known = 0
    with suppress(TimeoutError, asyncio.TimeoutError):
        while True:
            limit = QUIET_SECONDS if reloaded and len(reloaded) >= known else ANSWER_SECONDS
            message = await subscription.next_msg(timeout=limit)
            if not message.data:
                break  # No responder: the server has no such system account.
            answer = _answer.decode(message.data)
            known = max(known, answer.statsz.active_servers)
            if answer.server.id not in reloaded:
                await _reload_one(connection, answer.server)
                reloaded.add(answer.server.id)
    if not reloaded:
        raise BusUnavailable(
            "the server does not include this auth.conf: it lets the key in system.nk connect, but "
            "not reload"
        )
    if len(reloaded) < known:
        raise BusUnavailable(
            f"{len(reloaded)} of the {known} servers of the cluster answer: a server that does not "
            "answer keeps its earlier users until it restarts"
        )
    return len(reloaded)


async def _reload_one(connection: Connection, server: _Server) -> None:
    subject = f"$SYS.REQ.SERVER.{server.id}.RELOAD"
    try:
        message = await connection.request(subject, b"", timeout=ANSWER_SECONDS)
    except TimeoutError:
        raise BusUnavailable(f"the server {server.name} does not answer: restart it") from None
    error = _answer.decode(message.data).error
    if error is not None:
        raise SetupError(
            f"the server {server.name} refuses its configuration ({error.description}) and "
            "keeps its earlier users"
        )


LOOK_SECONDS: Final = 2.0
"""Most seconds between two readings of the store of users, because another process may add users.
"""

log = logger()


async def remove_expired_users(
    store: AuthStore,
    reload: Callable[[Sequence[User]], Awaitable[None]],
    *,
    known: Sequence[object] | None = None,
) -> None:
    """Removes each user from the store when the user expires, until cancelled. ``reload`` is called
    with the removed users and reloads the servers: at the start, when users expire, and when
    another process has changed the users; after a failure ``reload`` is called again. Errors
    of the store and of ``reload`` are logged, and the next reading of the store tries again.
    ``known``: what the servers have read of the store, as `AuthStore.known_by_servers`. None: not
    known, since a process that removed users may have ended before it reloaded the servers.
    """
    throttle = LogThrottle()
    unapplied: list[User] = []
    while True:
        pause = LOOK_SECONDS
        try:
            unapplied += store.remove_expired(clock.now())
            wanted = store.known_by_servers
            if unapplied or known != wanted:
                await reload(unapplied)
                known = wanted
                if unapplied:
                    log.info("users_expired", users=[user.name for user in unapplied])
                unapplied = []
            soonest = next_expiry(store.users, clock.now())
            if soonest is not None:
                pause = min(pause, (soonest - clock.now()).total_seconds())
        except AdmittanceError as error:
            if throttle.due(clock.monotonic()):
                log.warning("users_not_expired", error=str(error))
        # A wait for the answer of a nats-server may lose a cancellation of the task.
        raise_if_cancelled()
        await asyncio.sleep(max(0.01, pause))
