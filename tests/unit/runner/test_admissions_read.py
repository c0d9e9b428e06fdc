"""At an eviction a runner names the last admission from the facts that it has read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from admittance.events.facts import Admitted, Evicted, Stopped
from admittance.events.placement import PlacementPart
from admittance.events.shapes import PodSetToRun
from admittance.runner.runs import admissions_read
from admittance.runner.runs.admissions import AdmissionState, AdmissionView
from admittance.runner.runs.admissions_read import AdmissionRead, AdmissionsRead
from admittance.runner.runs.fact_handlers import evict

Read = AdmissionRead | None


def admitted(revision: int, *runners: str, name: str = "train") -> Admitted:
    parts = tuple(
        PlacementPart(runner=each, id=each, pod_set="main", first=0, count=1) for each in runners
    )
    pods = PodSetToRun(name="main", count=1, template=msgspec.Raw(b"{}"), parts=parts)
    return Admitted(namespace="team", name=name, uid="u", revision=revision, pod_sets=(pods,))


def evicted(revision: int, name: str = "train") -> Evicted:
    return Evicted(namespace="team", name=name, uid="u", revision=revision)


@pytest.mark.parametrize(
    ("revisions", "evictions"),
    [
        ([], {9: None}),
        ([5], {6: 5}),
        ([5], {5: None}),
        ([5, 10], {7: 5, 12: 10}),
        ([10, 5], {12: 10}),
        ([5, 10], {12: 10, 13: None}),
        ([5, 5], {7: 5, 8: None}),
        ([3, 5, 7, 9], {6: None, 8: 7, 10: 9}),
    ],
)
def test_an_eviction_ends_the_last_admission_before_it(
    revisions: list[int], evictions: dict[int, int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admissions_read, "ADMISSIONS_MAX", 2)
    read = AdmissionsRead()
    for revision in revisions:
        read.admitted(admitted(revision, f"r-{revision}"))
    for revision, before in evictions.items():
        expected = AdmissionRead(before, (f"r-{before}",)) if before else None
        assert read.ended_by(evicted(revision)) == expected


def test_only_the_newest_workloads_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admissions_read, "WORKLOADS_MAX", 2)
    read = AdmissionsRead()
    for name, revision in [("a", 1), ("b", 2), ("a", 3), ("c", 4)]:
        read.admitted(admitted(revision, name=name))
    ended: list[Read] = [read.ended_by(evicted(9, name)) for name in "abc"]
    assert ended == [AdmissionRead(3, ()), None, AdmissionRead(4, ())]


class Runner:
    """The part of a `RunManager` that `evict` uses. The stored workload is ``seen``."""

    def __init__(self, seen: AdmissionView | None, *read: Admitted) -> None:
        self._seen = seen
        self.runs: dict[str, Any] = {}
        self.asked_log = 0
        self.over: list[str] = []
        self.published: list[Stopped] = []
        self.admissions_read = AdmissionsRead()
        for fact in read:
            self.admissions_read.admitted(fact)
        self.admissions = SimpleNamespace(view=self._view, last_admitted=self._last_admitted)
        free = SimpleNamespace(state=None)
        self.claims = SimpleNamespace(read=lambda _: _returns(free), mark_over=self._mark_over)

    async def _view(self, *_: str, at_least: int) -> AdmissionView | None:
        return self._seen

    async def _last_admitted(self, *_: object) -> tuple[Admitted, str]:
        self.asked_log += 1
        return admitted(3, "r-old"), ""

    async def _mark_over(self, key: str) -> bool:
        self.over.append(key)
        return True

    async def publish(self, fact: Stopped) -> None:
        self.published.append(fact)

    async def retry(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        return await ask()

    async def wait_for_effects(self, _: object) -> None:
        pass


async def _returns(value: object) -> object:
    return value


NEWER = AdmissionView(20, AdmissionState.CURRENT, 0, "u", ("r-new",))
STORED = AdmissionView(6, AdmissionState.EVICTED, 8, "u", ("r-1", "r-2"))
TWO_PARTS = [("team.train.5-1", 1), ("team.train.5-2", 2)]


@pytest.mark.parametrize(
    ("seen", "read", "closed", "asked_log"),
    [
        (STORED, [admitted(5, "r-1")], [("team.train.6-1", 1), ("team.train.6-2", 2)], 0),
        (NEWER, [admitted(5, "r-1", "r-2")], TWO_PARTS, 0),
        (None, [admitted(5, "r-1", "r-2"), admitted(20, "r-new")], TWO_PARTS, 0),
        (NEWER, [admitted(20, "r-new")], [("team.train.3", 0)], 1),
        (NEWER, [], [("team.train.3", 0)], 1),
    ],
)
def test_the_log_is_asked_for_only_if_the_runner_has_not_read_the_admission(
    seen: AdmissionView | None,
    read: list[Admitted],
    closed: list[tuple[str, int]],
    asked_log: int,
) -> None:
    runner: Any = Runner(seen, *read)
    asyncio.run(evict(runner, evicted(8)))
    said = [(fact.revision, fact.part) for fact in runner.published]
    assert runner.over == [key for key, _ in closed]
    assert said == [(8, part) for _, part in closed]
    assert runner.asked_log == asked_log


@pytest.mark.parametrize(
    "seen", [STORED._replace(held=True), NEWER], ids=["by the stored workload", "by the fact"]
)
def test_no_runner_answers_for_a_program_that_holds_the_quota_itself(seen: AdmissionView) -> None:
    runner: Any = Runner(seen, msgspec.structs.replace(admitted(5, "r-1"), held=True))
    asyncio.run(evict(runner, evicted(8)))
    assert (runner.over, runner.published, runner.asked_log) == ([], [], 0)
