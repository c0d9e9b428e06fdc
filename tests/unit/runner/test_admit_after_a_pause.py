"""A runner that was paused while it claimed an admission claims it again before it starts the job:
the first claim may have expired, and another runner may have the admission now."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from admittance.events.facts import Admitted
from admittance.runner import decide
from admittance.runner.runs.admissions import AdmissionState
from admittance.runner.runs.claims import Claim, ClaimState
from admittance.runner.runs.fact_handlers import admit

TTL = 10.0
OURS = Claim(ClaimState.HELD, "runner-1", 5)
THEIRS = Claim(ClaimState.HELD, "runner-2", 9)
EXPIRED = Claim(ClaimState.EXPIRED, "", 8)
OVER = Claim(ClaimState.OVER, "runner-2", 9)
KEY = "team.train.10"


class PausedRunner:
    """The part of a `RunManager` that `admit` uses. Each call of ``take`` returns the next claim,
    and lasts as long as the pause that goes with it."""

    def __init__(self, *takes: tuple[Claim, float]) -> None:
        self._takes = list(takes)
        self._now = 100.0
        self.taken = 0
        self.asked_views: list[tuple[str, str, int]] = []
        self.events: list[decide.Event] = []
        self.background: list[str] = []
        self.ttl = TTL
        self.may_claim = lambda **_: True
        self.folder = SimpleNamespace(runner="runner-1")
        self.machine = SimpleNamespace(boot_seconds=lambda: self._now)
        self.claims = SimpleNamespace(take=self._take)
        self.admissions = SimpleNamespace(views=self._views)

    async def _take(self, keys: Sequence[str]) -> list[Claim]:
        assert list(keys) == [KEY]
        claim, pause = self._takes[self.taken]
        self.taken += 1
        self._now += pause
        return [claim]

    async def _views(self, of: Sequence[tuple[str, str, int]]) -> list[Any]:
        self.asked_views += of
        return [SimpleNamespace(state=AdmissionState.CURRENT) for _ in of]

    async def retry(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        return await ask()

    def has_run(self, _: Admitted) -> bool:
        return False

    def add_run(self, _fact: Admitted, _trace: str) -> str:
        return KEY

    def handle(self, _: str, event: decide.Event) -> None:
        self.events.append(event)

    def run_in_background(self, work: Any, name: str) -> None:
        work.close()
        self.background.append(name)

    async def wait_for_effects(self, _: Sequence[str]) -> None:
        pass


def admitted_by(*takes: tuple[Claim, float]) -> PausedRunner:
    runner: Any = PausedRunner(*takes)
    fact = Admitted(namespace="team", name="train", uid="u-1", revision=10)
    asyncio.run(admit(runner, [(fact, "")]))
    return runner  # type: ignore[no-any-return]


def test_a_claim_without_a_pause_is_taken_once() -> None:
    runner = admitted_by((OURS, TTL / 2))
    assert (runner.taken, runner.events) == (1, [decide.Claimed()])


def test_a_claim_is_taken_again_after_each_pause() -> None:
    runner = admitted_by((OURS, TTL), (OURS, TTL), (OURS, 0.1))
    assert (runner.taken, runner.events) == (3, [decide.Claimed()])


@pytest.mark.parametrize("now", [THEIRS, OVER])
def test_an_admission_that_another_runner_took_in_a_pause_does_not_start(now: Claim) -> None:
    runner = admitted_by((OURS, TTL), (now, 0.1))
    assert (runner.events, runner.asked_views, runner.background) == ([decide.NotOurs()], [], [])


def test_a_claim_that_expired_in_a_pause_is_reported_and_not_started() -> None:
    runner = admitted_by((OURS, TTL), (EXPIRED, 0.1))
    assert (runner.events, runner.background) == ([decide.NotOurs()], [KEY])


def test_a_claim_that_a_paused_runner_wins_only_later_starts() -> None:
    runner = admitted_by((THEIRS, TTL), (OURS, 0.1))
    assert (runner.events, runner.asked_views) == ([decide.Claimed()], [("team", "train", 10)])
