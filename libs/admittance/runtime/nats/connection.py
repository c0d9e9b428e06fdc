"""A NATS connection that reconnects after every loss and is fast for many small messages.

nats-py spends 23 µs of CPU to publish a message and handle its acknowledgement, and about 45 µs for
a pulled message (an asyncio.Queue, a task switch and a Msg each). `Connection` needs 7 µs (all
measured): it calls the functions of some subscriptions directly from the parser, and writes many
messages at once. The log, the bucket and the answers of requests use these functions and this
writing; everything else uses nats-py. A request of nats-py would also wait until its timeout if the
connection is lost or the permission is missing; here it ends at once.

`reconnecting_client.py` has what this needs of the inside of nats-py.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from math import inf
from typing import Any, Final

import nats.errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription as Subscription

from admittance.runtime import clock
from admittance.runtime.nats.connection_options import NO_OPTIONS, ConnectionOptions
from admittance.runtime.nats.protocol import Handler, parse_headers, status, text_of
from admittance.runtime.nats.reconnecting_client import ReconnectingClient, fail
from admittance.runtime.nats.server_url import Login

_DENIED_ACTION: Final = {"publish": "publish to", "subscription": "subscribe to"}
_DENIED: Final = re.compile(r'permissions violation for (publish|subscription) to "([^"]*)"')
NO_RESPONDERS: Final = "503"
DENIALS_MAX: Final = 100
"""The most refused subjects of one connection that are remembered."""


class PermissionDenied(nats.errors.Error):
    """The server does not permit the operation to this user."""


class Connection(ReconnectingClient):
    """A client that passes messages of some subscriptions directly to a function, and ends requests
    at once that can get no answer.

    ``on_denied``, ``on_denied_subscription``: called with a subject, in lower case, to which this
    user may not publish or subscribe. ``denied``: the last such refusal as a sentence, with the
    subject in lower case; ``denials``: all of this connection, as ``publish SUBJECT`` or
    ``subscribe SUBJECT`` with the monotonic time of the last.
    """

    def __init__(
        self,
        logins: Mapping[str, Login] | None = None,
        access: ConnectionOptions = NO_OPTIONS,
    ) -> None:
        super().__init__(logins, access)
        self._answers: dict[str, asyncio.Future[Msg]] = {}
        """The waits for answers, by the last word of their inboxes."""
        self._inbox = ""
        """The first words of the inboxes of requests; "": the subscription is not made yet."""
        self._asked: dict[str, dict[asyncio.Future[Any], str]] = {}
        self.on_denied: list[Callable[[str], None]] = []
        self.on_denied_subscription: list[Callable[[str], None]] = []
        self.denied = ""
        self.denials: dict[str, float] = {}
        self.replicas_wanted = 0
        """The replicas of each stream that this program asked for; 0: it makes no streams."""

    # Subscriptions. ---------------------------------------------------------------------

    async def listen(self, subject: str, handler: Handler, *, queue: str = "") -> Subscription:
        """Subscribes, and calls ``handler`` for every message, in order, from the parser.
        ``queue``: only one member of the group gets each message; "": no group."""
        subscription = await self.subscribe(subject, queue=queue)
        # SUB is flushed after this line, so no message comes earlier.
        self.pass_directly(subscription, handler)
        return subscription

    async def unlisten(self, subscription: Subscription) -> None:
        """Ends a subscription of `listen`. After the connection is lost, `unlisten` does no
        harm.
        """
        self.pass_no_more(subscription)
        if not self.is_closed:
            with suppress(nats.errors.BadSubscriptionError):
                await subscription.unsubscribe()

    # Requests. --------------------------------------------------------------------------

    async def request(
        self,
        subject: str,
        payload: bytes = b"",
        timeout: float = 0.5,
        old_style: bool = False,
        headers: dict[str, Any] | None = None,
    ) -> Msg:
        """Returns the answer to a request. Raises nats.errors.NoRespondersError,
        nats.errors.TimeoutError, PermissionDenied, and other errors of nats-py.
        """
        if old_style:
            return await super().request(subject, payload, timeout, old_style, headers)
        return await self._ask(subject, payload, timeout, headers, inf)

    async def request_repeatedly(
        self, subject: str, payload: bytes, timeout: float, *, every: float
    ) -> Msg:
        """Returns the first answer to any copy of the request, which is sent again ``every`` so
        many seconds. Raises what `request` raises."""
        return await self._ask(subject, payload, timeout, None, every)

    async def _ask(
        self,
        subject: str,
        payload: bytes,
        timeout: float,
        headers: dict[str, Any] | None,
        every: float,
    ) -> Msg:
        if self.is_draining_pubs:
            raise nats.errors.ConnectionDrainingError
        if not self._inbox:
            self._inbox = f"{self.new_inbox()}."
            await self.listen(f"{self._inbox}*", self._on_answer)
        token, denied_as = self.new_inbox().rpartition(".")[2], subject.lower()
        inbox = self._inbox + token
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Msg] = loop.create_future()
        self._answers[token] = answer
        self._asked.setdefault(denied_as, {})[answer] = subject
        repeating: asyncio.TimerHandle | None = None

        def repeat() -> None:
            nonlocal repeating
            repeating = loop.call_later(every, repeat)
            self.spawn(self._publish_again(subject, payload, inbox))

        try:
            await self.publish(subject, payload, inbox, headers)
            if every < timeout:
                repeating = loop.call_later(every, repeat)
            async with asyncio.timeout(timeout):
                reply = await answer
        except TimeoutError:
            raise nats.errors.TimeoutError from None
        finally:
            if repeating is not None:
                repeating.cancel()
            self._answers.pop(token, None)
            waiting = self._asked.get(denied_as, {})
            waiting.pop(answer, None)
            if not waiting:
                self._asked.pop(denied_as, None)
        if reply.headers and reply.headers.get("Status") == NO_RESPONDERS:
            raise nats.errors.NoRespondersError
        return reply

    async def _publish_again(self, subject: str, payload: bytes, inbox: str) -> None:
        # Without a connection the request ends by itself, or at its timeout.
        with suppress(nats.errors.Error, OSError):
            await self.publish(subject, payload, inbox)

    def _on_answer(self, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        asking = self._answers.get(subject[subject.rfind(b".") + 1 :].decode())
        if asking is None or asking.done():
            return
        named = parse_headers(headers)
        if code := status(headers):
            named["Status"] = code
        asking.set_result(Msg(self, text_of(subject), text_of(reply), data, named or None))

    def fail_requests(self, error: Exception) -> None:
        """Ends every request that waits for its answer with the error."""
        for waiting in self._answers.values():
            fail(waiting, error)

    # Refused subjects. ------------------------------------------------------------------

    def on_connecting(self) -> None:
        """Forgets what the server refused on the last connection."""
        self.denials.clear()

    def on_refused(self, text: str) -> PermissionDenied:
        """Ends the requests that get no answer because of a denied permission. The server's text
        comes in lower case; the error of a request has the subject as the request spells it."""
        match = _DENIED.search(text)
        what, subject = match.groups() if match else ("", "")
        asked = self._asked.pop(subject, {}) if what == "publish" else {}
        self.denied = f"this login may not {_DENIED_ACTION[what]} {subject}" if what else text
        error = PermissionDenied(self.denial_of(*asked.values()))
        if what and len(self.denials) < DENIALS_MAX:
            verb = _DENIED_ACTION[what].partition(" ")[0]
            self.denials[f"{verb} {subject}"] = clock.monotonic()
        for waiting in asked:
            fail(waiting, error)
        if what == "subscription" and self._inbox and subject.startswith(self._inbox.lower()):
            self.fail_requests(error)
        told = self.on_denied if what == "publish" else self.on_denied_subscription
        for callback in list(told):
            callback(subject)
        return error

    def denial_of(self, *subjects: str) -> str:
        """The last refusal as a sentence. If the refusal is about one of ``subjects``, the sentence
        has that subject as it is spelled there."""
        for subject in subjects:
            if self.denied.endswith(f" {subject.lower()}"):
                return self.denied.removesuffix(subject.lower()) + subject
        return self.denied
