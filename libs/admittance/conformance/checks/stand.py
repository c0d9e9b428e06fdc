"""The workload-controller's part, played for a controller under trial."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec

from admittance.conformance import stand
from admittance.conformance.checks.form import Asked, look
from admittance.conformance.faults import Looked
from admittance.conformance.stand import Part, encoded, named_in
from admittance.events.facts import CheckReported
from admittance.events.names import token
from admittance.events.subjects import ALIVE_CHECK
from admittance.events.system import CheckAlive
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.durables import check_durables

FIRST_CYCLE: Final = 7
"""Not 1, to detect a controller that always reports cycle 1."""


Said = stand.Said[Asked, CheckReported]
PART: Final = Part("check-test", check_durables, "admit.check.reported.>", ALIVE_CHECK, CheckAlive)


class Stand(stand.Stand[Asked, CheckReported]):
    """Asks one controller, and notes all that it says."""

    def __init__(self, bus: Bus, controller: str, check: str, parameters: Any) -> None:
        super().__init__(bus, PART, controller)
        self.check = check
        self.parameters = parameters
        self._asked: dict[tuple[str, int], Asked] = {}
        self._newest: dict[str, Asked] = {}
        self._withdrawn: set[Asked] = set()

    async def take_back(self) -> None:
        """Withdraws everything that was not withdrawn before."""
        left = [one for one in self._asked.values() if one not in self._withdrawn]
        await self.withdraw(left, "Deleted")

    # Asking. ------------------------------------------------------------------------------

    async def ask(
        self, *names: str, cycle: int = FIRST_CYCLE, more: Mapping[str, Any] | None = None
    ) -> list[Asked]:
        """Asks about workloads of those names; ``more`` are further fields of the request."""
        asked = [
            Asked(self.program, self.namespace, name, f"uid-{name}", self.check, cycle)
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
        await self.say(
            (
                f"admit.check.{what}.{token(asked.controller)}."
                f"{token(asked.namespace)}.{token(asked.name)}",
                encoded(payload),
            )
            for asked, payload in said
        )

    # Listening. ---------------------------------------------------------------------------

    def states(self, *asked: Asked) -> list[str]:
        """The states that were said about those requests, in order."""
        return [one.told.state for one in self.about(*asked) if one.told is not None]

    def _look(self, subject: str, data: bytes, asked: Asked | None) -> Looked[CheckReported]:
        return look(subject, data, asked)

    def _meant(self, subject: str, data: bytes) -> Asked | None:
        """The request that a message is about, as well as can be told: by the subject, else by what
        it says; with a cycle that was never asked, the newest one."""
        name, cycle = named_in(subject), 0
        with suppress(msgspec.DecodeError, AttributeError, UnicodeDecodeError):
            said = msgspec.json.decode(data)
            name = name if name in self._newest else str(said.get("name"))
            cycle = said.get("cycle", 0)
        if isinstance(cycle, int) and (name, cycle) in self._asked:
            return self._asked[name, cycle]
        return self._newest.get(name)
