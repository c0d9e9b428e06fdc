"""Which acts an array requires, by what is stored. docs/spec/arrays.md#2 to #4."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from admittance.acts import Act
from admittance.api.meta import ObjectMeta
from admittance.api.workload import ArrayStatus
from admittance.arrays.core import ArrayActs
from admittance.arrays.known_arrays import (
    ArrayMembers,
    Elements,
    KnownArray,
    KnownElement,
    array_from,
    element_from,
)
from admittance.arrays.required_acts import required_acts, window_of
from admittance.events import facts
from admittance.events.base import Fact
from admittance.events.subjects import WorkloadName
from admittance.object_errors import ObjectError
from admittance.workload.arrays.intake import takes_elements
from admittance.workload.stored import StoredWorkload, WorkloadStatus
from support.builders import NOON, a_condition, an_admission
from support.cores.array_cores import ArrayCores

PLAIN = KnownElement("", "e", 7, "", "Pending", 0, True, False, False, False, False)
STORED = StoredWorkload(api_version="v", kind="Workload", metadata=ObjectMeta(name="a", uid="u"))


def elements(written: dict[str, Any]) -> dict[int, KnownElement]:
    """For each index what differs from a pending element."""
    return {int(i): PLAIN._replace(name=f"a-{i}", **more) for i, more in written.items()}


def an_array(results: str = "...", created: int = 3, **more: Any) -> KnownArray:
    states = more.pop("states", {"Pending": 3})
    status = ArrayStatus(created=created, results=results, states=states)
    plain = KnownArray(STORED, 3, "u", (0, 1, 2), None, False, 0, True, False, False, False, status)
    return plain._replace(**more)


def said(acts: Iterable[Act]) -> list[str]:
    lines = []
    for act in acts:
        match act.fact:
            case facts.ElementsCounted(gone=True):
                lines.append(f"gone {act.at_once}")
            case facts.ElementsCounted() as fact:
                states = " ".join(f"{key}={count}" for key, count in fact.states.items())
                ends = " over" if fact.over and act.at_once else ""
                lines.append(f"count {fact.created} {fact.results} {states}{ends}")
            case facts.Submitted() as fact:
                lines.append(f"submit {fact.name}")
            case facts.Finished(succeeded=False) as fact:
                lines.append(f"failed {fact.name} {act.why} {act.revision}")
            case fact:
                lines.append(f"{type(fact).__name__.lower()} {fact.name} {act.why} {act.revision}")
    return lines


ALL: dict[str, Any] = {"0": {}, "1": {}, "2": {}}
OFF = {"active": False}
NO_SPEC = msgspec.Raw(b"{}")


@pytest.mark.parametrize(
    ("array", "present", "wanted"),
    [
        ({}, ALL, []),
        ({"priority": 5}, {**ALL, "0": {"priority": 5}, "1": {"result": "s"}}, [
            "reprioritized a-2 array 7", "count 3 {'s': '1'} Pending=2"]),
        # What is missing, deleted or ended before.
        ({"created": 0, "states": {"NotCreated": 3}}, {}, [
            "submit a-0", "submit a-1", "submit a-2"]),
        ({"created": 0, "states": {"NotCreated": 3}, "gated": True}, {}, []),
        ({"created": 1}, {"0": {}}, [
            "submit a-1", "submit a-2", "count 1 {} Pending=1 NotCreated=2"]),
        ({"created": 2}, {"0": {}, "2": {}}, ["count 3 {'d': '1'} Pending=2"]),
        ({"created": 0}, {"2": {}}, ["count 3 {'d': '0-1'} Pending=1"]),
        ({"results": "sfd", "states": {}}, {}, ["count 3 {}  over"]),
        ({"results": ".s."}, {"0": {}, "2": {}}, ["count 3 {} Pending=2"]),
        ({"results": ".s.", "states": {"Pending": 2}}, {"0": {}, "2": {}}, []),
        ({"results": "sfd", "states": {}, "finished": True}, {}, []),
        ({}, {"0": {"result": "s"}, "1": {"result": "s"}, "2": {"result": "f"}}, [
            "count 3 {'s': '0-1', 'f': '2'}  over"]),
        ({}, {**ALL, "2": {"result": "f"}}, ["count 3 {'f': '2'} Pending=2"]),
        # Stopped, started again.
        (OFF, {**ALL, "1": OFF, "2": {"deleting": True}}, ["deactivated a-0 stopped 7"]),
        ({}, {**ALL, "0": {"by_array": True}, "1": {**OFF, "by_array": True}, "2": OFF}, [
            "activated a-1 activated 7"]),
        ({}, dict.fromkeys(ALL, OFF), ["count 3 {} Pending=3 over"]),
        ({}, {i: {**OFF, "by_array": True} for i in ALL}, [
            *[f"activated a-{i} activated 7" for i in ALL]]),
        ({}, {i: {**OFF, "holds_quota": True} for i in ALL}, []),
        (OFF, dict.fromkeys(ALL, OFF), []),
        # The first failure ends all; so does the end of the array.
        ({"fail_fast": True}, {**ALL, "0": {"result": "f"}, "1": {"holds_quota": True}}, [
            "deactivated a-1 stopped 7", "failed a-2 ended 7", "count 3 {'f': '0'} Pending=2"]),
        ({"fail_fast": True, "results": "..d"}, {"0": {}}, [
            "failed a-0 ended 7", "count 3 {'d': '1'} Pending=1"]),
        ({"fail_fast": True}, {**ALL, "0": {"result": "s"}}, ["count 3 {'s': '0'} Pending=2"]),
        ({"finished": True, "created": 1, "results": "s.."}, {"0": {"result": "s"}}, [
            "count 1 {} NotCreated=2 over"]),
        ({"finished": True}, {**ALL, "0": OFF}, [*[f"failed a-{i} ended 7" for i in ALL]]),
        # Gates: as many as may run, the first of those that are not over.
        ({"parallelism": 2}, {i: {"gated": True} for i in ALL}, [
            "released a-0 open 7", "released a-1 open 7"]),
        ({"parallelism": 2}, {**ALL, "1": OFF, "2": {"gated": True}}, ["released a-2 open 7"]),
        ({"parallelism": 1}, {**ALL, "1": {"gated": True}}, []),
        ({"parallelism": 1, "results": "f..", "states": {"Pending": 2}},
            {"1": {"gated": True}, "2": {"gated": True}}, ["released a-1 open 7"]),
        # Deletion: elements first.
        ({"deleting": True},
            {**ALL, "1": {"deleting": True}, "2": {"deleting": True, "result": "s"}},
            ["deleted a-0 array 7", "deleted a-2 array 7"]),
        ({"deleting": True}, {}, ["gone True"]),
        ({"uid": "later", "created": 0, "states": {"NotCreated": 3}, "gated": True},
            {**ALL, "1": {"deleting": True}}, ["deleted a-0 orphan 7", "deleted a-2 orphan 7"]),
    ],
)  # fmt: skip
def test_an_array_requires_acts(
    array: dict[str, Any], present: dict[str, Any], wanted: list[str]
) -> None:
    members = ArrayMembers(WorkloadName("ns", "a"))
    members.array = an_array(**array)
    for index, element in elements(present).items():
        members.of("u").put(index, element)
    assert said(required_acts(members, lambda _: False)) == wanted


def test_the_end_of_an_element_says_why_it_was_deactivated_before() -> None:
    members = ArrayMembers(WorkloadName("ns", "a"))
    members.array = an_array(finished=True)
    limit = {**OFF, "cause": "MaximumExecutionTimeExceeded"}
    for index, element in elements({"0": limit, "1": OFF}).items():
        members.of("u").put(index, element)
    ends = [act.fact for act in required_acts(members, lambda _: False)]
    assert [(end.reason, end.message) for end in ends if isinstance(end, facts.Finished)] == [
        (
            "ArrayEnded",
            "Its array has ended. Before that it was deactivated: MaximumExecutionTimeExceeded",
        ),
        ("ArrayEnded", "Its array has ended"),
    ]


def test_elements_without_an_array_are_deleted() -> None:
    members = ArrayMembers(WorkloadName("ns", "a"))
    members.of("u").put(0, PLAIN._replace(name="a-0"))
    assert said(required_acts(members, lambda _: False)) == ["deleted a-0 orphan 7"]


@pytest.mark.parametrize(
    ("taken", "names"),
    [
        ({}, ["a-0", "a-1", "a-2"]),
        ({"a-0": True}, ["a-0-7738e", "a-1", "a-2"]),
        ({"a-1": None}, ["a-0"]),
    ],
)
def test_a_missing_element_gets_a_free_name(
    taken: dict[str, bool | None], names: list[str]
) -> None:
    members = ArrayMembers(WorkloadName("ns", "a"))
    members.array = an_array(created=0, states={"NotCreated": 3})
    acts = required_acts(members, lambda name: taken.get(name, False))
    found = [act.fact.name for act in acts if isinstance(act.fact, facts.Submitted)]
    assert [name[:9] for name in found] == names


@pytest.mark.parametrize(
    ("live", "parallelism", "submitted"),
    [(0, None, 250), (999, None, 1), (1000, 500, 0), (1001, 501, 1)],
)
def test_few_elements_are_submitted_at_a_time(
    live: int, parallelism: int | None, submitted: int
) -> None:
    size = 1500
    members = ArrayMembers(WorkloadName("ns", "a"))
    members.array = an_array(
        "." * size, live, indexes=tuple(range(size)), parallelism=parallelism, states={}
    )
    for index in range(live):
        members.of("u").put(index, PLAIN._replace(name=f"a-{index}"))
    acts = required_acts(members, lambda _: False)
    assert sum(isinstance(act.fact, facts.Submitted) for act in acts) == submitted
    assert window_of(members.array) == max(1000, 2 * (parallelism or 0))


def test_elements_are_kept_by_their_index_and_name() -> None:
    kept = Elements()
    first = PLAIN._replace(name="a-0")
    other = PLAIN._replace(name="a-0-x")
    kept.put(0, first)
    kept.put(0, other)
    assert (kept.live, kept.fresh) == ({0: other}, {})
    kept.drop(0, "a-0")
    kept.drop(1, "a-1")
    assert kept.present == {0: other}
    kept.put(0, other._replace(result="s"))
    kept.put(0, first)
    assert (kept.live, kept.fresh, kept.present[0].name) == ({}, {0: "s"}, "a-0-x")
    kept.drop(0, "a-0-x")
    assert (kept.present, kept.fresh) == ({}, {0: "s"})
    kept.put(1, first)
    kept.drop(1, "a-0")
    assert (kept.live, kept.fresh) == ({}, {0: "s", 1: "d"})
    assert (kept.is_over(1), kept.is_over(2)) == (True, False)


def stored(spec: dict[str, Any], conditions: dict[str, str], **more: Any) -> StoredWorkload:
    """``conditions``: the reasons of those that are true."""
    deleted, annotations = more.pop("deleted", None), more.pop("annotations", {})
    found = tuple(a_condition(kind, True, reason) for kind, reason in conditions.items())
    return StoredWorkload(
        api_version="v",
        kind="Workload",
        metadata=ObjectMeta(name="a", uid="u", deletion_timestamp=deleted, annotations=annotations),
        spec=msgspec.Raw(msgspec.json.encode(spec)),
        status=WorkloadStatus(
            conditions=found,
            admission=an_admission() if "QuotaReserved" in conditions else None,
            **more,
        ),
    )


@pytest.mark.parametrize(
    ("spec", "conditions", "more", "wanted"),
    [
        ({}, {}, {}, {}),
        ({"priority": 4}, {"QuotaReserved": ""}, {}, {
            "priority": 4, "phase": "QuotaReserved", "holds_quota": True}),
        ({}, {"QuotaReserved": "", "Admitted": ""}, {}, {"phase": "Admitted", "holds_quota": True}),
        ({}, {"QuotaReserved": "", "Admitted": "", "PodsReady": ""}, {}, {
            "phase": "Running", "holds_quota": True}),
        ({}, {"QuotaReserved": "", "Evicted": ""}, {}, {"phase": "Evicting", "holds_quota": True}),
        ({}, {"Evicted": ""}, {}, {}),
        (OFF, {}, {}, {"phase": "Deactivated", "active": False}),
        (OFF, {"Evicted": "Deactivated"}, {"stopped_by": "array"}, {
            "phase": "Deactivated", "active": False, "by_array": True}),
        (OFF, {"Evicted": "DeactivatedDueToAdmissionCheck"}, {"stopped_by": "check"}, {
            "phase": "Rejected", "active": False, "cause": "AdmissionCheck"}),
        (OFF, {"Evicted": "DeactivatedDueToMaximumExecutionTimeExceeded"}, {}, {
            "phase": "Deactivated", "active": False, "cause": "MaximumExecutionTimeExceeded"}),
        ({}, {"Evicted": "DeactivatedDueToMaximumExecutionTimeExceeded"}, {}, {}),
        ({}, {"Finished": "Succeeded"}, {}, {"result": "s"}),
        ({}, {"Finished": "Failed"}, {"deleted": NOON}, {"result": "f", "deleting": True}),
        ({}, {"Finished": "ArrayEnded"}, {}, {"result": "c"}),
    ],
)  # fmt: skip
def test_what_is_kept_of_an_element(
    spec: dict[str, Any], conditions: dict[str, str], more: Any, wanted: dict[str, Any]
) -> None:
    known = element_from(stored(spec, conditions, **more), 7)
    assert known == PLAIN._replace(name="a", uid="u")._replace(**wanted)


ARRAY: dict[str, Any] = {"role": "array", "array": {"indexes": "3-4"}}


@pytest.mark.parametrize(
    ("spec", "conditions", "more", "takes", "wanted"),
    [
        ({}, {}, {}, True, {}),
        ({"priority": 4}, {}, {}, True, {"priority": 4}),
        (OFF, {}, {}, False, {"active": False}),
        ({}, {"Finished": "Failed"}, {}, False, {"finished": True}),
        ({}, {}, {"deleted": NOON}, False, {"deleting": True}),
        ({"array": {"indexes": "3-4", "parallelism": 1, "failFast": True}}, {}, {}, True, {
            "parallelism": 1, "fail_fast": True}),
    ],
)  # fmt: skip
def test_what_is_kept_of_an_array(
    spec: dict[str, Any], conditions: dict[str, str], more: Any, takes: bool, wanted: dict[str, Any]
) -> None:
    status = ArrayStatus(results="..")
    array = stored({**ARRAY, **spec}, conditions, array=status, **more)
    plain = an_array(indexes=(3, 4), revision=7, status=status, stored=None)
    assert array_from(array, 7)._replace(stored=None) == plain._replace(**wanted)  # type: ignore[arg-type]
    assert takes_elements(array) is takes
    assert not takes_elements(stored({}, {}))


def test_arrays_are_counted_by_their_state() -> None:
    cores = ArrayCores()
    for name in ("runs", "runs-too", "off", "over", "gone"):
        cores.array(name, "0-1")
    cores.control()
    cores.publish(facts.Deactivated, "off")
    cores.publish(facts.Finished, "over")
    cores.publish(facts.Deleted, "gone")
    acts = cores.arrays.arrays
    assert acts.states() == {"active": 2, "inactive": 1, "ended": 2, "unreadable": 0}
    assert (acts.unfinished(), len(cores.arrays)) == (10, 5)
    acts.set_aside("workload.ns.runs")
    assert acts.states() == {"active": 1, "inactive": 1, "ended": 2, "unreadable": 1}
    parents: list[tuple[Fact, str]] = [
        (facts.Deactivated(namespace="ns", name="runs-0"), "runs"),
        (facts.Deactivated(namespace="ns", name="runs-9"), ""),
        (facts.Submitted(namespace="ns", name="runs-too-9", workload=NO_SPEC), "runs-too"),
        (facts.Submitted(namespace="ns", name="runs-9-hash", workload=NO_SPEC), "runs"),
        (facts.Submitted(namespace="ns", name="no-9", workload=NO_SPEC), ""),
        (facts.ElementsCounted(namespace="ns", name="over"), "over"),
        (facts.ElementsCounted(namespace="ns", name="no"), ""),
    ]
    for about, name in parents:
        assert acts.parent_of(about) == (WorkloadName("ns", name) if name else None)


@pytest.mark.parametrize(
    ("steps", "known"),
    [("a", True), ("e", True), ("ea", True), ("ae -e", True), ("ae -a", True),
     ("e -e", False), ("a -a", False), ("ae -a -e", False), ("ae -e -a", False),
     ("ae oe -a", False), ("ae -a oe", False), ("a oa", False),
     ("me -e", True), ("me -e -m", False)],
)  # fmt: skip
def test_an_array_is_known_while_it_or_an_element_exists(steps: str, known: bool) -> None:
    """``a``, ``e``: the array and its element are stored, ``-``: deleted, ``o``: ordinary now;
    ``m``: an element of an earlier array with the name."""
    cores = ArrayCores()
    cores.array(indexes="0-1")
    cores.control()
    keys = {"a": "workload.ns.a", "e": "workload.ns.a-0", "m": "workload.ns.a-1"}
    earlier = cores.stored("a-1")
    owner = replace(earlier.metadata.owner_references[0], uid="before")
    earlier = replace(earlier, metadata=replace(earlier.metadata, owner_references=(owner,)))
    values = {"a": cores.stored("a"), "e": cores.stored("a-0"), "m": earlier}
    acts, does = ArrayActs(), ""
    for step in steps.replace(" ", ""):
        if step in "-o":
            does = step
            continue
        if does == "o":
            acts.ordinary(keys[step])
        else:
            acts.apply(keys[step], None if does else values[step], 5, NOON)
        does = ""
    about = facts.ElementsCounted(namespace="ns", name="a")
    assert (acts.parent_of(about) is not None) is known


def test_a_name_is_free_taken_or_soon_free() -> None:
    cores = ArrayCores()
    cores.array(indexes="0-1")
    cores.submit("plain", "q")
    cores.control()
    acts = ArrayActs()
    earlier = cores.stored("a-1")
    owner = replace(earlier.metadata.owner_references[0], uid="before")
    earlier = replace(earlier, metadata=replace(earlier.metadata, owner_references=(owner,)))
    acts.ordinary("workload.ns.other")
    for name, value in (
        ("plain", cores.stored("plain")),
        ("a-0", cores.stored("a-0")),
        ("a-1", earlier),
    ):
        acts.apply(f"workload.ns.{name}", value, 5, NOON)
    names = ("none", "other", "plain", "a-0", "a-1")
    assert [acts._taken("ns", name) for name in names] == [False, True, True, None, None]
    acts.apply("workload.ns.a", cores.stored("a"), 5, NOON)
    assert [acts._taken("ns", name) for name in names] == [False, True, True, True, None]


def test_an_array_with_broken_counts_blocks_no_other() -> None:
    cores = ArrayCores()
    cores.array(indexes="0-1")
    cores.array("b", indexes="0-1")
    short = replace(cores.stored("a"), status=WorkloadStatus(array=ArrayStatus(results="")))
    errors: list[ObjectError] = []
    acts, careful = ArrayActs(), ArrayActs(errors=errors)
    for each in (acts, careful):
        each.apply("workload.ns.a", short, 5, NOON)
        each.apply("workload.ns.b", cores.stored("b"), 5, NOON)
    assert [fact.name for fact in careful.orders(NOON)] == ["b-0", "b-1"]
    assert [name.name for name in careful.unreadable] == ["a"]
    assert careful.states()["unreadable"] == 1
    assert [error.about for error in errors] == ["array ns/a"]
    with pytest.raises(IndexError):
        acts.orders(NOON)
