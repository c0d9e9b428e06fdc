"""Requests of a client: asks services, reads the bucket, publishes facts.

Every failure becomes an error of `admittance.client.errors` that says what to do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from math import inf
from typing import Final, TypeVar

import msgspec

from admittance.backoff import Backoff
from admittance.client import kinds
from admittance.client.arguments.spelling import IN_PYTHON, Spelling
from admittance.client.errors import (
    BadInput,
    ClientError,
    NoResponder,
    NotAllowed,
    Refused,
    RequestFailed,
    TimedOut,
    Unavailable,
)
from admittance.events.base import HEADER_MSG_ID, HEADER_SCHEMA, HEADER_TRACE, SCHEMA_VERSION, Fact
from admittance.events.codec import MAX_PAYLOAD, encode
from admittance.events.names import plain, token
from admittance.events.requests.base import Reply, Request
from admittance.events.requests.history import Settled, SettledReply
from admittance.events.requests.past import ABOUT, THEN
from admittance.events.requests.reading import Objects, ObjectsReply
from admittance.events.subjects import BUCKET, STREAM, USER_FACTS, subject_of, user_subject
from admittance.runtime import chance, clock
from admittance.runtime import errors as bus_errors
from admittance.runtime.bus import bucket
from admittance.runtime.bus.bucket import Entry
from admittance.runtime.bus.bus import NOT_PERMITTED, Bus, Outgoing
from admittance.runtime.bus.outside_reads import (
    FirstPart,
    InParts,
    ask_in_parts,
    list_objects,
    objects_subject,
    read_directly,
)
from admittance.runtime.bus.streams import NO_STREAM
from admittance.runtime.nats.jetstream import ask, request_errors
from admittance.runtime.telemetry import tracing

R = TypeVar("R", bound=Reply)
P = TypeVar("P", bound=InParts)

ASK_SECONDS: Final = 5.0
ASK_AGAIN_SECONDS: Final = 1.0
PART: Final = 200
"""How many facts are published before the next ones are."""
PART_SECONDS: Final = 20.0
SETTLE_SECONDS: Final = 30.0
AWAY_SECONDS: Final = 0.2
AWAY_SECONDS_MAX: Final = 1.0
"""Seconds between two attempts while there is no connection: the first time, and at most."""
READ_SECONDS: Final = 60.0
"""Most seconds for reading all bucket entries under a pattern: far more than a working server
needs.
"""
UNKNOWN: Final = "it is unknown whether it arrived; check before repeating"
AGAIN: Final = "try again, or look for the cause with `admit doctor`"

ANSWERED_BY: Final = {
    **dict.fromkeys(
        ("apply", "delete", "settled", "events", "objects", "runners", "usage", "files"),
        "workload-controller",
    ),
    "explain": "scheduler",
    "forecast": "forecast",
    "fit": "scheduler",
    "pending": "scheduler",
    "queues": "scheduler",
    "replay": "scheduler",
    "simulate": "scheduler",
    **{f"{THEN}{what}": "scheduler" for what in ABOUT},
    "logs": "runner",
    "timers": "retry-timer",
    "families": "variant-controller",
    "arrays": "array-controller",
    "budgets": "budget-controller",
    "machines": "placement",
    "providers": "provisioning-check",
}
"""For each ``what`` the service that answers ``admit.api.<what>``."""
QUESTIONS: Final = (
    "arrays", "budgets", "explain", "families", "files", "fit", "machines", "pending", "providers",
    "queues", "runners", "timers",
)  # fmt: skip
"""The requests that change nothing and are answered at once: they are sent again every
`ASK_AGAIN_SECONDS` until an answer comes, since for some seconds a cluster delivers requests to
services that are connected to a lost server.
"""


OWN_CODES: Final = 1000
"""Error codes of refused requests: smaller codes come from the workload-controller, with a sentence
for the user; greater codes come from JetStream.
"""


class Link:
    """The connection of a client or command to the bus.

    ``shown_url``: the servers, without secrets. ``namespace``: the namespace of requests that name
    none. ``has_login``: whether the connection logs in. ``trace``: the W3C traceparent of the
    program, to which the traces of its workloads belong; "": none. ``spelled``: how the program
    names the arguments of requests.
    """

    def __init__(
        self,
        bus: Bus,
        *,
        shown_url: str = "",
        namespace: str = "default",
        has_login: bool = False,
        trace: str = "",
        spelled: Spelling = IN_PYTHON,
    ) -> None:
        self.bus = bus
        self.shown_url = shown_url
        self.namespace = namespace
        self.has_login = has_login
        self.trace = trace
        self.spelled = spelled

    @property
    def user(self) -> str:
        """The user in whose name the program acts; "": the server has no users."""
        return self.bus.nc.user

    async def ask(
        self,
        what: str,
        request: Request,
        reply: type[R],
        *,
        namespace: str | None = None,
        timeout: float = ASK_SECONDS,
    ) -> R:
        """The answer to ``admit.api.<what>[.<ns>]``, even if the answer has ``error`` set.

        Raises NoResponder if no service listens, TimedOut if no answer arrives in time.
        """
        subject = f"admit.api.{what}"
        if what in ("apply", "delete") and self.user:
            subject = f"{USER_FACTS}{token(self.user)}.{what}"
        if namespace is not None:
            subject += f".{token(namespace)}"
        return await self.ask_subject(subject, request, reply, timeout=timeout)

    async def ask_subject(
        self, subject: str, request: Request, reply: type[R], *, timeout: float = ASK_SECONDS
    ) -> R:
        """Sends a request as `ask` does, but with the whole subject given, which is
        ``admit.api.<what>`` or ``admit.api.<what>.<…>``.
        """
        data = _data(request)
        with self._sentences(subject, timeout):
            every = ASK_AGAIN_SECONDS if subject.split(".")[2] in QUESTIONS else inf
            answer = await ask(self.bus.nc, subject, data, timeout, every=every)
            return msgspec.json.decode(answer, type=reply)

    async def ask_at_length(
        self,
        what: str,
        request: Request,
        reply: type[P],
        *,
        timeout: float,
        namespace: str | None = None,
    ) -> list[P]:
        """Sends a request as `ask` does, and returns all messages of an answer that comes in
        several messages.
        """
        subject = f"admit.api.{what}" + ("" if namespace is None else f".{token(namespace)}")
        data = _data(request)
        with self._sentences(subject, timeout), request_errors(subject):
            return await ask_in_parts(self.bus.nc, subject, data, reply, timeout=timeout)

    @contextmanager
    def _sentences(self, subject: str, timeout: float) -> Iterator[None]:
        """Turns the failure of a request into an error that says what to do."""
        service = ANSWERED_BY[subject.split(".")[3 if subject.startswith(USER_FACTS) else 2]]
        try:
            yield
        except bus_errors.AccessDenied as error:
            raise self._not_allowed(f"cannot ask {subject}", error) from None
        except bus_errors.NoResponders:
            raise NoResponder(
                f"no answer to {subject} at {self.shown_url}: the {service} is not running; "
                f"start `admit up`, or `admit serve {service}`"
            ) from None
        except bus_errors.NoAnswer:
            if self.bus.refused is not None:
                raise NotAllowed(str(self.bus.refused)) from None
            if not self.bus.is_up:
                raise Unavailable(
                    f"no answer to {subject} within {timeout:g} s: the connection to "
                    f"{self.shown_url} is lost"
                ) from None
            cause = self.bus.nc.denied or f"the {service} is busy or stopped; see `admit doctor`"
            raise TimedOut(f"no answer to {subject} within {timeout:g} s: {cause}") from None
        except bus_errors.BusUnavailable as error:
            raise Unavailable(f"the connection to {self.shown_url} failed: {error}") from None
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise RequestFailed(
                f"cannot decode the answer to {subject} ({error}); do the {service} and this "
                "command have the same version?"
            ) from None

    async def get(self, key: str) -> Entry | None:
        """The entry of the bucket under key; None if it does not exist or was deleted."""
        try:
            entry = await bucket.get_directly(self.bus, key)
        except (bus_errors.BusRefused, bus_errors.BusUnavailable) as error:
            raise await self._trouble(f"cannot read the entry {key} of the bucket", error) from None
        return None if entry is None or entry.value is None else entry

    async def read_all(self, pattern: str, *, bucket: str = BUCKET) -> list[Entry]:
        """All entries of the bucket under pattern (``<kind>.<ns>.*``, ``<kind>.*.<name>`` or
        ``<kind>.>``), by key."""
        try:
            async with asyncio.timeout(READ_SECONDS):
                if bucket != BUCKET:
                    return await read_directly(self.bus, pattern, bucket=bucket)
                return await self._listed(pattern)
        except (bus_errors.BusRefused, bus_errors.BusUnavailable) as error:
            raise await self._trouble(f"cannot read the entries {pattern}", error) from None
        except TimeoutError:
            raise TimedOut(
                f"cannot read the entries {pattern}: not all of them arrived within "
                f"{READ_SECONDS:g} s; {AGAIN}"
            ) from None

    async def _listed(self, pattern: str) -> list[Entry]:
        kind, *within = pattern.split(".")
        if within != [">"]:
            return await self._listed_in(
                kind, pattern, None if within[0] == "*" else plain(within[0])
            )
        if (namespaced := kinds.is_namespaced(kind)) is not None:
            return await self._listed_in(kind, pattern, None if namespaced else "")
        # Only the program of a foreign kind knows whether its objects have a namespace.
        without, with_one = await asyncio.gather(
            self._listed_in(kind, f"{kind}.*", ""), self._listed_in(kind, f"{kind}.*.*", None)
        )
        return without + with_one

    async def _listed_in(self, kind: str, pattern: str, namespace: str | None) -> list[Entry]:
        subject = objects_subject(namespace)
        last = pattern.rpartition(".")[2]
        name = "" if last in ("*", ">") else plain(last)

        async def ask(request: Objects, on_first: FirstPart) -> list[ObjectsReply]:
            data = _data(request)
            with self._sentences(subject, ASK_SECONDS), request_errors(subject):
                parts = await ask_in_parts(
                    *(self.bus.nc, subject, data, ObjectsReply),
                    timeout=ASK_SECONDS,
                    on_first=on_first,
                )
            if parts[0].error:
                raise RequestFailed(f"cannot read the entries {pattern}: {parts[0].error}")
            return parts

        if not self.has_login:
            # A server without logins lets every client read the whole bucket, which is quicker than
            # requests.
            try:
                return await read_directly(self.bus, pattern)
            except bus_errors.AccessDenied:
                return await list_objects(self.bus, ask, kind, name)
        try:
            return await list_objects(self.bus, ask, kind, name)
        except NoResponder:
            # Without an answer of the workload-controller, a user that may read the whole bucket
            # still gets the objects.
            try:
                return await read_directly(self.bus, pattern)
            except bus_errors.AccessDenied:
                pass
            raise

    def reading_again(
        self, read: Callable[[], Awaitable[list[Entry]]]
    ) -> Callable[[], Awaitable[list[Entry]]]:
        """Returns ``read`` in a form for a program that follows changes: the first call raises all
        errors of ``read``, later calls only NotAllowed, so that a server that does not answer for a
        while does not end the program.
        """
        begun = False

        async def again() -> list[Entry]:
            nonlocal begun
            try:
                entries = await read()
            except NotAllowed:
                raise
            except RequestFailed as error:
                if begun:
                    raise bus_errors.BusUnavailable(str(error)) from None
                raise
            begun = True
            return entries

        return again

    async def publish(
        self, fact: Fact, *, message_id: str = "", stored_before: set[int] | None = None
    ) -> int:
        """Publishes a fact to the log and returns its sequence. ``message_id``: the log has one
        fact with this id, however often it is published; "": an id that is new. ``stored_before``
        gets the place 0 if the log had the fact before. Raises RequestFailed if the log refuses the
        fact.
        """
        [outcome] = await self.publish_all(
            [fact], message_id=message_id, stored_before=stored_before
        )
        if isinstance(outcome, ClientError):
            raise outcome
        return outcome

    async def publish_all(
        self,
        several: Sequence[Fact],
        *,
        message_id: str = "",
        stored_before: set[int] | None = None,
    ) -> list[int | ClientError]:
        """Publishes facts to the log in order; returns for each fact its sequence or the error.
        ``message_id``, ``stored_before``: of a single fact, as for `publish`.

        Raises RequestFailed if the log does not answer.
        """
        # A caller that records traces names its span in TRACEPARENT; the workload's trace then
        # belongs to that span.
        caller = tracing.extract({HEADER_TRACE: self.trace})
        trace = {HEADER_TRACE: caller} if caller else {}
        messages = [
            Outgoing(
                user_subject(self.user, fact, self.bus.nc.role) if self.user else subject_of(fact),
                encode(fact),
                {
                    HEADER_MSG_ID: message_id or f"client-{chance.token_hex(12)}",
                    HEADER_SCHEMA: SCHEMA_VERSION,
                    **trace,
                },
            )
            for fact in several
        ]
        outcomes: list[int | bus_errors.BusRefused] = []
        for start in range(0, len(messages), PART):
            # Each part has its own time, so that many facts may take long while the log answers.
            part = messages[start : start + PART]
            try:
                limit = PART_SECONDS if len(part) > 1 else ASK_SECONDS
                outcomes += await self.bus.publish_all(
                    part, timeout=limit, stored_before=stored_before
                )
            except bus_errors.BusUnavailable as error:
                what = f"cannot publish {part[0].subject}"
                if start:
                    what += f" ({start} of {len(messages)} are stored)"
                raise await self._trouble(what, error, writes=True) from None
        answers: list[int | ClientError] = []
        for fact, message, outcome in zip(several, messages, outcomes, strict=True):
            if isinstance(outcome, bus_errors.TooBig):
                answers.append(
                    BadInput(
                        f"workload {fact.namespace}/{fact.name} has {len(message.data):,} bytes, "
                        f"more than the bus takes in one message ({MAX_PAYLOAD:,})"
                    )
                )
            elif isinstance(outcome, bus_errors.BusRefused):
                what = f"cannot publish {message.subject}"
                about = f"workload {fact.namespace}/{fact.name}: refused"
                answers.append(await self._trouble(what, outcome, refused=about))
            else:
                answers.append(outcome)
        return answers

    async def failure(self, what: str, error: bus_errors.AdmittanceError) -> RequestFailed:
        """The error for a refusal or a silence of the server. ``what``: what was tried."""
        return await self._trouble(what, error)

    async def _trouble(
        self,
        what: str,
        error: bus_errors.AdmittanceError,
        *,
        writes: bool = False,
        refused: str = "",
    ) -> RequestFailed:
        """The error for a stream that refuses or does not answer. ``writes``: the request was a
        write. ``refused``: the words before a refusal of the workload-controller, "": ``what``.
        """
        unset = Unavailable(
            f"{what}: Admittance was never set up at {self.shown_url}; start `admit up`, "
            "or `admit serve workload-controller`"
        )
        if isinstance(error, bus_errors.AccessDenied):
            return self._not_allowed(what, error)
        if isinstance(error, bus_errors.BusRefused):
            if error.code == NO_STREAM:
                return unset
            if error.code == NOT_PERMITTED:
                return self._not_allowed(what, error)
            if self.user and error.code < OWN_CODES:
                return Refused(f"{refused or what}: {error.description}")
            return Refused(f"{what}: {error}; look for the cause with `admit doctor`")
        text = str(error)
        try:
            await self.bus.api(f"STREAM.INFO.{STREAM}")
        except bus_errors.BusRefused as denied:
            # NO_STREAM means that the stream does not exist. For an existing stream a cluster
            # without a leader refuses the request with another code.
            if denied.code == NO_STREAM:
                return unset
        except bus_errors.BusUnavailable:
            pass  # This login may not read the state of the stream, or the disk is full.
        if writes and await self.bus.answers():
            text = (
                "the server answers, but it did not acknowledge the write; its disk may be "
                "full, and `admit doctor` tries a write to each stream"
            )
        return Unavailable(f"{what}: {text}; {UNKNOWN if writes else AGAIN}")

    def _not_allowed(self, what: str, error: Exception) -> NotAllowed:
        # `missing_right` is imported late: its imports take time, and most programs need none.
        from admittance.access.missing_right import refusal_of

        nc = self.bus.nc
        denial = nc.denied
        if not denial:
            return NotAllowed(f"{what}: {error}; use another login, or one with this right")
        # The error has the subject as the request spells it, the connection in lower case.
        spelled = str(error)
        if denial.lower() in spelled.lower():
            at = spelled.lower().index(denial.lower())
            denial = spelled[at : at + len(denial)]
        return NotAllowed(
            refusal_of(nc.role, nc.namespaces, denial, user=nc.user, has_jwt=nc.has_jwt)
        )

    async def settle(self, sequence: int, namespace: str) -> SettledReply:
        """The outcome of the fact at sequence, about an object of the namespace, once that fact and
        all facts before it are applied.

        Raises Unavailable or TimedOut if no service answers: then the fact stays on the log and is
        applied later.
        """
        deadline = clock.monotonic() + SETTLE_SECONDS
        backoff = Backoff(AWAY_SECONDS, AWAY_SECONDS_MAX)
        space: str | None = namespace
        while True:
            try:
                request = Settled(sequence=sequence)
                return await self.ask("settled", request, SettledReply, namespace=space)
            except NoResponder as error:
                if space is not None and not self.has_login:
                    # A workload-controller from before servers had logins answers only on the
                    # subject without a namespace.
                    space = None
                    continue
                raise Unavailable(
                    f"the fact {sequence} is stored on the log, but not applied: {error}"
                ) from None
            except NotAllowed:
                raise
            except RequestFailed as error:
                if clock.monotonic() >= deadline:
                    raise TimedOut(
                        f"the fact {sequence} is stored on the log, but not applied yet: {error}"
                    ) from None
                if not isinstance(error, TimedOut):
                    await asyncio.sleep(backoff.next())


def _data(request: Request) -> bytes:
    data = encode(request)
    if len(data) > MAX_PAYLOAD:
        raise BadInput(
            f"the request has {len(data):,} bytes, more than the bus takes ({MAX_PAYLOAD:,}); "
            "split the manifests over several calls"
        )
    return data
