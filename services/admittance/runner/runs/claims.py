"""Claims: which runner may run an admission. Each admission has one key in the bucket
``admittance_claims``.

- A held claim has a value that names the runner, and a TTL; the runner renews the claim after a
  third of the TTL.
- An expired claim has the server's marker: the runner is dead or cannot reach the bus. No runner
  starts the admission again; one runner marks the claim as over and publishes ``stopped``.
- A claim that is over has a deletion with the header ``Admit-Claim: over``: the admission has ended
  and never starts again. While the end of the job may not be published yet, the mark has the header
  ``Admit-End``; if the runner that wrote the mark does not publish the end in time, another runner
  takes the mark over and publishes it (`admittance.runner.runs.jobs_elsewhere`).
- A released claim has a plain deletion: the runner that claims the admission next runs the job from
  its beginning.

Every write to a claim's key expects the key's last revision, so the server refuses one of two
runners. After a write with an unknown outcome, the runner reads the key.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from admittance.events.reader import SetAside, Unreadable
from admittance.events.stored.formats import HeldClaim, read_held_claim
from admittance.events.subjects import CLAIMS
from admittance.runtime.bus.bucket import MARKER, Entry, delete_message, get_directly, put_message
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.messages import message_id
from admittance.runtime.errors import BusRefused, StaleRevision
from admittance.runtime.telemetry.logger import log_set_aside

VERDICT: Final = "Admit-Claim"
RUNNER: Final = "Admit-Runner"
END: Final = "Admit-End"
OVER_SECONDS: Final = 86_400.0
"""Seconds for which a claim marked as over is kept, so that a slow runner does not start the
job."""
PUBLISH_SECONDS: Final = 60.0
"""Most seconds after a mark in which the runner that wrote the mark publishes the end of the job;
less where claims expire sooner."""


class ClaimState(enum.Enum):
    FREE = "free"
    HELD = "held"
    EXPIRED = "expired"
    OVER = "over"


class Claim(NamedTuple):
    """The state of one claim's key. ``runner``: the runner that holds the claim or marked it as
    over. ``end``: from this the message ids of the job's end follow, whichever runner publishes it;
    "": the end is published, or the claim is not over. ``held``: what the runner that holds the
    claim says with it.
    """

    state: ClaimState
    runner: str
    revision: int
    end: str = ""
    held: HeldClaim = HeldClaim()


def read_claim(entry: Entry | None) -> Claim:
    """The claim in an entry of the bucket; ``entry`` None: the admission was never claimed."""
    if entry is None:
        return Claim(ClaimState.FREE, "", 0)
    if entry.value is None:
        if entry.headers.get(MARKER) == "MaxAge":
            return Claim(ClaimState.EXPIRED, "", entry.revision)
        if entry.headers.get(VERDICT) == "over":
            marked_by, end = entry.headers.get(RUNNER, ""), entry.headers.get(END, "")
            return Claim(ClaimState.OVER, marked_by, entry.revision, end)
        return Claim(ClaimState.FREE, "", entry.revision)
    try:
        held = read_held_claim(entry.value)
    except Unreadable as error:
        # Another program wrote the entry of the claim. So the runner loses the claim, stops the job
        # and cannot report the job's end, as if the runner were dead. Then the workload runs again,
        # under another admission.
        log_set_aside(SetAside(f"KV_{CLAIMS}", entry.key, entry.revision, str(error)))
        return Claim(ClaimState.EXPIRED, "", entry.revision)
    return Claim(ClaimState.HELD, held.runner, entry.revision, held=held)


def is_of_part(key: str) -> bool:
    """Whether the key is that of the claim of one part of a job."""
    return "-" in key.rpartition(".")[2]


class UnpublishedEnds:
    """The claims that are marked as over while the ends of their jobs may not be published. Pure.
    ``seconds``: how long the runner that wrote a mark has to publish the end."""

    def __init__(self, runner: str, ttl: float) -> None:
        self._runner = runner
        self.seconds = min(ttl, PUBLISH_SECONDS)
        self._marks: dict[str, tuple[Claim, float]] = {}
        """For each claim its mark, and when another runner takes the mark over."""

    def see(self, key: str, claim: Claim, now: float, *, at_start: bool) -> None:
        """Notes the state of a claim. ``at_start``: the claim is read at the start of the runner,
        so the runner itself publishes no end that an earlier process of it has marked."""
        if not claim.end:
            self._marks.pop(key, None)
        elif self._marks.get(key, (None,))[0] != claim:
            is_left_over = at_start and claim.runner == self._runner
            self._marks[key] = claim, now + (0.0 if is_left_over else self.seconds)

    def take_due(self, now: float) -> dict[str, Claim]:
        """The marks that are due now. Each is returned once."""
        due = {key: mark for key, (mark, at) in self._marks.items() if now >= at}
        for key in due:
            del self._marks[key]
        return due


class Claims:
    """The claims of one runner. ``held``: for each claim that the runner holds, by its key, the
    revision of the runner's last write. ``secret``: that of the runner's folder, from which the
    header ``Admit-End`` of a mark follows."""

    def __init__(self, bus: Bus, runner: str, ttl: float, secret: bytes = b"") -> None:
        self._bus = bus
        self._runner = runner
        self._secret = secret
        self._ttl = ttl
        self._value = self._value_of_parts = msgspec.json.encode(HeldClaim(runner))
        self.held: dict[str, int] = {}

    async def read(self, key: str, *, at_least: int = 0) -> Claim:
        """Reads the claim from any replica of the bucket. ``at_least``: a revision that the claim's
        key has had; an older answer comes from a replica that lags, so the claim is read again.
        Raises BusUnavailable."""
        return read_claim(await get_directly(self._bus, key, bucket=CLAIMS, at_least=at_least))

    async def take(self, keys: Sequence[str], *, again: bool = False) -> list[Claim]:
        """Claims all keys at once and returns their claims: a claim that this runner got is HELD
        with the runner's name. ``again``: this runner held the claims before, so it may take back
        an expired claim.

        Raises BusUnavailable if the bus does not answer: this runner may have got some of the
        claims even so; a second call finds out which ones.
        """
        answers = await self._put([(key, 0) for key in keys])
        claims = []
        for key, answer in zip(keys, answers, strict=True):
            if isinstance(answer, int):
                self.held[key] = answer
                claims.append(Claim(ClaimState.HELD, self._runner, answer))
            elif isinstance(answer, StaleRevision):
                claims.append(await self._take_over(key, again, after=0))
            else:
                raise answer
        return claims

    async def _take_over(self, key: str, again: bool, *, after: int) -> Claim:
        """Takes a claim with a key that exists already, if this runner may. ``after``: a revision
        of the key that is known to be outdated."""
        while True:
            claim = await self.read(key, at_least=after + 1)
            ours = claim.state is ClaimState.HELD and claim.runner == self._runner
            if not (
                ours
                or claim.state is ClaimState.FREE
                or (again and claim.state is ClaimState.EXPIRED)
            ):
                return claim
            # A claim that this runner holds already is written again, so that the claim's TTL
            # starts again.
            answer = (await self._put([(key, claim.revision)]))[0]
            if isinstance(answer, StaleRevision):
                # The revision is stale: another runner was faster, or the server stored an earlier
                # attempt of this write.
                after = max(after, claim.revision)
                continue
            if isinstance(answer, BusRefused):
                raise answer
            self.held[key] = answer
            return Claim(ClaimState.HELD, self._runner, answer)

    def set_drain(self, deadline: datetime | None) -> bool:
        """Sets when the machine must be empty; returns whether claims of parts must be renewed to
        say so."""
        held = HeldClaim(self._runner, deadline, ends_known=True)
        before, self._value_of_parts = self._value_of_parts, msgspec.json.encode(held)
        return before != self._value_of_parts and any(map(is_of_part, self.held))

    async def renew(self, *, parts_only: bool = False) -> list[str]:
        """Renews the TTL of every claim; returns the keys of claims that this runner does not hold
        any more. ``parts_only``: renews only claims of parts of jobs.

        Raises BusUnavailable when some claims could not be renewed.
        """
        asked = [of for of in self.held.items() if not parts_only or is_of_part(of[0])]
        lost = []
        answers = await self._put(asked)
        for (key, revision), answer in zip(asked, answers, strict=True):
            if isinstance(answer, int):
                if self.held.get(key) == revision:
                    self.held[key] = answer
            elif isinstance(answer, StaleRevision):
                if self.held.get(key) != revision:
                    # This runner has marked the claim as over or released it while the renewal was
                    # under way.
                    continue
                claim = await self.read(key, at_least=revision + 1)
                if claim.state is ClaimState.HELD and claim.runner == self._runner:
                    # An earlier write of this runner got no answer, so the age of the claim is
                    # unknown.
                    claim = await self._take_over(key, False, after=revision)
                if not (claim.state is ClaimState.HELD and claim.runner == self._runner):
                    self.held.pop(key, None)
                    lost.append(key)
            else:
                raise answer
        return lost

    async def mark_over(
        self, key: str, *, dead_only: bool = False, before_end: bool = False
    ) -> Claim | None:
        """Marks the claim as over and returns the mark; returns None if another runner holds the
        claim or marked it as over.

        Returns the mark also if this runner has marked the claim before, because the end of the job
        may not be published yet. ``dead_only``: whether to mark only an expired claim.
        ``before_end``: whether the end of the job is published after the mark.
        """
        end = message_id(self._secret, key) if before_end else ""
        # The server refuses the mark if the claim is not as this runner wrote it last.
        written = self.held.pop(key, 0)
        claim = Claim(ClaimState.HELD, self._runner, written)
        known = 0
        while True:
            if known or not written or dead_only:
                claim = await self.read(key, at_least=known)
            if claim.state is ClaimState.OVER:
                # This runner, also its previous process, may have marked the claim with a write
                # that got no answer.
                if claim.runner != self._runner:
                    return None
                if claim.end or not before_end:
                    return claim
            elif (dead_only and claim.state is not ClaimState.EXPIRED) or (
                claim.state is ClaimState.HELD and claim.runner != self._runner
            ):
                return None
            marked = await self._write_mark(key, claim.revision, end)
            if marked is not None:
                return marked
            known = claim.revision + 1

    async def take_over(self, key: str, mark: Claim) -> Claim | None:
        """Writes the mark of another runner, or of an earlier process of this one, as this runner's
        own; returns None if the mark has changed since it was read."""
        return await self._write_mark(key, mark.revision, mark.end)

    async def note_published(self, key: str, mark: Claim) -> None:
        """Notes in the mark that the end of the job is published, so that no runner takes the mark
        over."""
        if mark.end:
            await self._write_mark(key, mark.revision, "")

    async def _write_mark(self, key: str, expected: int, end: str) -> Claim | None:
        """Writes the mark of a claim that is over; returns None if the revision is stale."""
        headers = {VERDICT: "over", RUNNER: self._runner}
        if end:
            headers[END] = end
        message = delete_message(
            key, expected=expected, headers=headers, ttl_seconds=OVER_SECONDS, bucket=CLAIMS
        )
        try:
            revision = await self._bus.publish(message)
        except StaleRevision:
            return None
        return Claim(ClaimState.OVER, self._runner, revision, end)

    async def release(self, key: str) -> None:
        """Releases the claim if this runner holds the claim."""
        self.held.pop(key, None)
        claim = await self.read(key)
        if claim.state is ClaimState.HELD and claim.runner == self._runner:
            message = delete_message(
                key, expected=claim.revision, ttl_seconds=OVER_SECONDS, bucket=CLAIMS
            )
            try:
                await self._bus.publish(message)
            except StaleRevision:
                return  # the claim expired just before the release

    async def _put(self, keys: Sequence[tuple[str, int]]) -> list[int | BusRefused]:
        if not keys:
            return []
        return await self._bus.publish_all(
            [
                put_message(
                    key,
                    self._value_of_parts if is_of_part(key) else self._value,
                    expected=revision,
                    ttl_seconds=self._ttl,
                    bucket=CLAIMS,
                )
                for key, revision in keys
            ],
            timeout=min(10.0, self._ttl / 4),
            # A write may be repeated, because the claim is read again after a StaleRevision.
            repeat_puts=True,
        )
