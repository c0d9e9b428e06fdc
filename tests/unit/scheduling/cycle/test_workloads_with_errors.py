"""A workload for which the scheduler raises an exception by a bug is set aside with the reason, and
all others get their decisions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import pytest

from admittance.events.facts import Revoked
from admittance.events.object_errors import ObjectError
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
        found = step(*args, **options)
        if any(name_of(argument) == name for argument in args):
            raise KeyError("a bug")
        return found

    return broken


def name_of(value: Any) -> str:
    workload = getattr(value, "workload", value)
    key = getattr(workload, "key", ("", ""))
    return str(key[1])


def scheduler(cpu: str = "3", **spec: Any) -> tuple[SteppedScheduler, list[ObjectError]]:
    """A scheduler that records errors, and its list of errors."""
    errors: list[ObjectError] = []
    found = SteppedScheduler()
    found.core = Scheduler(errors=errors)
    found.flavor("default")
    found.queue("cq", resourceGroups=groups(default=cpu), **spec)
    return found, errors


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
def test_a_workload_with_an_error_is_set_aside_and_others_go_on(
    monkeypatch: pytest.MonkeyPatch, module: Any, step: str, what: str
) -> None:
    monkeypatch.setattr(module, step, raising(getattr(module, step)))
    one, errors = scheduler()
    for age, name in enumerate(("c", "bad", "a")):
        one.submit(name, "cq", age=age)
    assert settled(one) == ["a", "c"]
    assert [(error.step, error.about) for error in errors] == [(what, "workload ns/bad")]
    assert used(one) == 2
    found = one.core.explain("ns", "bad", now=one.now)
    assert (found.reason, f"cannot {what} this workload: KeyError" in found.message) == (
        "InternalError",
        True,
    )
    # A flush does not try it again, but a change of the workload does.
    one.core.flush("cq")
    assert (settled(one), len(errors)) == ([], 1)
    monkeypatch.undo()
    one.respec("bad", priority=1)
    assert settled(one) == ["bad"]


def test_usage_that_a_failed_search_removed_is_charged_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, errors = scheduler(cpu="2", preemption={"withinClusterQueue": "LowerPriority"})
    one.submit("low", "cq", cpu="2", priority=1)
    assert settled(one) == ["low"]

    def search(self: Search, *_: Any) -> Any:
        one.core.catalog.tree.queues["cq"].cell(("default", "cpu")).charge(-2000)
        raise KeyError("a bug")

    monkeypatch.setattr(Search, "victims", search)
    one.submit("bad", "cq", priority=9)
    one.submit("other", "cq", priority=1)
    assert (settled(one), len(errors), used(one)) == ([], 2, 2)


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
    one, errors = scheduler()
    one.admits = False
    one.submit("bad", "cq", cpu="9" if what == "refuse" else "1")
    monkeypatch.setattr(module, step, raising(getattr(module, step)))
    with pytest.raises(Suspect) as found:
        for _ in range(2):
            one.cycle()
        one.core.refusals(now=one.now + timedelta(seconds=2))
    assert found.value.error[:2] == (what, "workload ns/bad")
    assert errors == []


def test_a_suspect_is_not_tried_by_the_next_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cycle, "_carry_out", raising(cycle._carry_out))
    one, errors = scheduler()
    one.submit("bad", "cq")
    with pytest.raises(Suspect) as found:
        one.cycle()
    after = SteppedScheduler()
    after.core = Scheduler(errors=errors, suspects={found.value.uid: found.value.problem})
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
    one, errors = checked()
    stored = dict(one.stored)
    monkeypatch.setattr(quota_reduction, step, raising(getattr(quota_reduction, step)))
    one.queue("cq", resourceGroups=groups(**{offered: "0"}), admissionChecks=["c"])
    with pytest.raises(Suspect) as found:
        one.core.cycle(now=one.now)
    assert found.value.error[:2] == ("revoke", "workload ns/bad")

    after = checked(stored, {found.value.uid: found.value.problem})[0]
    after.queue("cq", resourceGroups=groups(**{offered: "0"}), admissionChecks=["c"])
    decided = after.core.cycle(now=after.now)
    assert [(type(decision), decision.name) for decision in decided] == [(Revoked, "good")]
    assert errors == []


def checked(
    stored: Mapping[str, StoredWorkload] = {}, suspects: Mapping[str, Inadmissible] = {}
) -> tuple[SteppedScheduler, list[ObjectError]]:
    """A scheduler with two reservations that wait for a check: of the stored workloads, or new."""
    errors: list[ObjectError] = []
    one = SteppedScheduler()
    one.core = Scheduler(errors=errors, suspects=suspects)
    one.admits = False
    for flavor in ("default", "other"):
        one.flavor(flavor)
    one.put("AdmissionCheck", "c", {"controllerName": "example.com/c"})
    one.queue("cq", resourceGroups=groups(default="2"), admissionChecks=["c"])
    for name, workload in stored.items():
        one.restore(name, workload)
    for name in () if stored else ("bad", "good"):
        one.submit(name, "cq")
    settled(one)
    return one, errors


def test_without_a_list_of_errors_the_exception_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests of the cores see every bug."""
    monkeypatch.setattr(cycle, "nomination_of", raising(nominate.nomination_of))
    one = SteppedScheduler()
    one.queue("cq", resourceGroups=groups(default="3"))
    one.submit("bad", "cq")
    with pytest.raises(KeyError, match="a bug"):
        one.cycle()
