"""Histories of whole systems in memory: each revision of each workload, each decision, each message
of the workload-controller and each timer, for a few stories that differ.

The right histories lie in `whole_histories.txt` beside this module. After a change of a history,
``python -m unit.control.test_whole_histories`` in folder ``tests`` writes the file anew: read each
changed line before you keep it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from admittance.control.commit import Commit, Message
from admittance.events import facts
from admittance.events.base import Fact
from admittance.events.requests.history import SettledReply
from admittance.workload.limits import Limits, PodsReadyLimits
from admittance.workload.stored import StoredWorkload, encode
from support.builders import NOON
from support.cores.families.family_cores import LOWER, FamilyCores

HISTORIES: Final = Path(__file__).with_name("whole_histories.txt")
PODS: Final = Limits(
    pods_ready=PodsReadyLimits(
        timeout=timedelta(seconds=30),
        recovery=timedelta(seconds=20),
        backoff_base=40,
        backoff_limit=2,
    )
)


NOT_WRITTEN: Final = re.compile(
    # What repeats other parts of the line, numbers of revisions, and templates of pods.
    r"(?:^|\.)(?:apiVersion|kind|uid|type|name|namespace|time|revision|seen|trace|evictedRevision"
    r"|admittedRevision|admissionRevision|fact)$|^status\.log|template|^workload\.|^podSets|shortfalls"
    r"|^admission|^refusal|^status\.variants.*(?:Time|message|status)$|^spec\.podSets"
)
TIME: Final = re.compile(r"2026-01-01T(12:\d\d:\d\d)Z")
SHORT: Final = {
    "status.conditions": "",
    "admission.podSetAssignments": "admission",
    "lastTransitionTime": "since",
}


def parts(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Each simple value inside ``value``, with its path."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from parts(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            named = isinstance(inner, dict) and (inner.get("type") or inner.get("name"))
            yield from parts(inner, f"{path}[{named or number}]")
    elif not NOT_WRITTEN.search(path):
        for long, short in SHORT.items():
            path = path.replace(long, short)
        yield path, TIME.sub(r"\1", json.dumps(value))


class History(FamilyCores):
    """Cores of families that write down what happens."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.lines: list[str] = []
        self._last: dict[str, dict[str, str]] = {}
        self._timers: set[str] = set()
        super().__init__(limits=limits)

    def _write(self, what: str, text: str = "") -> None:
        self.lines.append(f"{self.seconds():g} {what}" + (f": {text}" if text else ""))

    def saw(self, key: str, before: StoredWorkload | None, after: StoredWorkload | None) -> None:
        super().saw(key, before, after)
        name = key.rpartition(".")[2]
        if after is None:
            self._last.pop(name, None)
            self._write(f"{name} is deleted")
            return
        new = dict(parts(msgspec.json.decode(encode(after))))
        old = self._last.get(name, {})
        changed = [f"{path}={value}" for path, value in new.items() if old.get(path) != value]
        changed += [f"-{path}" for path in old if path not in new]
        self._last[name] = new
        self._write(name, " ".join(changed))

    def perform(self, commit: Commit) -> list[Message]:
        for outcome in commit.outcomes.values():
            self._write("outcome", f"{outcome.outcome} {outcome.reason} {outcome.message}")
        return super().perform(commit)

    def apply_facts(self, *given: Fact) -> list[SettledReply]:
        for fact in given:
            self._write_fact(f"{type(fact).__name__} {fact.name}", msgspec.json.encode(fact))
        return super().apply_facts(*given)

    def reads(self, message: Message) -> None:
        self._write_fact(message.subject, message.data)
        super().reads(message)

    def _write_fact(self, what: str, data: bytes) -> None:
        fields = parts(msgspec.json.decode(data))
        self._write(what, " ".join(f"{path}={value}" for path, value in fields))

    def set_timers(self) -> None:
        super().set_timers()
        timers = {f"{slot.kind} of {slot.name}" for slot in self.schedules}
        for timer in sorted(timers - self._timers):
            due = [
                f"{(order.want.at - NOON).total_seconds():g}"
                for slot, order in self.schedules.items()
                if timer == f"{slot.kind} of {slot.name}"
            ]
            self._write(f"timer {timer}", " ".join(due))
        self._timers = timers


