"""The sessions of signed-in people: each has a connection of its own to nats-server.

nats-server decides what a session may do. Credentials are in memory only, for the client that
connects again. A session ends by signing out, when it is idle, and when the server refuses its
login.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import Final, NamedTuple

import structlog

from admittance.client import Client
from admittance.client.errors import ClientError, Closed
from admittance.runtime import chance, clock
from admittance.runtime.nats.connection_options import NO_OPTIONS, ConnectionOptions
from admittance.web.kept.answers import SharedAnswers
from admittance.web.kept.facts import KeptFacts
from admittance.web.kept.starts import KeptStarts
from admittance.web.live import Follower
from admittance.web.rests import Rests
from admittance.web.views.accounts.log import Replayed

SESSIONS_MAX: Final = 500
IDLE_SECONDS: Final = 12 * 3600.0
"""After this time without any request a session ends."""
OPENING_MAX: Final = 4
"""How many sessions connect at the same time."""
SECRET_BYTES: Final = 24
REPLAYED_MAX: Final = 32
"""The most answers about decisions that a session keeps."""

log = structlog.get_logger()


class Target(NamedTuple):
    """The nats-server of the page. ``access``: TLS of the connections; their logins are those of
    sessions."""

    url: str
    access: ConnectionOptions = NO_OPTIONS


class Session:
    """A signed-in person. ``csrf``: the secret that each form of the session has. ``ended``: set
    when the session is over. ``answers``: those that its open pages share; ``facts``, ``starts``:
    of the workloads that it shows; ``replayed``: decisions that were decided again, by sequence."""

    def __init__(self, client: Client, rests: Rests) -> None:
        self.client = client
        self.login = client.login
        self.csrf = chance.token_hex(SECRET_BYTES)
        self.ended = asyncio.Event()
        self.follower = Follower(client, self.ended, rests)
        self.answers = SharedAnswers()
        self.facts = KeptFacts(client)
        self.starts = KeptStarts(client)
        self.used = clock.monotonic()
        self.replayed: dict[int, Replayed] = {}

    def keep(self, sequence: int, replayed: Replayed) -> None:
        """Keeps the answer about a decision, for the pages of the session."""
        self.replayed.pop(sequence, None)
        self.replayed[sequence] = replayed
        if len(self.replayed) > REPLAYED_MAX:
            del self.replayed[next(iter(self.replayed))]

    @property
    def is_idle(self) -> bool:
        """Whether no page of the session is open, and none has asked for a long time."""
        return not self.follower.listeners and clock.monotonic() > self.used + IDLE_SECONDS

    async def close(self) -> None:
        """Ends the streams and the connection."""
        self.ended.set()
        self.follower.stop()
        await self.starts.close()
        await self.client.close()


class NotSignedIn(Exception):
    """A session that was not opened. The text is for the person."""


class Sessions:
    """The sessions of this process, by the secret in their cookies. ``rests``: of their pages."""

    def __init__(self, target: Target) -> None:
        self.rests = Rests()
        self._target = target
        self._sessions: dict[str, Session] = {}
        self._people: dict[str, str] = {}
        """The secret of the session of each person signed in by a proxy."""
        self._joining: dict[str, asyncio.Lock] = {}
        self._watches: dict[str, asyncio.Task[None]] = {}
        self._opening = asyncio.Semaphore(OPENING_MAX)
        self._waiting = 0
        """How many sign-ins have begun and have no session yet."""

    def of(self, secret: str | None) -> Session | None:
        """The session of a cookie; None: there is none."""
        session = self._sessions.get(secret or "")
        if session is not None:
            session.used = clock.monotonic()
        return session

    async def open(self, credentials: str, *, by_code: bool = False) -> str:
        """Connects with credentials; returns the secret of the new session. ``by_code``: a server
        that demands no credentials is accepted, too.

        Raises NotSignedIn, and ClientError if the server refuses the credentials or does not
        answer.
        """
        await self.make_room()
        access = replace(self._target.access, creds_text=credentials or None)
        self._waiting += 1
        try:
            async with self._opening:
                client = await Client.connect(self._target.url, options=access, environ={})
        finally:
            self._waiting -= 1
        if not (client.login.demanded or by_code):
            await client.close()
            raise NotSignedIn(
                "This server has no users, so it checks no token: sign in with the link that "
                "`admit up` or `admit web` prints."
            )
        secret, session = chance.token_hex(SECRET_BYTES), Session(client, self.rests)
        self._sessions[secret] = session
        watch = asyncio.create_task(self._until_refused(secret, session), name="session")
        self._watches[secret] = watch
        return secret

    async def make_room(self) -> None:
        """Ends idle sessions. Raises NotSignedIn if no further one may be opened."""
        for secret in [secret for secret, other in self._sessions.items() if other.is_idle]:
            await self.end(secret)
        if len(self._sessions) + self._waiting >= SESSIONS_MAX:
            raise NotSignedIn("Too many people are signed in: try again later.")

    def of_person(self, name: str) -> Session | None:
        """The session of a person signed in by a proxy; None: there is none."""
        return self.of(self._people.get(name))

    async def open_person(self, name: str, credentials: str) -> Session:
        """The session of a person signed in by a proxy, opened once for all requests. Raises
        what `open` raises."""
        async with self._joining.setdefault(name, asyncio.Lock()):
            if (session := self.of_person(name)) is None:
                secret = await self.open(credentials)
                self._people[name] = secret
                session = self._sessions[secret]
        return session

    async def end(self, secret: str | None) -> None:
        """Ends the session of a cookie, if there is one."""
        session = self._sessions.pop(secret or "", None)
        if session is not None:
            self._watches.pop(secret or "").cancel()
            await session.close()

    async def close(self) -> None:
        """Ends all sessions."""
        for secret in list(self._sessions):
            await self.end(secret)

    async def _until_refused(self, secret: str, session: Session) -> None:
        with suppress(ClientError, Closed):
            reason = await session.client.login_ended()
            log.info("session_ended", user=session.login.user, reason=reason)
        if self._sessions.pop(secret, None) is not None:
            del self._watches[secret]
            await session.close()
