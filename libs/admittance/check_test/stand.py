"""The workload-controller's part, played for a controller under trial.

Everything happens in a namespace that no cluster has, with workloads that nobody submitted. The
real workload-controller, where one runs on the same bus, finds no such workload and passes over
their verdicts; it is disturbed by nothing but the messages themselves.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

import msgspec

from admittance.check_test.form import Asked, Fault, heartbeat_faults, look
from admittance.events.base import HEADER_MSG_ID, HEADER_SCHEMA, HEADER_TRACE, SCHEMA_VERSION
from admittance.events.facts import CheckReported
from admittance.events.names import BadToken, plain, token
from admittance.events.subjects import ALIVE_CHECK, STREAM, check_durable
from admittance.runtime import clock, tracing
from admittance.runtime.bus import Bus, Outgoing
from admittance.runtime.connection import parse_headers
from admittance.runtime.errors import AdmittanceError, Refused, SetupError
from admittance.runtime.peer_durables import check_durables

NO_CONSUMER: Final = 10014
NO_STREAM: Final = 10059
FIRST_CYCLE: Final = 7
"""Not 1: whoever always says the same cycle is to be found out."""


class Said(NamedTuple):
    """A message of the controller. ``at``: seconds of a clock that never goes back."""

    at: float
    asked: Asked | None
    verdict: CheckReported | None
    message_id: str
    data: bytes


class Stand:
    """Asks one controller, and notes all that it says. `start` it, and `leave` in the end."""

    def __init__(self, bus: Bus, controller: str, check: str, parameters: Any) -> None:
        self._bus = bus
        self.controller = controller
        self.check = check
        self.parameters = parameters
        self.namespace = f"check-test-{secrets.token_hex(4)}"
        self.said: list[Said] = []
        self.faults: list[Fault] = []
        self.heartbeats = 0
        self._asked: dict[tuple[str, int], Asked] = {}
        self._newest: dict[str, Asked] = {}
        self._withdrawn: set[Asked] = set()
        self._listening: list[Any] = []
        self._heard = asyncio.Event()
        self._made_durable = False
        self._delivered_before = 0

    async def start(self) -> None:
        """Listens, and makes the controller's durable where there is none. Raises SetupError."""
        listened = (
            ("admit.check.reported.>", self._on_said),
            (f"{ALIVE_CHECK}{token(self.controller)}", self._on_heartbeat),
        )
        for subject, handler in listened:
            self._listening.append(await self._bus.nc.listen(subject, handler))
        await self._bus.nc.flush()
        found = await self.deliveries()
        if found is None:
            await check_durables.make(self._bus, self.controller)
            self._made_durable = True
        else:
            self._delivered_before = found[2]

    async def leave(self) -> None:
        """Takes back what is still asked, and takes the durable away if it is ours."""
        with suppress(AdmittanceError):
            await self.withdraw_all("Deleted")
        for subscription in self._listening:
            await self._bus.nc.deafen(subscription)
        if self._made_durable:
            await check_durables.remove(self._bus, self.controller)

    # Asking. ------------------------------------------------------------------------------

    async def ask(
        self, *names: str, cycle: int = FIRST_CYCLE, more: Mapping[str, Any] | None = None
    ) -> list[Asked]:
        """Asks about workloads of those names; ``more`` are further fields of the request."""
        asked = [
            Asked(self.controller, self.namespace, name, f"uid-{name}", self.check, cycle)
            for name in names
        ]
        for one in asked:
            self._asked[one.name, one.cycle] = one
            self._newest[one.name] = one
        requests = [(one, {**self._request(one), **(more or {})}) for one in asked]
        await self._publish("requested", requests)
        return asked

    async def withdraw(self, asked: Iterable[Asked], reason: str) -> None:
        """Takes requests back."""
        taken = list(asked)
        if reason != "AdmissionCheck":
            self._withdrawn.update(taken)
        await self._publish(
            "withdrawn", [(one, {**self._common(one), "reason": reason}) for one in taken]
        )

    async def withdraw_all(self, reason: str) -> None:
        """Takes everything back that was not taken back before."""
        left = [one for one in self._asked.values() if one not in self._withdrawn]
        await self.withdraw(left, reason)

    def _common(self, asked: Asked) -> dict[str, Any]:
        return {
            "namespace": asked.namespace,
            "name": asked.name,
            "uid": asked.uid,
            "time": clock.now(),
            "controller": asked.controller,
            "check": asked.check,
            "cycle": asked.cycle,
        }

    def _request(self, asked: Asked) -> dict[str, Any]:
        template = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
        assignment = {
            "name": "main",
            "flavors": {"cpu": "default"},
            "resourceUsage": {"cpu": "1"},
            "count": 1,
        }
        return {
            **self._common(asked),
            "retryCount": 0,
            "revision": 1,
            "parameters": self.parameters,
            "admission": {"clusterQueue": "check-test", "podSetAssignments": [assignment]},
            "workload": {
                "metadata": {"labels": {"admittance/check-test": "true"}},
                "spec": {
                    "queueName": "check-test",
                    "podSets": [{"name": "main", "count": 1, "template": template}],
                },
            },
        }

    async def _publish(self, what: str, said: list[tuple[Asked, dict[str, Any]]]) -> None:
        messages = []
        for asked, payload in said:
            tail = f"{token(asked.namespace)}.{token(asked.name)}"
            headers = {
                HEADER_MSG_ID: f"check-test-{secrets.token_hex(12)}",
                HEADER_SCHEMA: SCHEMA_VERSION,
                HEADER_TRACE: tracing.start(),
            }
            subject = f"admit.check.{what}.{token(asked.controller)}.{tail}"
            messages.append(Outgoing(subject, msgspec.json.encode(payload), headers))
        for outcome in await self._bus.publish_all(messages):
            if isinstance(outcome, Refused):
                raise outcome

    # Listening. ---------------------------------------------------------------------------

    def about(self, *asked: Asked) -> list[Said]:
        """What was said about those requests, in order."""
        wanted = set(asked)
        return [one for one in self.said if one.asked in wanted and one.verdict is not None]

    def states(self, *asked: Asked) -> list[str]:
        """The states of it."""
        return [one.verdict.state for one in self.about(*asked) if one.verdict is not None]

    async def until(self, claim: Callable[[], bool], seconds: float) -> bool:
        """Waits until claim holds, seconds at most; whether it does."""
        deadline = clock.monotonic() + seconds
        while not claim():
            left = deadline - clock.monotonic()
            if left <= 0:
                return False
            self._heard.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._heard.wait(), min(left, 0.5))
        return True

    def _on_said(self, subject: bytes, _reply: bytes, data: bytes, headers: bytes) -> None:
        where = subject.decode("utf-8", "backslashreplace")
        if token(self.namespace) not in where and self.namespace.encode() not in data:
            return  # of somebody else's workloads
        asked = self._meant(where, data)
        looked = look(where, data, asked)
        self.faults += looked.faults
        message_id = parse_headers(headers).get(HEADER_MSG_ID, "") if headers else ""
        self.said.append(Said(clock.monotonic(), asked, looked.verdict, message_id, data))
        self._heard.set()

    def _on_heartbeat(self, subject: bytes, _reply: bytes, data: bytes, _headers: bytes) -> None:
        self.heartbeats += 1
        self.faults += heartbeat_faults(subject.decode(), data)
        self._heard.set()

    def _meant(self, subject: str, data: bytes) -> Asked | None:
        """The request that a message is about, as well as can be told: by the subject, else by what
        it says; with a cycle that was never asked, the newest one."""
        name, cycle = "", 0
        with suppress(BadToken):
            name = plain(subject.rpartition(".")[2])
        with suppress(msgspec.DecodeError, AttributeError, UnicodeDecodeError):
            said = msgspec.json.decode(data)
            name = name if name in self._newest else str(said.get("name"))
            cycle = said.get("cycle", 0)
        if isinstance(cycle, int) and (name, cycle) in self._asked:
            return self._asked[name, cycle]
        return self._newest.get(name)

    def delivered(self, deliveries: tuple[int, int, int]) -> bool:
        """Whether the durable has delivered anything since `start`."""
        return deliveries[2] > self._delivered_before

    async def deliveries(self) -> tuple[int, int, int] | None:
        """Of the durable: messages delivered and not acknowledged, still to be delivered, and
        delivered in all; None: there is none. Raises SetupError when there is no log."""
        name = check_durable(self.controller)
        try:
            info = await self._bus.api(f"CONSUMER.INFO.{STREAM}.{name}")
        except Refused as error:
            if error.code == NO_CONSUMER:
                return None
            if error.code == NO_STREAM:
                raise SetupError(
                    f"stream {STREAM} is missing: start `admit up`, or try it --embedded"
                ) from None
            raise
        return (
            int(info["num_ack_pending"]),
            int(info["num_pending"]),
            int(info["delivered"]["consumer_seq"]),
        )