def three(limits: Limits | None = None, **spec: Any) -> History:
    """Queue cq of families with four gpus of each flavor a, b and c."""
    cores = History(limits)
    cores.offer({"a": 4, "b": 4, "c": 4}, **spec)
    cores.policy()
    return cores


def upgrade() -> History:
    """A family runs on the worst flavor, moves to the best when it becomes free, and finishes."""
    cores = three()
    cores.submit_regular("on-a", "a")
    cores.submit_regular("on-b", "b")
    cores.go()
    cores.job()
    cores.at(10)
    cores.slow_jobs.add("j")
    cores.done("on-a")
    cores.at(20)
    cores.stop("j")
    cores.at(30)
    cores.done("j")
    return cores


def checks() -> History:
    """The checks of two flavors answer a family in each way."""
    cores = three(checks={"a": ["slow"], "b": ["odd"]})
    cores.job()
    cores.at(10)
    cores.report("j-variant-a", "slow", "Retry", after=30)
    cores.report("j-variant-b", "odd", "Ready")
    cores.at(60)
    cores.report("j-variant-a", "slow", "Ready", message="there is room")
    cores.at(70)
    cores.report("j-variant-a", "slow", "Retry", after=5)
    cores.at(80)
    cores.report("j-variant-a", "slow", "Rejected", message="no room")
    cores.report("j-variant-b", "odd", "Rejected")
    cores.at(90)
    cores.publish(facts.Deactivated, "j")
    cores.go()
    cores.publish(facts.Activated, "j")
    cores.at(100)
    return cores


def waits() -> History:
    """Each variant of a family waits after a verdict, so that the family itself waits."""
    cores = three(checks={"a": ["slow"], "b": ["odd"], "c": ["late"]})
    cores.job()
    cores.at(10)
    cores.report("j-variant-a", "slow", "Retry", after=50)
    cores.report("j-variant-c", "late", "Retry", after=40)
    cores.report("j-variant-b", "odd", "Retry", after=30)
    cores.at(20)
    cores.job("k", allowed=["a", "b"])
    cores.report("k-variant-a", "slow", "Rejected", message="no " * 200)
    cores.report("k-variant-b", "odd", "Retry", after=90)
    cores.at(45)
    cores.publish(facts.Deactivated, "j-variant-b")
    cores.at(60)
    return cores


def pods() -> History:
    """The pods of a family, and of a regular workload, are not ready in time, again and again."""
    cores = three(PODS)
    cores.submit_regular("on-a", "a")
    cores.job()
    cores.at(10)
    cores.ready("on-a")
    cores.at(15)
    cores.not_ready("on-a")
    for seconds in (60, 120, 180, 300):
        cores.at(seconds)
    cores.publish(facts.Activated, "j")
    cores.at(310)
    cores.ready("j")
    cores.at(320)
    cores.not_ready("j")
    cores.at(330)
    return cores


def preemption() -> History:
    """A family loses its quota to a workload of higher priority, and gets other quota later."""
    cores = three(preemption=LOWER)
    cores.submit_regular("on-b", "b")
    cores.submit_regular("on-c", "c")
    cores.job()
    cores.at(10)
    cores.submit_regular("urgent", "a", priority=900)
    cores.at(20)
    cores.publish(facts.Reprioritized, "j", priority=1000)
    cores.at(30)
    cores.done("on-c")
    cores.at(40)
    cores.publish(facts.Deleted, "j")
    cores.at(50)
    return cores


def delays() -> History:
    """Variants begin after a delay, and end some time after another was admitted."""
    cores = three()
    cores.policy(
        explicit=[
            {"name": "fast", "allowedResourceFlavors": ["a"], "createDelaySeconds": 60},
            {"name": "slow", "allowedResourceFlavors": ["b", "c"], "deleteDelaySeconds": 30},
        ]
    )
    cores.submit_regular("on-b", "b")
    cores.submit_regular("on-c", "c")
    cores.job()
    cores.at(30)
    cores.done("on-c")
    cores.at(70)
    cores.at(120)
    cores.policy(mode="NoMigration")
    cores.at(130)
    cores.job("other", allowed=["b"])
    cores.done("j")
    cores.at(140)
    return cores


