"""Publishes the facts of runs, each under a message id that is the same after a crash."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import msgspec
import structlog

from admittance.backoff import Backoff
from admittance.events.base import HEADER_MSG_ID, HEADER_SCHEMA, SCHEMA_VERSION, Fact
from admittance.events.codec import encode
from admittance.events.subjects import subject_of
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.bus.messages import message_id
from admittance.runtime.clock import Clock, monotonic
from admittance.runtime.errors import (
    AccessDenied,
    AdmittanceError,
    BusRefused,
    BusUnavailable,
)
from admittance.runtime.tasks import until_returned
from admittance.runtime.telemetry import tracing
from admittance.runtime.telemetry.logger import LogThrottle

RETRY_SECONDS: Final = 0.5
"""Seconds between two attempts of a request that the bus did not accept."""

DENIED: Final = (
    "start the runner with a login that `admit auth add runner NAME` made for the name of this "
    "runner, and with --job-namespace for each namespace if the login is for some namespaces only"
)
"""What a person does about a login that may not do the work of the runner."""

T = TypeVar("T")
log = structlog.get_logger(service="runner")


async def retry(ask: Callable[[], Awaitable[T]]) -> T:
    """Repeats a request until the bus answers, and returns the answer."""
    throttle = LogThrottle()

    def failed(error: AdmittanceError, _: float) -> None:
        if throttle.due(monotonic()):
            hint = {"do": DENIED} if isinstance(error, AccessDenied) else {}
            log.warning("bus_request_repeated", error=str(error), **hint)

    backoff = Backoff(RETRY_SECONDS, RETRY_SECONDS)
    return await until_returned(ask, backoff, failed, on=(BusUnavailable, BusRefused))


class Publisher:
    """Publishes facts of runs. ``secret``: that of the runner's folder, from which message ids
    follow."""

    def __init__(self, bus: Bus, secret: bytes, clock: Clock) -> None:
        self._bus = bus
        self._secret = secret
        self._clock = clock

    async def publish(
        self, fact: Fact, key: str = "", *, start: str = "", trace: str = "", secret: bytes = b""
    ) -> None:
        """Publishes the fact, repeatedly until the log has it; the server drops duplicates by the
        message id. ``key``: the run, for the log of the runner."""
        what = subject_of(fact).split(".")[2]
        message = self.message(fact, what, start=start, trace=trace, secret=secret)
        await retry(lambda: self._bus.publish(message))
        log.debug(
            "fact_published", what=what, run=key, namespace=fact.namespace, workload=fact.name
        )

    def message(
        self, fact: Fact, what: str, *, start: str, trace: str = "", secret: bytes = b""
    ) -> Outgoing:
        """The fact as a message. ``what``: distinguishes the facts of a run. ``start``: the mark of
        the run. ``trace``: that of the fact that caused the run. ``secret``: that of another
        runner's folder, for a run of the other runner."""
        part = getattr(fact, "part", 0)
        headers = {
            HEADER_MSG_ID: message_id(
                secret or self._secret,
                fact.uid,
                getattr(fact, "revision", 0),
                start,
                f"{what}-{part}" if part else what,
            ),
            HEADER_SCHEMA: SCHEMA_VERSION,
        }
        tracing.inject(headers, trace)
        said = msgspec.structs.replace(fact, time=self._clock())
        return Outgoing(subject_of(fact), encode(said), headers)
