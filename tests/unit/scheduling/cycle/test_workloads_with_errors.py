"""A workload for which the scheduler raises an exception by a bug is set aside with the reason, and
all others get their decisions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import pytest

from admittance.events.facts import Revoked
from admittance.object_errors import ObjectError
from admittance.scheduling.cycle import cycle, nominate, recheck, refusals
from admittance.scheduling.cycle.nominate import Search
from admittance.scheduling.cycle.process import EntryProcessor
from admittance.scheduling.preemption import quota_reduction
from admittance.scheduling.scheduler import Scheduler
from admittance.scheduling.state.object_errors import Suspect
from admittance.scheduling.state.workload_view import Inadmissible
from admittance.workload.stored import StoredWorkload
from support.cores.stepped_scheduler import SteppedScheduler, groups

Step = Callable[..., Any]


def raising(step: Step, name: str = "bad") -> Step:
    """The step; for the workload it raises a KeyError after it has done its work."""

    def broken(*args: Any, **options: Any) -> Any:
        result = step(*args, **options)
        if any(name_of(argument) == name for argument in args):
            raise KeyError("a bug")
        return result

    return broken


def name_of(value: Any) -> str:
    workload = getattr(value, "workload", value)
    key = getattr(workload, "key", ("", ""))
    return str(key[1])


def scheduler(cpu: str = "3", **spec: Any) -> tuple[SteppedScheduler, list[ObjectError]]:
    """A scheduler that records errors, and its list of errors."""
    errors: list[ObjectError] = []
    stepped = SteppedScheduler()
    stepped.core = Scheduler(errors=errors)
    stepped.flavor("default")
    stepped.queue("cq", resourceGroups=groups(default=cpu), **spec)
    return stepped, errors


def used(scheduler: SteppedScheduler) -> int:
    return scheduler.core.catalog.tree.queues["cq"].cell(("default", "cpu")).usage // 1000


def settled(scheduler: SteppedScheduler) -> list[str]:
    return [name for _ in range(6) for name in scheduler.cycle()]


@pytest.mark.parametrize(
    ("module", "step", "what"),
    [
        pytest.param(cycle, "nomination_of", "nominate", id="when it is nominated"),
        pytest.param(EntryProcessor, "process", "try", id="when it is tried"),
    ],
)
def test_a_workload_with_an_error_is_set_aside_and_others_continue(
    monkeypatch: pytest.MonkeyPatch, module: Any, step: str, what: str
) -> None:
    monkeypatch.setattr(module, step, raising(getattr(module, step)))
    stepped, errors = scheduler()
    for age, name in enumerate(("c", "bad", "a")):
        stepped.submit(name, "cq", age=age)
    assert settled(stepped) == ["a", "c"]
    assert [(error.step, error.about) for error in errors] == [(what, "workload ns/bad")]
    assert used(stepped) == 2
    explained = stepped.core.explain("ns", "bad", now=stepped.now)
    assert (explained.reason, f"cannot {what} this workload: KeyError" in explained.message) == (
        "InternalError",
        True,
    )
    # A flush does not try it again, but a change of the workload does.
    stepped.core.flush("cq")
    assert (settled(stepped), len(errors)) == ([], 1)
    monkeypatch.undo()
    stepped.respec("bad", priority=1)
    assert settled(stepped) == ["bad"]


def test_usage_that_a_failed_search_removed_is_charged_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stepped, errors = scheduler(cpu="2", preemption={"withinClusterQueue": "LowerPriority"})
    stepped.submit("low", "cq", cpu="2", priority=1)
    assert settled(stepped) == ["low"]

    def search(self: Search, *_: Any) -> Any:
        stepped.core.catalog.tree.queues["cq"].cell(("default", "cpu")).charge(-2000)
        raise KeyError("a bug")

    monkeypatch.setattr(Search, "victims", search)
    stepped.submit("bad", "cq", priority=9)
    stepped.submit("other", "cq", priority=1)
    assert (settled(stepped), len(errors), used(stepped)) == ([], 2, 2)


@pytest.mark.parametrize(
    ("module", "step", "what"),
    [
        pytest.param(cycle, "_carry_out", "decide about", id="a decision"),
        pytest.param(recheck, "_confirmed", "recheck", id="a confirmation"),
        pytest.param(refusals, "_scan", "refuse", id="a refusal"),
    ],
)
def test_a_step_that_may_leave_a_wrong_state_names_its_suspect(
    monkeypatch: pytest.MonkeyPatch, module: Any, step: str, what: str
) -> None:
    stepped, errors = scheduler()
    stepped.admits = False
    stepped.submit("bad", "cq", cpu="9" if what == "refuse" else "1")
    monkeypatch.setattr(module, step, raising(getattr(module, step)))
    with pytest.raises(Suspect) as caught:
        for _ in range(2):
            stepped.cycle()
        stepped.core.refusals(now=stepped.now + timedelta(seconds=2))
    assert caught.value.error[:2] == (what, "workload ns/bad")
    assert errors == []


def test_a_suspect_is_not_tried_by_the_next_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cycle, "_carry_out", raising(cycle._carry_out))
    stepped, errors = scheduler()
    stepped.submit("bad", "cq")
    with pytest.raises(Suspect) as caught:
        stepped.cycle()
    after = SteppedScheduler()
    after.core = Scheduler(errors=errors, suspects={caught.value.uid: caught.value.problem})
    after.flavor("default")
    after.queue("cq", resourceGroups=groups(default="3"))
    after.submit("bad", "cq")
    after.submit("good", "cq")
    assert (settled(after), errors) == (["good"], [])
    assert after.core.explain("ns", "bad", now=after.now).reason == "InternalError"


@pytest.mark.parametrize(
    ("step", "offered"),
    [
        pytest.param("_exceeds", "default", id="the search"),
        pytest.param("_revocation", "default", id="the reason"),
        pytest.param("flavors_not_offered", "other", id="a flavor that is gone"),
    ],
)
def test_a_search_after_a_quota_cut_names_its_suspect_and_passes_over_it(
    monkeypatch: pytest.MonkeyPatch, step: str, offered: str
) -> None:
    stepped, errors = checked()
    stored = dict(stepped.stored)
    monkeypatch.setattr(quota_reduction, step, raising(getattr(quota_reduction, step)))
    stepped.queue("cq", resourceGroups=groups(**{offered: "0"}), admissionChecks=["c"])
    with pytest.raises(Suspect) as caught:
        stepped.core.cycle(now=stepped.now)
    assert caught.value.error[:2] == ("revoke", "workload ns/bad")

    after = checked(stored, {caught.value.uid: caught.value.problem})[0]
    after.queue("cq", resourceGroups=groups(**{offered: "0"}), admissionChecks=["c"])
    decided = after.core.cycle(now=after.now)
    assert [(type(decision), decision.name) for decision in decided] == [(Revoked, "good")]
    assert errors == []


def checked(
    stored: Mapping[str, StoredWorkload] = {}, suspects: Mapping[str, Inadmissible] = {}
) -> tuple[SteppedScheduler, list[ObjectError]]:
    """A scheduler with two reservations that wait for a check: of the stored workloads, or new."""
    errors: list[ObjectError] = []
    stepped = SteppedScheduler()
    stepped.core = Scheduler(errors=errors, suspects=suspects)
    stepped.admits = False
    for flavor in ("default", "other"):
        stepped.flavor(flavor)
    stepped.put("AdmissionCheck", "c", {"controllerName": "example.com/c"})
    stepped.queue("cq", resourceGroups=groups(default="2"), admissionChecks=["c"])
    for name, workload in stored.items():
        stepped.restore(name, workload)
    for name in () if stored else ("bad", "good"):
        stepped.submit(name, "cq")
    settled(stepped)
    return stepped, errors


def test_without_a_list_of_errors_the_exception_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests of the cores see every bug."""
    monkeypatch.setattr(cycle, "nomination_of", raising(nominate.nomination_of))
    stepped = SteppedScheduler()
    stepped.queue("cq", resourceGroups=groups(default="3"))
    stepped.submit("bad", "cq")
    with pytest.raises(KeyError, match="a bug"):
        stepped.cycle()
