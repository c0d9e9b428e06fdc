"""Workloads that wait for others. docs/spec/arrays.md#5."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from admittance.api.dependencies import (
    DEPENDENCIES_GATE,
    BadDependency,
    Dependency,
    parse_dependency,
)
from admittance.api.meta import ObjectMeta
from admittance.api.workload import GATED_BY, ArrayStatus, DependencyRow
from admittance.arrays.dependents import (
    Dependent,
    DependentActs,
    Target,
    Verdict,
    dependent_of,
    judge,
    target_of,
)
from admittance.events import facts
from admittance.events.base import Fact
from admittance.events.subjects import WorkloadName
from admittance.workload.conditions import Type, find
from admittance.workload.phase import Phase
from admittance.workload.stored import StoredWorkload, WorkloadStatus
from support.builders import NOON, a_condition, a_manifest
from support.cores.array_cores import ArrayCores


def after(*names: str, **more: Any) -> dict[str, Any]:
    """The dependencies of a spec, as texts."""
    rows = []
    for name in names:
        parsed = parse_dependency(name)
        row: dict[str, Any] = {"workload": parsed.workload, "condition": parsed.condition}
        if parsed.index is not None:
            row["index"] = parsed.index
        if parsed.elementwise:
            row["elementwise"] = True
        rows.append(row)
    return {"after": rows, **more}


def a_pipeline(*names: str, **more: Any) -> ArrayCores:
    """``prep`` runs, and ``train`` waits for it in this way."""
    cores = ArrayCores()
    cores.submit("prep", "q")
    cores.submit("train", "q", **after(*names, **more))
    cores.run()
    return cores


def met(cores: ArrayCores, name: str = "train") -> tuple[str, str]:
    condition = find(cores.stored(name), Type.DEPENDENCIES_MET)
    assert condition is not None
    return condition.reason, condition.message


@pytest.mark.parametrize(
    ("text", "dependency"),
    [
        ("prep", Dependency(workload="prep")),
        ("prep:failed", Dependency(workload="prep", condition="failed")),
        ("prep[*]:any", Dependency(workload="prep", condition="any")),
        ("prep[=]", Dependency(workload="prep", elementwise=True)),
        ("prep[12]", Dependency(workload="prep", index=12)),
    ],
)
def test_a_dependency_is_read(text: str, dependency: Dependency) -> None:
    assert parse_dependency(text) == dependency


@pytest.mark.parametrize("text", ["", "a[", "a[x]", "a[1-3]", "a:b", ":ok", "a:OK"])
def test_a_text_that_is_no_dependency_gets_one_line(text: str) -> None:
    with pytest.raises(BadDependency, match=r"^[^\n]+$"):
        parse_dependency(text)


@pytest.mark.parametrize(
    ("condition", "end", "phase"),
    [
        ("ok", True, Phase.ADMITTED),
        ("ok", False, Phase.DEACTIVATED),
        ("failed", True, Phase.DEACTIVATED),
        ("failed", False, Phase.ADMITTED),
        ("any", True, Phase.ADMITTED),
        ("any", False, Phase.ADMITTED),
    ],
)
def test_a_dependent_starts_by_the_end_of_what_it_waits_for(
    condition: str, end: bool, phase: Phase
) -> None:
    cores = a_pipeline(f"prep:{condition}")
    assert cores.phase("train") is Phase.PENDING
    assert cores.stored("train").metadata.annotations == {GATED_BY: DEPENDENCIES_GATE}
    if end:
        cores.run(finish=["prep"])
    else:
        cores.run(fail=["prep"])
    assert cores.phase("train") is phase


def test_a_dependent_waits_with_the_reason_and_starts_when_the_other_starts() -> None:
    cores = ArrayCores(cpu=0)
    cores.submit("prep", "q")
    cores.submit("train", "q", **after("prep:started"))
    cores.run()
    assert met(cores) == ("WaitsForDependencies", "waits for prep to start")
    waits = find(cores.stored("train"), Type.QUOTA_RESERVED)
    assert waits is not None
    assert waits.message.endswith("; waits for prep to start")
    cores.queue("q", resourceGroups=cores_of(2))
    cores.run()
    cores.run()
    assert met(cores)[0] == "DependenciesMet"
    assert cores.phase("train") is Phase.ADMITTED


def cores_of(cpu: int) -> list[dict[str, Any]]:
    quota = {"name": "cpu", "nominalQuota": cpu}
    return [{"coveredResources": ["cpu"], "flavors": [{"name": "default", "resources": [quota]}]}]


def test_all_dependencies_must_be_met_and_each_stays_met() -> None:
    cores = ArrayCores()
    for name in ("one", "two"):
        cores.submit(name, "q")
    cores.submit("train", "q", **after("one", "two:any"))
    cores.run(finish=["one"])
    assert met(cores) == ("WaitsForDependencies", "waits for two to finish")
    assert [row.since is not None for row in cores.stored("train").status.dependencies] == [
        True,
        False,
    ]
    # What has succeeded may leave the bucket.
    cores.publish(facts.Deleted, "one")
    cores.restart_controller()
    cores.run(fail=["two"])
    assert cores.phase("train") is Phase.ADMITTED


def test_a_dependency_on_a_finished_workload_is_met_at_once() -> None:
    cores = ArrayCores()
    cores.submit("prep", "q")
    cores.run(finish=["prep"])
    cores.submit("train", "q", **after("prep"))
    cores.run()
    assert cores.phase("train") is Phase.ADMITTED


def test_a_dependent_of_a_deleted_workload_is_deactivated_with_the_reason() -> None:
    cores = a_pipeline("prep")
    cores.publish(facts.Deleted, "prep")
    cores.run()
    evicted = find(cores.stored("train"), Type.EVICTED)
    assert evicted is not None
    assert evicted.reason == "DeactivatedDueToDependency"
    assert evicted.message == "It waits for prep to succeed: prep was deleted"
    # A new workload of the name is another one.
    cores.submit("prep", "q")
    cores.publish(facts.Activated, "train")
    cores.run(finish=["prep"])
    assert cores.phase("train") is Phase.PENDING
    cores.publish(facts.Released, "train", gate=DEPENDENCIES_GATE)
    cores.run()
    assert cores.phase("train") is Phase.ADMITTED


def test_a_dependent_that_keeps_waiting_is_not_deactivated() -> None:
    cores = a_pipeline("prep", afterUnmet="keep")
    cores.run(fail=["prep"])
    assert cores.phase("train") is Phase.PENDING
    assert met(cores) == ("DependencyUnmet", "prep failed")
    revision = cores.revision
    cores.run()
    assert cores.revision == revision


def test_a_stopped_workload_is_not_an_end() -> None:
    cores = a_pipeline("prep:failed")
    cores.publish(facts.Deactivated, "prep")
    cores.run()
    assert cores.phase("train") is Phase.PENDING
    cores.publish(facts.Activated, "prep")
    cores.run(fail=["prep"])
    assert cores.phase("train") is Phase.ADMITTED


def test_an_array_waits_as_a_whole_and_element_by_element() -> None:
    cores = ArrayCores()
    cores.array("prep", "0-2")
    cores.submit("each", "q", array={"indexes": "0-2"}, **after("prep[=]"))
    cores.submit("all", "q", array={"indexes": "0-2"}, **after("prep[*]"))
    cores.submit("one", "q", **after("prep[1]:any"))
    cores.run()
    cores.run(finish=["prep-0"])
    assert cores.line("each", 3) == "rgg"
    assert cores.line("all", 3) == "---"
    assert cores.phase("one") is Phase.PENDING
    cores.run(fail=["prep-1"])
    assert cores.line("each", 3) == "rgg"
    assert cores.phase("each-1") is Phase.DEACTIVATED
    assert cores.phase("one") is Phase.ADMITTED
    cores.run(finish=["prep-2"])
    assert cores.line("each", 3) == "rgr"
    assert cores.phase("all") is Phase.DEACTIVATED


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (after("gone"), "it waits for gone, which does not exist"),
        (after("train"), "spec.after[0].workload: is the workload itself"),
        (after("prep[1]"), "it waits for an element of prep, which is not an array"),
        (after("list[9]"), "it waits for list[9], an element that list lacks"),
        (after("list[=]"), "goes with spec.array only"),
        (
            after("list[=]", array={"indexes": "0-3"}),
            "it waits for list[=], which has other indexes",
        ),
        (after("list[=]:started", array={"indexes": "0-2"}), "cannot be started for one element"),
        ({"after": [{"workload": "prep", "condition": "OK"}]}, "spec.after[0].condition"),
        (after("prep", afterUnmet="drop"), "spec.afterUnmet"),
    ],
)
def test_a_wrong_dependency_is_refused_in_one_line(spec: dict[str, Any], problem: str) -> None:
    cores = ArrayCores()
    cores.submit("prep", "q")
    cores.array("list", "0-2")
    cores.settled.clear()
    manifest = a_manifest("train", queue="q")
    manifest["spec"] |= spec
    cores.submit_manifest(manifest)
    [reply] = cores.settled.values()
    assert problem in reply.message
    assert "\n" not in reply.message
    assert not cores.has("train")


def test_a_later_leader_and_a_repeated_fact_change_nothing() -> None:
    cores = a_pipeline("prep")
    cores.publish(facts.Finished, "prep")
    orders = cores.array_orders()
    cores.restart_controller()
    again = cores.array_orders()
    assert [type(fact) for fact in orders] == [facts.DependenciesJudged]
    assert orders == again
    replies = cores.apply_facts(*orders, *again)
    assert [reply.outcome for reply in replies] == ["applied", "ignored"]


def row(condition: str, index: int | None = None) -> DependencyRow:
    return DependencyRow(workload="prep", uid="u", condition=condition, index=index)


ARRAY = {"role": "array", "array": {"indexes": "3-4"}}
WAITS, MET, NEVER = Verdict
RUNS = Target("u", 1, started=True, result=None)
QUEUED = Target("u", 1, started=False, result=None)
GOOD = Target("u", 1, started=True, result=True)
BAD = Target("u", 1, started=False, result=False)
PART = Target("u", 1, started=True, result=None, indexes=(3, 5, 7, 9), results="sfd.")
OVER = Target("u", 1, started=True, result=False, indexes=(3, 5), results="s.")


@pytest.mark.parametrize(
    ("condition", "index", "target", "verdict", "why"),
    [
        ("ok", None, None, NEVER, "prep was deleted"),
        ("ok", None, Target("other", 1, True, True), NEVER, "prep was deleted"),
        ("ok", None, RUNS, WAITS, ""),
        ("ok", None, GOOD, MET, ""),
        ("ok", None, BAD, NEVER, "prep failed"),
        ("failed", None, GOOD, NEVER, "prep succeeded"),
        ("failed", None, BAD, MET, ""),
        ("any", None, RUNS, WAITS, ""),
        ("any", None, BAD, MET, ""),
        ("started", None, QUEUED, WAITS, ""),
        ("started", None, RUNS, MET, ""),
        ("started", None, BAD, NEVER, "prep ended before it started"),
        ("ok", 3, PART, MET, ""),
        ("ok", 5, PART, NEVER, "prep[5] failed"),
        ("failed", 7, PART, MET, ""),
        ("any", 9, PART, WAITS, ""),
        ("any", 5, OVER, MET, ""),
        ("ok", 5, OVER, NEVER, "prep[5] failed"),
    ],
)
def test_a_dependency_is_judged_by_what_is_stored(
    condition: str, index: int | None, target: Target | None, verdict: Verdict, why: str
) -> None:
    assert judge(row(condition, index), target) == (verdict, why)


@pytest.mark.parametrize(
    ("fact", "outcome"),
    [
        (facts.DependenciesJudged(namespace="ns", name="prep", met=(0,)), "ignored"),
        (facts.DependenciesJudged(namespace="ns", name="train", met=(7,)), "ignored"),
        (facts.DependenciesJudged(namespace="ns", name="train"), "ignored"),
        (facts.Released(namespace="ns", name="train"), "refused"),
    ],
)
def test_a_fact_about_no_dependency_changes_nothing(fact: Fact, outcome: str) -> None:
    cores = a_pipeline("prep")
    cores.now += timedelta(seconds=1)
    [reply] = cores.apply_facts(fact)
    assert reply.outcome == outcome


@pytest.mark.parametrize(
    ("kinds", "status", "spec", "wanted"),
    [
        ({}, {}, {}, (False, None, (), "")),
        ({"Admitted": ""}, {}, {}, (True, None, (), "")),
        ({}, {"started_at": NOON}, {}, (True, None, (), "")),
        ({"Finished": "Succeeded"}, {}, {}, (False, True, (), "")),
        ({"Finished": "Failed"}, {}, {}, (False, False, (), "")),
        ({}, {"array": ArrayStatus(results="..")}, ARRAY, (False, None, (3, 4), "..")),
        ({}, {"array": ArrayStatus(results=".d")}, ARRAY, (False, None, (3, 4), ".d")),
        ({}, {"array": ArrayStatus(results=".f")}, ARRAY, (True, None, (3, 4), ".f")),
        ({}, {"array": ArrayStatus(results="s.")}, ARRAY, (True, None, (3, 4), "s.")),
        (
            {},
            {"array": ArrayStatus(results="..", states={"Pending": 1, "Running": 1})},
            ARRAY,
            (True, None, (3, 4), ".."),
        ),
    ],
)
def test_what_is_kept_of_a_workload_that_others_wait_for(
    kinds: dict[str, str], status: dict[str, Any], spec: dict[str, Any], wanted: Any
) -> None:
    conditions = {kind: (True, reason, "") for kind, reason in kinds.items()}
    assert target_of(a_workload(conditions, spec, **status), 5) == Target("", 5, *wanted)


def a_workload(
    conditions: dict[str, tuple[bool, str, str]], spec: dict[str, Any], **status: Any
) -> StoredWorkload:
    """``conditions``: of each type its status, reason and message."""
    gates = status.pop("gates", "")
    deleted = status.pop("deleted", None)
    return StoredWorkload(
        api_version="v",
        kind="Workload",
        metadata=ObjectMeta(deletion_timestamp=deleted, annotations={GATED_BY: gates}),
        spec=msgspec.Raw(msgspec.json.encode(spec)),
        status=WorkloadStatus(
            conditions=tuple(
                msgspec.structs.replace(a_condition(kind, is_true, reason), message=message)
                for kind, (is_true, reason, message) in conditions.items()
            ),
            **status,
        ),
    )


UNMET = {"DependenciesMet": (False, "DependencyUnmet", "prep failed")}


@pytest.mark.parametrize(
    ("conditions", "changes", "wanted"),
    [
        ({}, {}, ("", True)),
        (UNMET, {}, ("prep failed", True)),
        (UNMET, {"spec": {"active": False}}, ("prep failed", False)),
        ({"DependenciesMet": (False, "WaitsForDependencies", "waits for prep")}, {}, ("", True)),
        ({"Finished": (True, "Failed", "")}, {}, None),
        ({}, {"deleted": NOON}, None),
        ({}, {"dependencies": ()}, None),
        ({}, {"gates": "other"}, None),
    ],
)
def test_what_is_kept_of_a_workload_that_waits(
    conditions: dict[str, tuple[bool, str, str]],
    changes: dict[str, Any],
    wanted: tuple[str, bool] | None,
) -> None:
    rows = (row("ok"),)
    options = {"spec": {}, "dependencies": rows, "gates": DEPENDENCIES_GATE} | changes
    kept = Dependent("", 5, rows, *wanted) if wanted is not None else None
    assert dependent_of(a_workload(conditions, **options), 5) == kept


SUCCEEDED = {"Finished": (True, "Succeeded", "")}
FAILED = {"Finished": (True, "Failed", "")}


@pytest.mark.parametrize(
    ("first", "second", "noted", "active", "wanted"),
    [
        ({}, {}, {}, True, None),
        (SUCCEEDED, {}, {}, True, ((0,), "")),
        ({}, SUCCEEDED, {}, True, ((1,), "")),
        (FAILED, {}, {}, True, ((), "prep failed")),
        (FAILED, FAILED, {}, True, ((), "prep failed")),
        (FAILED, {}, UNMET, True, None),
        (FAILED, {}, {}, False, None),
        ({}, FAILED, UNMET, True, ((), "list failed")),
        (FAILED, SUCCEEDED, UNMET, True, ((1,), "prep failed")),
        (FAILED, SUCCEEDED, {}, False, ((1,), "prep failed")),
    ],
)
def test_a_workload_that_waits_gets_what_became_of_its_dependencies(
    first: Any, second: Any, noted: Any, active: bool, wanted: tuple[Any, str] | None
) -> None:
    acts = DependentActs()
    rows = (
        DependencyRow(workload="prep", uid=""),
        DependencyRow(workload="list", uid=""),
        DependencyRow(workload="gone", uid="", since=NOON),
        DependencyRow(workload="each", uid="", elementwise=True),
    )
    spec = {"active": active}
    train = a_workload(noted, spec, dependencies=rows, gates=DEPENDENCIES_GATE)
    acts.apply("workload.ns.train", train, 5, NOON)
    assert {name.name for name in acts.unknown} == {"prep", "list"}
    assert acts.orders(NOON) == []
    for name, conditions in (("prep", first), ("list", second)):
        acts.apply_target(WorkloadName("ns", name), a_workload(conditions, {}), 1)
    acts_sent = [(fact.met, fact.never) for fact in acts.orders(NOON)]  # type: ignore[attr-defined]
    assert acts_sent == ([wanted] if wanted is not None else [])


def test_only_what_is_waited_for_is_kept_until_the_dependent_has_ended() -> None:
    cores = a_pipeline("prep")
    cores.array()
    core, acts = cores.arrays, cores.arrays.dependents
    names = [WorkloadName("ns", name) for name in ("a", "prep", "train")]
    assert [name in core for name in names] == [True, False, False]
    assert [acts.wants(f"workload.ns.{name.name}") for name in names] == [False, True, False]
    assert (len(core), len(acts)) == (1, 1)
    newer = cores.stored("prep")
    acts.apply_target(names[1], newer, 1000)
    acts.apply_target(names[1], None, 999)
    assert cores.array_orders()[-1].never == "prep was deleted"  # type: ignore[attr-defined]
    core.ordinary("workload.ns.train")
    assert (len(acts), acts.wants("workload.ns.prep"), dict(acts.unknown)) == (0, False, {})


def test_acts_of_arrays_and_of_dependencies_are_counted_and_repeated_together() -> None:
    cores = a_pipeline("prep")
    cores.array()
    cores.publish(facts.Finished, "prep", succeeded=True)
    core, acts = cores.arrays, cores.arrays.dependents
    assert (core.pending, core.stuck, core.wake()) == (2, 0, None)
    sent = core.acts(cores.now)
    assert [act.tries for act in sent] == [0] * 6
    soon = cores.now + timedelta(seconds=1)
    for act in sent:
        core.stated(act.fact, 10_000)
    assert core.acts(cores.now + timedelta(seconds=20)) == [], "the log has them, unread"
    for act in sent:
        is_of_arrays = not isinstance(act.fact, facts.DependenciesJudged)
        core.failed(act.fact, cores.now + timedelta(seconds=is_of_arrays))
    assert (core.pending, core.wake(), acts.wake()) == (6, soon, soon)
    later = cores.now + timedelta(seconds=100)
    assert [act.tries for act in core.acts(later)] == [1] * 6
    core.acts(later := later + timedelta(seconds=100))
    assert core.stuck == 6
    acts.ordinary("workload.ns.train")
    assert core.stuck == 5
    assert core.wake() == core.arrays.wake() != acts.wake() is None