def members() -> History:
    """Users stop, start and release single variants, and hold and reprioritize their parent."""
    cores = three(checks={"a": ["slow"]}, preemption=LOWER)
    cores.submit_regular("on-b", "b", priority=-5)
    cores.submit_regular("on-c", "c", priority=-5)
    cores.job(priority=3)
    cores.at(10)
    cores.publish(facts.Deactivated, "j-variant-a")
    cores.at(20)
    cores.publish(facts.Ungated, "j-variant-b")
    cores.at(30)
    cores.publish(facts.Activated, "j-variant-a")
    cores.publish(facts.Reprioritized, "j", priority=7)
    cores.publish(facts.Reprioritized, "j-variant-a", priority=8)
    cores.at(40)
    cores.report("j-variant-a", "slow", "Ready")
    cores.publish(facts.Deactivated, "j-variant-b")
    cores.at(50)
    cores.publish(facts.Held, "j")
    cores.at(60)
    cores.publish(facts.Deleted, "j-variant-c")
    cores.at(70)
    cores.publish(facts.Released, "j")
    cores.at(80)
    return cores


def queues() -> History:
    """The queue of a family and of regular workloads stops, loses quota and flavors, and goes."""
    cores = three()
    cores.submit_regular("on-a", "a")
    cores.job()
    cores.job("waits", 9, allowed=["a"])
    cores.at(10)
    cores.edit_queue(stopPolicy="Hold")
    cores.at(20)
    cores.edit_queue(stopPolicy="HoldAndDrain")
    cores.at(30)
    cores.edit_queue(stopPolicy=None)
    cores.at(40)
    cores.offer({"b": 4, "c": 2}, stopPolicy=None)
    cores.at(50)
    local = {"clusterQueue": "cq", "stopPolicy": "HoldAndDrain"}
    cores.put("LocalQueue", "cq", local, namespace="ns")
    cores.at(60)
    cores.delete("LocalQueue", "cq", "ns")
    cores.at(70)
    return cores


def regular() -> History:
    """Regular workloads wait for two checks, run for a time, and are stopped and deleted."""
    cores = History(PODS)
    cores.check("room")
    cores.check("budget")
    cores.offer({"a": 4, "b": 4}, admissionChecks=["room", "budget"])
    cores.put("WorkloadPriorityClass", "high", None, value=500)
    cores.job("x", maximumExecutionTimeSeconds=60)
    cores.job("y", 2)
    cores.job("z", 9)
    cores.at(10)
    cores.report("x", "room", "Ready")
    cores.report("x", "budget", "Ready")
    cores.report("y", "room", "Retry", after=20)
    cores.at(20)
    cores.ready("x")
    cores.publish(facts.Deactivated, "z")
    cores.at(40)
    cores.report("y", "budget", "Rejected", message="too dear")
    cores.slow_jobs.add("x")
    cores.at(90)
    cores.at(500)
    cores.publish(facts.Activated, "y")
    cores.publish(facts.Activated, "z")
    cores.publish(facts.Deleted, "x")
    cores.finish("z")
    cores.at(520)
    return cores


STORIES: Final[tuple[Callable[[], History], ...]] = (
    upgrade,
    checks,
    waits,
    pods,
    preemption,
    delays,
    members,
    queues,
    regular,
)


@pytest.fixture(scope="module")
def right() -> dict[str, list[str]]:
    stories = (text.splitlines() for text in HISTORIES.read_text().split("# ")[1:])
    return {lines[0]: [line for line in lines[1:] if line] for lines in stories}


@pytest.mark.parametrize("make", STORIES)
def test_a_history_is_right_in_every_step(
    make: Callable[[], History], right: dict[str, list[str]]
) -> None:
    lines = make().lines
    for number, (line, wanted) in enumerate(zip(lines, right[make.__name__], strict=False)):
        assert line == wanted, f"step {number}"
    assert len(lines) == len(right[make.__name__])


if __name__ == "__main__":
    HISTORIES.write_text(
        "\n".join(f"# {make.__name__}\n" + "\n".join(make().lines) + "\n" for make in STORIES)
    )
