"""What a runner does at an eviction of a job that it does not run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from admittance.events.facts import Admitted, Evicted, Stopped
from admittance.events.placement import PlacementPart
from admittance.events.shapes import EvictedJob, PodSetToRun
from admittance.runner import decide
from admittance.runner.decide import Run
from admittance.runner.runs.admissions import AdmissionState, AdmissionView
from admittance.runner.runs.claims import Claim, ClaimState
from admittance.runner.runs.jobs_elsewhere import answer_left, evict
from admittance.runner.runs.left_evictions import LeftEvictions
from admittance.runtime import clock


def admitted(revision: int, *runners: str) -> Admitted:
    parts = tuple(
        PlacementPart(runner=each, id=each, pod_set="main", first=0, count=1) for each in runners
    )
    pods = PodSetToRun(name="main", count=1, template=msgspec.Raw(b"{}"), parts=parts)
    return Admitted(namespace="team", name="train", uid="u", revision=revision, pod_sets=(pods,))


def evicted(job: EvictedJob | None, revision: int = 8) -> Evicted:
    return Evicted(namespace="team", name="train", uid="u", revision=revision, job=job)


class Runner:
    """The part of a `RunManager` that `evict` uses. The stored workload is ``seen``; claims are
    free unless ``claim`` says more."""

    def __init__(
        self, seen: AdmissionView | None = None, claim: ClaimState = ClaimState.FREE
    ) -> None:
        self._seen = seen
        self._claim = Claim(claim, "", 1)
        self.runs: dict[str, Any] = {}
        self.reads: list[str] = []
        self.over: list[str] = []
        self.events: list[tuple[str, decide.Event]] = []
        self.published: list[tuple[int, int]] = []
        self.left_evictions = LeftEvictions("r-1")
        self.answering = asyncio.Semaphore(1)
        self.admissions = SimpleNamespace(view=self._view, last_admitted=self._last_admitted)
        self.other_folders = SimpleNamespace(find=self._find)
        self.claims = SimpleNamespace(read=self._read, mark_over=self._mark_over)
        self._background: list[Coroutine[Any, Any, None]] = []

    async def _view(self, *_: str, at_least: int) -> AdmissionView | None:
        self.reads.append("workload")
        return self._seen

    async def _last_admitted(self, *_: object) -> tuple[Admitted, str]:
        self.reads.append("log")
        return admitted(3, "r-1"), ""

    async def _read(self, _: str) -> Claim:
        return self._claim

    async def _find(self, _: str) -> None:
        return None

    async def _mark_over(self, key: str, *, dead_only: bool, before_end: bool) -> None:
        assert dead_only
        assert before_end
        self.over.append(f"lost {key}")

    async def end(self, key: str, fact: Stopped) -> None:
        self.over.append(key)
        await self.publish(fact)

    async def publish(self, fact: Stopped) -> None:
        self.published.append((fact.revision, fact.part))

    async def retry(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        return await ask()

    def handle(self, key: str, event: decide.Event) -> None:
        self.events.append((key, event))

    def run_in_background(self, work: Coroutine[Any, Any, None], _: str) -> None:
        self._background.append(work)

    async def settle(self) -> None:
        """Does what was to be done in the background."""
        while self._background:
            await self._background.pop(0)


def obey(runner: Runner, *facts: Evicted) -> None:
    async def play() -> None:
        for fact in facts:
            await evict(runner, fact)  # type: ignore[arg-type]
        assert runner.over == [], "the runner reads on before the bus has answered"
        await runner.settle()

    asyncio.run(play())


MINE, PARTS = ("r-1",), ("r-2", "r-1")
NEWER = AdmissionView(20, AdmissionState.CURRENT, 0, "u", ("r-new",))
STORED = AdmissionView(6, AdmissionState.EVICTED, 8, "u", PARTS)


@pytest.mark.parametrize(
    ("job", "seen", "reads", "over", "published"),
    [
        (EvictedJob(), NEWER, [], [], []),
        (EvictedJob(revision=5, runners=MINE), NEWER, [], ["team.train.5"], [(8, 0)]),
        (EvictedJob(revision=5, runners=PARTS), NEWER, [], ["team.train.5-2"], [(8, 2)]),
        (EvictedJob(revision=5, runners=("r-2",)), NEWER, [], [], []),
        (None, STORED, ["workload"], ["team.train.6-2"], [(8, 2)]),
        (None, STORED._replace(held=True), ["workload"], [], []),
        (None, NEWER, ["workload", "log"], ["team.train.3"], [(8, 0)]),
        (None, None, ["workload", "log"], ["team.train.3"], [(8, 0)]),
    ],
)
def test_the_bus_is_read_only_if_the_eviction_does_not_name_its_job(
    job: EvictedJob | None,
    seen: AdmissionView | None,
    reads: list[str],
    over: list[str],
    published: list[tuple[int, int]],
) -> None:
    runner = Runner(seen)
    obey(runner, evicted(job))
    assert (runner.reads, runner.over, runner.published) == (reads, over, published)


def test_a_run_that_an_earlier_eviction_has_stopped_does_not_answer_a_later_one() -> None:
    for job in (EvictedJob(revision=12, runners=MINE), None):
        runner = Runner(AdmissionView(12, AdmissionState.EVICTED, 15, "u", MINE))
        for revision, stopped in ((5, 8), (12, 0)):
            runner.runs[f"team.train.{revision}"] = Run(
                namespace="team", name="train", uid="u", revision=revision, evicted=stopped
            )
        obey(runner, evicted(job, 15))
        assert runner.events == [("team.train.12", decide.JobEvicted(15))]
        assert runner.over == []


def test_an_expired_claim_is_reported_as_lost() -> None:
    runner = Runner(claim=ClaimState.EXPIRED)
    obey(runner, evicted(EvictedJob(revision=5, runners=MINE)))
    assert (runner.over, runner.published) == (["lost team.train.5"], [])


def test_any_runner_closes_the_part_of_a_runner_that_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr(clock, "monotonic", lambda: now)
    runner = Runner()
    obey(runner, evicted(EvictedJob(revision=5, runners=("r-2",))))
    now += 10.0
    answer_left(runner)  # type: ignore[arg-type]
    asyncio.run(runner.settle())
    assert (runner.over, runner.published) == (["team.train.5"], [(8, 0)])
