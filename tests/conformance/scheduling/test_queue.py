"""Kueue's tables of its queues: the order, and when a workload may be tried again."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from admittance.scheduling.state.config import Config
from admittance.scheduling.state.requests import Shapes
from admittance.scheduling.state.workload_view import view_of
from admittance.workload import stored
from support.cores.stepped_scheduler import SteppedScheduler, groups

QUEUE = Path(__file__).parents[4] / "shared" / "conformance" / "queue"
MISSING = "the conformance data is not beside this tree"


def _cases(table: str) -> list[Any]:
    path = QUEUE / f"{table}.json"
    if not path.is_file():
        return []
    return [pytest.param(case, id=case["name"]) for case in json.loads(path.read_text())["cases"]]


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


@pytest.mark.skipif(not QUEUE.is_dir(), reason=MISSING)
@pytest.mark.parametrize("case", _cases("TestStrictFIFO"))
def test_the_head_of_a_queue_is_the_one_that_kueue_takes(case: dict[str, Any]) -> None:
    given = case["given"]
    ordering = given.get("workloadOrdering") or {}
    timestamp = next(iter(ordering.values()), "Eviction") if ordering else "Eviction"
    scheduler = SteppedScheduler(Config(requeuing_timestamp=timestamp))
    scheduler.queue("cq", queueingStrategy="StrictFIFO", resourceGroups=groups(default="0"))
    for raw in (given["w1"], given["w2"]):
        workload = stored.decode(msgspec.json.encode(raw))
        spec = {**json.loads(bytes(workload.spec)), "queueName": "cq"}
        workload = msgspec.structs.replace(workload, spec=msgspec.Raw(json.dumps(spec).encode()))
        scheduler.write("ns", workload.metadata.name, workload)
    first = case["want"]["expected"]
    assert scheduler.core.explain("ns", first, now=scheduler.now).position == 1


@pytest.mark.skipif(not QUEUE.is_dir(), reason=MISSING)
@pytest.mark.parametrize("case", _cases("TestBackoffWaitingTimeExpired"))
def test_a_backoff_ends_when_it_ends_in_kueue(case: dict[str, Any]) -> None:
    given = case["given"]
    obj = given["workloadInfo"]
    obj = obj.get("obj", obj.get("workload", obj))
    facts = view_of(stored.decode(msgspec.json.encode(obj)), Shapes(), Config())
    now = _time(given["now"])
    over = not facts.requeue_blocked and (facts.requeue_at is None or now >= facts.requeue_at)
    assert over is bool(case["want"].get("result", False))
