"""Claims: who may run an admission. One key per admission in the bucket ``admittance_claims``.

=========  ===============================================================================
held       a value naming the runner, with a TTL; renewed at a third of it
expired    the server's marker: the runner is dead, or cannot reach the bus. Nobody starts
           the admission again; one runner buries it and says that the workload stopped
over       a deletion with the header ``Admit-Claim: over``: ended, never to be started
released   a plain deletion: whoever claims it next runs it from its beginning
=========  ===============================================================================

Every write expects the revision that it follows, so of two runners one is refused. A write whose
outcome is unknown is settled by reading the key.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from admittance.events.reading import Reader, SetAside, Unreadable
from admittance.events.subjects import CLAIMS
from admittance.runtime.bus.bucket import MARKER, Entry, delete_message, get, put_message
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import Refused, StaleRevision
from admittance.runtime.telemetry.set_aside import tell

VERDICT: Final = "Admit-Claim"
RUNNER: Final = "Admit-Runner"
OVER_SECONDS: Final = 86_400.0
"""How long a buried claim tells latecomers that there is nothing to start."""


class State(enum.Enum):
    FREE = "free"
    HELD = "held"
    EXPIRED = "expired"
    OVER = "over"


class Claim(NamedTuple):
    """What a key says. ``runner``: who holds or has buried it."""

    state: State
    runner: str
    revision: int


class _Value(msgspec.Struct, frozen=True):
    runner: str = ""


_value = Reader(_Value)


def read_holder(value: bytes) -> str:
    """The runner that a claim names. Raises Unreadable where it names none."""
    runner = _value(value).runner
    if not runner:
        raise Unreadable("it names no runner")
    return runner


def read_claim(entry: Entry | None) -> Claim:
    """The claim that an entry of the bucket stands for; None: never claimed."""
    if entry is None:
        return Claim(State.FREE, "", 0)
    if entry.value is None:
        if entry.headers.get(MARKER) == "MaxAge":
            return Claim(State.EXPIRED, "", entry.revision)
        if entry.headers.get(VERDICT) == "over":
            return Claim(State.OVER, entry.headers.get(RUNNER, ""), entry.revision)
        return Claim(State.FREE, "", entry.revision)
    try:
        runner = read_holder(entry.value)
    except Unreadable as error:
        # Written over by another hand. Its runner stops the job and cannot say so: as if that
        # runner were dead. The workload runs again, under another admission.
        tell(SetAside(f"KV_{CLAIMS}", entry.key, entry.revision, str(error)))
        return Claim(State.EXPIRED, "", entry.revision)
    return Claim(State.HELD, runner, entry.revision)


class Claims:
    """The claims of one runner. ``held``: key to the revision of our last write."""

    def __init__(self, bus: Bus, runner: str, ttl: float) -> None:
        self._bus = bus
        self._runner = runner
        self._ttl = ttl
        self._value = msgspec.json.encode(_Value(runner))
        self.held: dict[str, int] = {}

    async def look(self, key: str) -> Claim:
        return read_claim(await get(self._bus, key, bucket=CLAIMS))

    async def take(self, keys: Sequence[str], *, again: bool = False) -> list[Claim]:
        """Claims all keys at once. What is ours now answers HELD with our name; the others as
        they are. ``again``: we had them before, so an expired one may be taken back.

        Raises Unavailable: then some may be ours, and taking them again finds that out.
        """
        answers = await self._put([(key, 0) for key in keys])
        claims = []
        for key, answer in zip(keys, answers, strict=True):
            if isinstance(answer, int):
                self.held[key] = answer
                claims.append(Claim(State.HELD, self._runner, answer))
            elif isinstance(answer, StaleRevision):
                claims.append(await self._take_over(key, again))
            else:
                raise answer
        return claims

    async def _take_over(self, key: str, again: bool) -> Claim:
        claim = await self.look(key)
        ours = claim.state is State.HELD and claim.runner == self._runner
        if not (ours or claim.state is State.FREE or (again and claim.state is State.EXPIRED)):
            return claim
        # Also where it is ours already: its time begins anew.
        answer = (await self._put([(key, claim.revision)]))[0]
        if isinstance(answer, StaleRevision):
            return await self.look(key)
        if isinstance(answer, Refused):
            raise answer
        self.held[key] = answer
        return Claim(State.HELD, self._runner, answer)

    async def renew(self) -> list[str]:
        """Every claim's time begins anew; the keys that are not ours any more.

        Raises Unavailable when that could not be done for all.
        """
        asked = list(self.held.items())
        lost = []
        answers = await self._put(asked)
        for (key, revision), answer in zip(asked, answers, strict=True):
            if isinstance(answer, int):
                if self.held.get(key) == revision:
                    self.held[key] = answer
            elif isinstance(answer, StaleRevision):
                if self.held.get(key) != revision:
                    continue  # buried or released while we asked
                claim = await self.look(key)
                if claim.state is State.HELD and claim.runner == self._runner:
                    # An earlier write of ours whose answer was lost: not known how old it is.
                    claim = await self._take_over(key, False)
                if not (claim.state is State.HELD and claim.runner == self._runner):
                    self.held.pop(key, None)
                    lost.append(key)
            else:
                raise answer
        return lost

    async def bury(self, key: str, *, dead_only: bool = False) -> bool:
        """Marks the claim as over. False: it is another runner's to do so, or it did.

        True also when we had buried it before. ``dead_only``: only an expired claim.
        """
        self.held.pop(key, None)
        headers = {VERDICT: "over", RUNNER: self._runner}
        while True:
            claim = await self.look(key)
            if claim.state is State.OVER:
                return claim.runner == self._runner and not dead_only
            if claim.state is State.HELD and claim.runner != self._runner:
                return False
            if dead_only and claim.state is not State.EXPIRED:
                return False
            message = delete_message(
                key,
                expected=claim.revision,
                headers=headers,
                ttl_seconds=OVER_SECONDS,
                bucket=CLAIMS,
            )
            try:
                await self._bus.publish(message)
            except StaleRevision:
                continue
            return True

    async def release(self, key: str) -> None:
        """Gives the claim back, if it is ours."""
        self.held.pop(key, None)
        claim = await self.look(key)
        if claim.state is State.HELD and claim.runner == self._runner:
            message = delete_message(
                key, expected=claim.revision, ttl_seconds=OVER_SECONDS, bucket=CLAIMS
            )
            try:
                await self._bus.publish(message)
            except StaleRevision:
                return  # it expired this moment

    async def _put(self, keys: Sequence[tuple[str, int]]) -> list[int | Refused]:
        if not keys:
            return []
        return await self._bus.publish_all(
            [
                put_message(
                    key, self._value, expected=revision, ttl_seconds=self._ttl, bucket=CLAIMS
                )
                for key, revision in keys
            ],
            timeout=min(10.0, self._ttl / 4),
        )
