"""A fact that raises an exception by a bug becomes a dead letter, and all others are applied."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from admittance.control import batch, fold
from admittance.control.commit import Commit, LogMessage
from admittance.control.controller import Controller
from admittance.control.user_requests import intake
from admittance.control.workloads import BatchFamilies
from admittance.events import facts
from admittance.events.codec import encode
from admittance.events.subjects import applied_subject, subject_of
from admittance.events.system import ObjectApplied
from admittance.object_errors import ObjectError
from admittance.replay.log_messages import log_message
from admittance.workload import stored
from admittance.workload.change import Change, applied
from admittance.workload.stored import StoredWorkload
from support.builders import NOON, a_manifest


def submitted(sequence: int, name: str) -> LogMessage:
    manifest = a_manifest(name=name)
    fact = facts.Submitted(
        namespace="ns", name=name, workload=msgspec.Raw(msgspec.json.encode(manifest))
    )
    return log_message(sequence, subject_of(fact), encode(fact), {}, NOON)


def folded(*names: str) -> tuple[Commit, list[ObjectError]]:
    errors: list[ObjectError] = []
    messages = [submitted(number, name) for number, name in enumerate(names, 1)]
    return batch.fold(Controller(b"secret"), messages, NOON, errors), errors


def breaks_for_bad(monkeypatch: pytest.MonkeyPatch, module: Any, function: str) -> list[str]:
    """Makes the function raise an AssertionError for the workload ``bad``; the names it saw."""
    works = getattr(module, function)
    seen: list[str] = []

    def broken(*args: Any, **kwargs: Any) -> Any:
        name = next(argument for argument in map(name_of, args) if argument)
        seen.append(name)
        assert not name.startswith("bad"), "a bug"
        return works(*args, **kwargs)

    monkeypatch.setattr(module, function, broken)
    return seen


def name_of(value: Any) -> str:
    metadata = getattr(value, "metadata", None)
    name = getattr(value, "name", "") or getattr(metadata, "name", "")
    return name if isinstance(name, str) else ""


@pytest.mark.parametrize(
    ("module", "function"),
    [
        pytest.param(intake, "validate_submission", id="before anything of it is folded"),
        pytest.param(fold, "single_transition", id="in the transition"),
        pytest.param(stored, "encode", id="when the whole commit is made"),
        pytest.param(fold, "first_traceparent", id="after a part of it is folded"),
    ],
)
def test_a_fact_that_raises_is_set_aside_and_all_others_are_applied(
    monkeypatch: pytest.MonkeyPatch, module: Any, function: str
) -> None:
    if function == "first_traceparent":
        monkeypatch.setattr(fold, "BatchFamilies", FamiliesThatBreak)
    else:
        breaks_for_bad(monkeypatch, module, function)
    commit, errors = folded("a", "bad", "z")
    assert [put.key for put in commit.puts] == ["workload.ns.a", "workload.ns.z"]
    [letter] = commit.dead
    assert (letter.logged.sequence, "AssertionError: a bug" in letter.reason) == (2, True)
    assert (commit.outcomes[2].outcome, commit.outcomes[2].reason) == (
        "dead-lettered",
        "LeadsToNothing",
    )
    [error] = errors
    assert error.about == "fact 2 admit.workload.submitted.ns.bad"
    assert (commit.through, commit.rest) == (3, [])


def test_a_change_that_raises_for_several_workloads_is_set_aside_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    controller = Controller(b"secret")
    commit, _ = folded("bad-1", "bad-2", "good")
    for put in commit.puts:
        controller.load(put.key, put.value, 7, {})

    def breaks(workload: StoredWorkload, *_: Any) -> Change:
        if workload.metadata.name.startswith("bad"):
            raise RuntimeError("a bug")
        return applied(workload)

    monkeypatch.setattr(fold, "single_transition", breaks)
    changed = ObjectApplied(kind="LocalQueue", namespace="ns", name="lq", revision=8)
    subject = applied_subject("localqueue", "ns", "lq")
    message = log_message(9, subject, msgspec.json.encode(changed), {}, NOON)
    commit = batch.fold(controller, [message], NOON)
    [letter] = commit.dead
    assert letter.reason == ("it cannot be applied to workload.ns.bad-1: RuntimeError: a bug")
    assert [error.about for error in controller.errors] == [
        "workload.ns.bad-1",
        "workload.ns.bad-2",
    ]
    assert [put.key for put in commit.puts] == ["workload.ns.good"]


class FamiliesThatBreak(BatchFamilies):
    """Raises an exception when the workload is folded already."""

    def note(self, key: str, before: Any, after: Any) -> None:
        assert not key.endswith("bad"), "a bug"
        super().note(key, before, after)


def test_facts_that_raise_cost_no_more_than_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that is folded again for each would take a thousand times as long."""
    seen = breaks_for_bad(monkeypatch, fold, "single_transition")
    commit, errors = folded(*(f"bad-{number}" for number in range(100)), "good")
    assert [put.key for put in commit.puts] == ["workload.ns.good"]
    assert (len(commit.dead), len(errors), len(seen)) == (100, 100, 101)


def test_without_a_list_of_errors_the_exception_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests of the cores see every bug."""
    for module, function in ((fold, "single_transition"), (stored, "encode")):
        with monkeypatch.context() as patch:
            breaks_for_bad(patch, module, function)
            with pytest.raises(AssertionError, match="a bug"):
                batch.fold(Controller(b"secret"), [submitted(1, "bad")], NOON)


def test_an_entry_of_the_bucket_that_raises_when_loaded_counts_as_unreadable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    controller = Controller(b"secret")
    commit, _ = folded("a", "bad")
    monkeypatch.setattr(controller.workloads, "load", loads_no_bad(controller))
    for put in commit.puts:
        controller.load(put.key, put.value, 7, {})
    assert controller.workloads.get("workload.ns.a").workload is not None
    assert list(controller.unreadable) == ["workload.ns.bad"]
    assert [error.about for error in controller.errors] == ["workload.ns.bad"]


def loads_no_bad(controller: Controller) -> Any:
    load = controller.workloads.load

    def broken(key: str, known: Any) -> None:
        assert not key.endswith("bad"), "a bug"
        load(key, known)

    return broken


def test_a_workload_keeps_the_trace_of_its_submission() -> None:
    first, later = (f"00-{digit * 32}-{digit * 16}-01" for digit in "12")
    held = facts.Held(namespace="ns", name="a")
    messages = [
        submitted(1, "a")._replace(trace=first),
        log_message(2, subject_of(held), encode(held), {}, NOON)._replace(trace=later),
    ]
    commit = batch.fold(Controller(b"secret"), messages, NOON, [])
    assert [(put.key, put.trace) for put in commit.puts] == [("workload.ns.a", first)]
