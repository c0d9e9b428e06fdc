"""The part of the bucket that a forecast needs: rows of a tree, run times, arrivals and starts."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from admittance.forecast.forecast import HORIZON
from admittance.forecast.past_runs import PastRun
from admittance.forecast.rows import Key, Source
from admittance.forecast.tracked import (
    INACTIVE,
    NOT_WAITING,
    TOO_LARGE,
    USAGE,
)
from admittance.forecast.widening import Interval
from admittance.scheduling.state.config import CohortFairSharing, Config, UsageFairSharing
from support.builders import NOON
from support.cores.followed_scheduler import FollowedScheduler
from support.cores.stepped_scheduler import groups, quota

CPU = ("default", "cpu")


def system(config: Config | None = None, **spec: Any) -> FollowedScheduler:
    made = FollowedScheduler(config)
    made.queue("a", resourceGroups=groups(default="2"), **spec)
    return made


def test_the_rows_of_a_tree_are_what_waits_and_what_holds_quota() -> None:
    s = system(cohort="team")
    s.queue("b", "team", resourceGroups=groups(default=quota("2", borrow="0")))
    s.submit("old", "a", "2", age=9, spec={"maximumExecutionTimeSeconds": 60})
    s.submit("wide", "b", "2", age=8)
    assert s.settle() == ["old", "wide"]
    s.submit("next", "a", "1", age=5, priority=3)
    found = s.tracked.rows("cohort-team")
    assert found is not None
    assert {(row.key[1], row.queue, row.limit) for row in found.holding} == {
        ("old", "a", 60),
        ("wide", "b", None),
    }
    [waits] = found.waiting
    assert (waits.key, waits.priority, waits.choices) == (
        ("ns", "next"),
        3,
        ((((CPU, 1000),),),),
    )
    assert waits.queued_at == NOON.timestamp() - 5
    assert s.tracked.domain_of(("ns", "next")) == "cohort-team"


def test_only_flavors_that_a_workload_may_use_are_choices() -> None:
    s = system()
    s.flavor("spot", nodeTaints=[{"key": "spot", "effect": "NoSchedule"}])
    s.flavor("new")
    s.queue("a", resourceGroups=groups(default="1", spot="9", new="4"))
    s.submit("x", "a", "1")
    found = s.tracked.rows("queue-a")
    assert found is not None
    [flavors] = found.waiting[0].choices
    assert flavors == (((CPU, 1000),), ((("new", "cpu"), 1000),))


def test_a_finished_workload_gives_the_run_time_of_its_script_once() -> None:
    s = system()
    s.run("w", 40, ("python", "train.py"))
    s.change("w", log=s.stored["w"].status.log)
    script = ("script", "train.py", "")
    assert list(s.tracked.run_times.values(script)) == [40]
    assert s.tracked.source_of(("ns", "w")) == Source("a", "", "train.py")
    s.gone("w")
    assert s.tracked.source_of(("ns", "w")) == Source("")


def test_a_past_run_counts_unless_the_bucket_has_its_workload() -> None:
    s = system()
    s.run("w", 40, ("python", "train.py"))
    source = s.tracked.source_of(("ns", "w"))
    uid = s.stored["w"].metadata.uid
    for key, of, seconds in (("w", uid, 40.0), ("w", "earlier", 30.0), ("other", "x", 20.0)):
        run = PastRun(("ns", key), of, source, seconds, NOON.timestamp() - seconds, 1.0)
        s.tracked.add_past_run(run)
    assert list(s.tracked.run_times.values(("all",))) == [20, 30, 40]
    assert list(s.tracked.run_times.checks("a")) == [0, 1, 1]


def test_rows_have_the_persons_that_their_quota_counts_for() -> None:
    s = system(perUser={"cpu": 1})
    s.submit("holds", "a", "1")
    assert s.settle() == ["holds"]
    s.submit("waits", "a", "1")
    found = s.tracked.rows("queue-a")
    assert found is not None
    [holds], [waits] = found.holding, found.waiting
    assert holds.persons == waits.persons == found.persons["a", ""]
    [person] = waits.persons
    assert person.held == {"cpu": 1000}


def test_a_workload_that_ended_without_a_run_gives_no_run_time() -> None:
    s = system()
    s.submit("w", "a")
    s.finish("w")
    assert list(s.tracked.run_times.values(("all",))) == []


def test_arrivals_are_the_workloads_that_were_created_lately() -> None:
    s = system()
    s.submit("w", "a", age=600)
    s.submit("old", "a", age=3 * 86_400)
    s.change("w", log=s.stored["w"].status.log)
    drawn = s.tracked.arrivals.drawn(NOON.timestamp(), inf, {"a"}, lambda: 0.0)
    times = [next(drawn).queued_at - NOON.timestamp() for _ in range(2)]
    assert times == [3000, 6600], "an hour is known, and follows itself"


def test_a_start_is_compared_with_its_forecast() -> None:
    s = system()
    s.submit("w", "a")
    memory = s.tracked.memory("queue-a")
    memory.made["ns", "w"] = [(NOON.timestamp() - 50, Interval(10, 20, 60))]
    s.change("w", log=s.stored["w"].status.log)
    assert memory.compared == 0
    assert s.settle() == ["w"]
    assert (memory.compared, memory.inside, memory.made) == (1, 1, {})


def test_a_forecast_of_a_workload_that_is_deleted_is_not_compared() -> None:
    s = system()
    s.submit("w", "a")
    memory = s.tracked.memory("queue-a")
    memory.made["ns", "w"] = [(NOON.timestamp(), Interval(0, 0, HORIZON))]
    s.gone("w")
    assert (memory.compared, memory.made) == (0, {})


def test_a_workload_without_a_row_does_not_hide_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    s = system()
    for name in ("old", "held"):
        s.submit(name, "a", "1", age=9)
    assert s.settle() == ["held", "old"]
    for name in ("broken", "next"):
        s.submit(name, "a", "1")
    source_of = s.tracked.source_of

    def broken(key: Key) -> Source:
        if key[1] in ("broken", "held"):
            raise LookupError(key)
        return source_of(key)

    monkeypatch.setattr(s.tracked, "source_of", broken)
    errors: dict[Key, Exception] = {}
    found = s.tracked.rows("queue-a", errors)
    assert found is not None
    assert [row.key[1] for row in found.waiting] == ["next"]
    assert [row.key[1] for row in found.holding] == ["old"]
    assert set(errors) == {("ns", "broken"), ("ns", "held")}


@pytest.mark.parametrize(
    ("config", "spec", "cpu", "why"),
    [
        pytest.param({}, {}, "1", "", id="a workload that can start"),
        pytest.param({}, {}, "3", TOO_LARGE, id="more than the quota"),
        pytest.param({}, {"stopPolicy": "Hold"}, "1", INACTIVE, id="a stopped queue"),
        pytest.param({"fair_sharing": CohortFairSharing()}, {}, "1", "", id="fair sharing"),
        pytest.param(
            {"admission_fair_sharing": UsageFairSharing()},
            {"admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}},
            "1",
            USAGE,
            id="an order by past usage",
        ),
        pytest.param({}, {"perUser": {"cpu": 1}}, "1", "", id="a limit of users"),
    ],
)
def test_an_unknown_start_has_a_reason(
    config: dict[str, Any], spec: dict[str, Any], cpu: str, why: str
) -> None:
    s = system(Config(**config), **spec)
    s.submit("w", "a", cpu)
    assert s.tracked.why_unknown(("ns", "w")) == why
    assert s.tracked.why_unknown(("ns", "other")) == NOT_WAITING
    found = s.tracked.rows("queue-a")
    assert [row.key[1] for row in (found.waiting if found else ())] == ["w"] * (not why)
