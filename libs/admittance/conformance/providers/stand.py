"""The provisioning check's part, played for a provider under trial."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final, NamedTuple

import msgspec

from admittance.conformance import stand
from admittance.conformance.faults import Looked
from admittance.conformance.providers.form import Asked, History, Told, look, subject_for
from admittance.conformance.stand import Part, encoded, named_in
from admittance.events.codec import encode
from admittance.events.names import token
from admittance.events.requests import ProviderQuery
from admittance.events.subjects import ALIVE_PROVISIONING
from admittance.events.system import ProviderAlive
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.durables import provider_durables
from admittance.runtime.errors import Unavailable

CYCLE: Final = 7
DEADLINE: Final = timedelta(minutes=30)
QUERY_SECONDS: Final = 2.0
OWN: Final = ("admit.provisioning.requested.", "admit.provisioning.cancelled.")

Said = stand.Said[Asked, Told]
PART: Final = Part(
    "provider-test", provider_durables, "admit.provisioning.>", ALIVE_PROVISIONING, ProviderAlive
)


class Shape(NamedTuple):
    """What is asked for: ``pods``, each of which needs ``requests`` (quantities by resource) on a
    node with the labels of ``node_selector``; with these ``parameters``."""

    pods: int = 1
    requests: Mapping[str, str] = {"cpu": "1"}
    node_selector: Mapping[str, str] = {}
    parameters: Mapping[str, str] = {}


class Stand(stand.Stand[Asked, Told]):
    """Asks one provider, and notes all that it says."""

    def __init__(self, bus: Bus, provisioning_class: str, shape: Shape) -> None:
        super().__init__(bus, PART, provisioning_class)
        self.shape = shape
        self._asked: dict[str, Asked] = {}
        self._payloads: dict[Asked, dict[str, Any]] = {}
        self._histories: dict[Asked, History] = {}
        self._newest: dict[str, Asked] = {}
        self.cancelled: set[Asked] = set()

    async def take_back(self) -> None:
        """Cancels everything that was not cancelled before."""
        left = [one for one in self._asked.values() if one not in self.cancelled]
        await self.cancel(*left, reason="Finished")

    # Asking. ------------------------------------------------------------------------------

    async def ask(
        self,
        *names: str,
        attempt: int = 1,
        parameters: Mapping[str, str] | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> list[Asked]:
        """Asks for workloads of those names; ``parameters`` in place of the usual ones, ``more``
        are further fields of the request."""
        asked = [self._note(name, attempt) for name in names]
        for one in asked:
            given = self.shape.parameters if parameters is None else parameters
            self._payloads[one] = {**self._request(one, given), **(more or {})}
        await self.ask_again(*asked)
        return asked

    async def ask_again(self, *asked: Asked) -> None:
        """Says those requests once more, as they were."""
        await self._publish("requested", [(one, self._payloads[one]) for one in asked])

    async def cancel(self, *asked: Asked, reason: str) -> None:
        """Takes requests back."""
        self.cancelled.update(asked)
        await self._publish(
            "cancelled", [(one, {**self._common(one), "reason": reason}) for one in asked]
        )

    async def cancel_unknown(self, name: str) -> Asked:
        """Cancels a request that was never made; `ask_again` makes it afterwards."""
        asked = self._note(name, 1)
        self._payloads[asked] = self._request(asked, self.shape.parameters)
        await self.cancel(asked, reason="Preempted")
        return asked

    async def babble(self, name: str, messages: Iterable[bytes]) -> None:
        """Says bytes where requests are said."""
        subject = subject_for(self._meaning(name, 1), "requested")
        await self.say((subject, data) for data in messages)

    async def query(self, request_id: str) -> bytes | None:
        """The answer to a query about a request; None without a responder."""
        subject = f"admit.api.provider.{token(self.program)}"
        try:
            return await self._bus.request(
                subject, encode(ProviderQuery(id=request_id)), QUERY_SECONDS
            )
        except Unavailable:
            return None

    def _meaning(self, name: str, attempt: int) -> Asked:
        uid = f"uid-{self.namespace}-{name}"
        return Asked(
            self.program, self.namespace, name, uid, "provider-test", CYCLE + attempt - 1, attempt
        )

    def _note(self, name: str, attempt: int) -> Asked:
        asked = self._meaning(name, attempt)
        self._asked[asked.id] = asked
        self._newest[name] = asked
        self._histories.setdefault(asked, History(asked))
        return asked

    def _common(self, asked: Asked) -> dict[str, Any]:
        return {
            "namespace": asked.namespace,
            "name": asked.name,
            "uid": asked.uid,
            "time": clock.now(),
            "id": asked.id,
            "provisioningClass": asked.provisioning_class,
            "check": asked.check,
            "cycle": asked.cycle,
            "attempt": asked.attempt,
        }

    def _request(self, asked: Asked, parameters: Mapping[str, str]) -> dict[str, Any]:
        container = {
            "name": "c",
            "image": "i",
            "resources": {"requests": dict(self.shape.requests)},
        }
        spec = {"containers": [container], "nodeSelector": dict(self.shape.node_selector)}
        pods = {
            "name": "main",
            "names": ["main"],
            "count": self.shape.pods,
            "template": {"spec": spec},
        }
        return {
            **self._common(asked),
            "podSets": [pods],
            "parameters": dict(parameters),
            "deadline": clock.now() + DEADLINE,
        }

    async def _publish(self, word: str, said: list[tuple[Asked, dict[str, Any]]]) -> None:
        await self.say((subject_for(one, word), encoded(payload)) for one, payload in said)

    # Listening. ---------------------------------------------------------------------------

    def words(self, *asked: Asked) -> list[str]:
        """The words of what was said about those requests, in order."""
        return [one.told.word for one in self.about(*asked) if one.told is not None]

    def is_ours(self, subject: str, data: bytes) -> bool:
        """It is about a workload of ours, and not what we said ourselves."""
        return not subject.startswith(OWN) and super().is_ours(subject, data)

    def _look(self, subject: str, data: bytes, asked: Asked | None) -> Looked[Told]:
        told, faults = look(subject, data, asked)
        if told is not None and asked is not None and asked not in self.cancelled:
            faults += self._histories[asked].hear(told, clock.now())
        return Looked(told, faults)

    def _meant(self, subject: str, data: bytes) -> Asked | None:
        """The request that a message is about, as well as can be told: by its id, else by the
        workload that the subject names, else by the one that it says itself."""
        said: Any = {}
        with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            said = msgspec.json.decode(data)
        if not isinstance(said, dict):
            said = {}
        by_id = self._asked.get(str(said.get("id")))
        if by_id is not None and said.get("name") in (None, by_id.name):
            return by_id
        return self._newest.get(named_in(subject)) or self._newest.get(str(said.get("name")))
