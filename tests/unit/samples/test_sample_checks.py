"""The sample checks' own decisions, as functions of what they are asked. No bus."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import import_module, reload
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from admittance.checks import Pending, Ready, Reference, Request, Retry

SAMPLES = Path(__file__).parents[3] / "deploy" / "samples" / "checks"
BUDGET = {
    "prometheus": "http://127.0.0.1:1",
    "query": 'spent{namespace="$namespace"}[$elapsed]',
    "limits": {"default": 100},
}


@pytest.fixture
def loaded(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Any]:
    """Imports the module of a sample anew, as its program does."""
    before = set(sys.modules)
    monkeypatch.setenv("ADMIT_DATA_DIR", str(tmp_path))

    def load(sample: str, module: str) -> ModuleType:
        monkeypatch.syspath_prepend(str(SAMPLES / sample))
        return import_module(module)

    yield load
    for name in set(sys.modules) - before:
        if str(SAMPLES) in (getattr(sys.modules[name], "__file__", None) or ""):
            del sys.modules[name]


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("now", "turn", "begin", "end"),
    [
        pytest.param(
            "2026-11-18T10:00",
            ("Monday", "00:00", "UTC"),
            "2026-11-16T00:00",
            "2026-11-23T00:00",
            id="in the middle of a week",
        ),
        pytest.param(
            "2026-11-16T00:00",
            ("Monday", "00:00", "UTC"),
            "2026-11-16T00:00",
            "2026-11-23T00:00",
            id="its first moment is the new week's",
        ),
        pytest.param(
            "2026-11-15T23:59:59",
            ("monday", "00:00", "UTC"),
            "2026-11-09T00:00",
            "2026-11-16T00:00",
            id="its last second is the old week's",
        ),
        pytest.param(
            "2026-11-20T16:00",
            ("Friday", "17:30", "UTC"),
            "2026-11-13T17:30",
            "2026-11-20T17:30",
            id="on its day, before its time",
        ),
        pytest.param(
            "2026-10-27T12:00",
            ("Sunday", "00:00", "Europe/Berlin"),
            "2026-10-24T22:00",
            "2026-10-31T23:00",
            id="a week in which clocks are moved is an hour longer",
        ),
    ],
)
def test_a_week_turns_on_its_day_at_its_time(
    loaded: Any, now: str, turn: tuple[str, str, str], begin: str, end: str
) -> None:
    week_of = loaded("budget", "weeks").week_of
    assert week_of(at(now), *turn) == (at(begin), at(end))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        pytest.param({"resetWeekday": "Mittwoch"}, "Mittwoch", id="a day that is none"),
        pytest.param({"resetTime": "noon"}, "noon", id="a time that is none"),
        pytest.param({"timezone": "Mars/Olympus"}, "Mars/Olympus", id="a zone that is none"),
        pytest.param({"prometheus": "file:///etc/passwd"}, "no URL", id="no URL"),
        pytest.param({"lookEverySeconds": 0}, "more than 0", id="looking all the time"),
        pytest.param({"limit": 5}, "limit", id="a field that is unknown"),
    ],
)
async def test_a_wrong_budget_raises_an_error_and_gives_no_verdict(
    loaded: Any, wrong: dict[str, Any], said: str
) -> None:
    controller = loaded("budget", "budget").controller
    with pytest.raises(ValueError, match=said):
        await controller.judge(Request(parameters=BUDGET | wrong))


async def test_without_an_answer_from_prometheus_the_verdict_is_retry(loaded: Any) -> None:
    controller = loaded("budget", "budget").controller
    verdict = await controller.judge(Request(name="w", parameters=BUDGET))
    assert isinstance(verdict, Retry)
    assert verdict.seconds() == 60
    where = BUDGET["prometheus"]
    assert verdict.message.startswith(f"{where} does not tell what was spent: ")
    assert "<" not in verdict.message


async def test_a_namespace_without_a_limit_is_let_through(loaded: Any) -> None:
    controller = loaded("budget", "budget").controller
    verdict = await controller.judge(Request(namespace="free", name="w", parameters=BUDGET))
    assert isinstance(verdict, Ready)


@pytest.mark.parametrize(
    ("amount", "more", "seconds"),
    [
        pytest.param(99.9, {}, None, id="within budget"),
        pytest.param(100.0, {}, 43_200, id="just spent: until the week turns"),
        pytest.param(500.0, {"maxDelaySeconds": 3600}, 3600, id="asks again after an hour"),
    ],
)
async def test_over_budget_the_delay_is_the_time_until_the_week_turns(
    loaded: Any,
    monkeypatch: pytest.MonkeyPatch,
    amount: float,
    more: dict[str, Any],
    seconds: int | None,
) -> None:
    budget = loaded("budget", "budget")
    asked: list[str] = []
    monkeypatch.setattr(budget, "_ask", lambda url: asked.append(url) or amount)
    monkeypatch.setattr(budget, "now", lambda: at("2026-11-22T12:00"))
    verdict = await budget.controller.judge(Request(name="w", parameters=BUDGET | more))
    # Six and a half days of this week have passed.
    assert "spent%7Bnamespace%3D%22default%22%7D%5B561600s%5D" in asked[0]
    if seconds is None:
        assert isinstance(verdict, Ready)
    else:
        assert isinstance(verdict, Retry)
        assert verdict.seconds() == seconds
        assert "next week begins 2026-11-23T00:00:00Z" in verdict.message


def test_running_workloads_are_remembered_after_a_restart(loaded: Any, tmp_path: Path) -> None:
    Running = loaded("budget", "running").Running
    path = tmp_path / "state" / "running.jsonl"
    first = Running(path)
    first.compact()
    for name in ("a", "b", "c"):
        reference = Reference(namespace="ns", name=name, uid=f"u-{name}", check="budget", cycle=1)
        first.keep(reference, b"{}")
    first.forget("u-b", "budget", 1)
    first.forget("u-c", "budget", 0)  # of another cycle: not the one that runs
    with path.open("ab") as file:
        file.write(b'{"reference":{"namespa')  # it died in the middle of a line
    again = Running(path)
    assert [reference.name for reference, _ in again.all()] == ["a", "c"]
    again.compact()
    assert len(path.read_text().splitlines()) == 2


async def test_a_restarted_budget_check_stops_what_it_admitted_before(
    loaded: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    budget = loaded("budget", "budget")
    monkeypatch.setattr(budget, "_ask", lambda _: 60.0)
    for namespace in ("default", "free"):
        uid = f"uid-{namespace}"
        await budget.controller.judge(
            Request(namespace=namespace, name="w", uid=uid, check="budget", parameters=dict(BUDGET))
        )
    restarted = reload(budget)
    reported: list[tuple[str, str]] = []

    async def report(reference: Reference, verdict: Retry) -> None:
        reported.append((reference.namespace, verdict.message.partition(";")[0]))

    monkeypatch.setattr(restarted.controller, "report", report)
    monkeypatch.setattr(restarted, "_ask", lambda _: 100.0)
    for _ in range(2):
        await restarted.look()
        assert reported == [("default", "weekly budget of 100 is spent (100)")]
    assert [reference.namespace for reference, _ in reload(budget).running.all()] == ["free"]


@pytest.mark.parametrize(
    ("probe", "delays"),
    [
        pytest.param({}, [30, 60, 120, 240], id="30 s, doubled"),
        pytest.param({"maxSeconds": 100}, [30, 60, 100, 100], id="up to a limit"),
        pytest.param({"baseSeconds": 5, "factor": 3}, [5, 15, 45, 135], id="another factor"),
    ],
)
@pytest.mark.scenario("L25")
async def test_delays_grow_with_the_retry_count_of_the_request(
    loaded: Any, probe: dict[str, Any], delays: list[int]
) -> None:
    controller = loaded("backoff", "backoff").controller
    parameters = {"url": "http://127.0.0.1:1/", **probe}
    verdicts = []
    for count in range(4):
        verdict = await controller.judge(Request(retry_count=count, parameters=dict(parameters)))
        assert isinstance(verdict, Retry)
        assert f"attempt {count + 1}" in verdict.message
        verdicts.append(verdict.seconds())
    assert verdicts == delays


def test_jitter_only_adds_to_a_delay_and_a_huge_count_works(loaded: Any) -> None:
    module = loaded("backoff", "backoff")
    probe = module.Probe(url="http://x", jitter=0.5)
    assert module.delay_seconds(probe, 0, 0.0) == 30
    assert module.delay_seconds(probe, 0, 1.0) == 45
    assert module.delay_seconds(probe, 100_000, 0.0) == 3600


async def test_a_pending_approval_names_the_command_to_approve(
    loaded: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = loaded("approval", "approval")

    async def nothing(_: Request) -> None:
        return None

    monkeypatch.setattr(module, "answered", nothing)
    verdict = await module.approval.judge(Request(namespace="lab", name="train", check="approval"))
    assert isinstance(verdict, Pending)
    assert "admit approve workload train -n lab --check approval" in verdict.message


async def test_an_allowance_is_per_namespace_and_a_repeated_request_is_free(
    loaded: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = loaded("allowance", "allowance")
    now = [1000.0]
    monkeypatch.setattr(module, "time", lambda: now[0])

    async def asked(uid: str, namespace: str = "ns", cycle: int = 1) -> str:
        request = Request(namespace=namespace, uid=uid, cycle=cycle, parameters=given)
        verdict = await module.budget.judge(request)
        if isinstance(verdict, Retry):
            return f"in {verdict.seconds()} s: {verdict.message}"
        assert isinstance(verdict, Ready)
        return verdict.message

    given = {"starts": 2, "perSeconds": 10}
    assert await asked("a") == "1 of 2 starts in 10 s"
    assert await asked("a") == "1 of 2 starts in 10 s"
    now[0] = 1004.0
    assert await asked("b") == "2 of 2 starts in 10 s"
    assert await asked("c") == "in 6 s: the budget of 2 in 10 s is spent; held until 00:16:51Z"
    assert await asked("c", "other") == "1 of 2 starts in 10 s"
    now[0] = 1010.0
    assert await asked("c", cycle=2) == "2 of 2 starts in 10 s"
    assert await asked("d") == "in 4 s: the budget of 2 in 10 s is spent; held until 00:16:55Z"
