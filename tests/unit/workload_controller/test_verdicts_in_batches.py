"""Verdicts as they come from the log: an invalid one does not affect the others."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from admittance.control.commit import LogMessage
from admittance.control.fold import fold
from admittance.events import facts
from admittance.events.codec import encode
from admittance.events.subjects import subject_of
from admittance.workload_controller.commit_writer import log_message
from support.builders import NOON
from support.cores.scheduling_story import groups

from living import NS, Life

NONSENSE: dict[str, dict[str, Any]] = {
    "an unknown state": {"state": "Perhaps"},
    "less than no delay": {"state": "Retry", "requeueAfterSeconds": -5},
    "a delay of 33 bits": {"state": "Retry", "requeueAfterSeconds": 2**31},
    "a delay that is a word": {"state": "Retry", "requeueAfterSeconds": "soon"},
    "a delay of a thousand digits": {"state": "Retry", "requeueAfterSeconds": 10**18},
    "a pod set that is not there": {"state": "Ready", "podSetUpdates": [{"name": "other"}]},
    "labels that are none": {"podSetUpdates": [{"name": "main", "labels": {"a b": "c"}}]},
    "updates that are no list": {"state": "Ready", "podSetUpdates": {"main": 1}},
    "no state": {"state": None},
    "another controller's name": {"controller": "other", "state": "Rejected"},
}


def a_town() -> Life:
    life = Life()
    life.check("c")
    life.queue("cq", resourceGroups=groups(default="9"), admissionChecks=["c"])
    for name in ("a", "b", "z"):
        life.submit(name, "cq", "1")
    life.settle()
    return life


def a_report(life: Life, name: str, **fields: Any) -> LogMessage:
    life.sequence += 1
    payload = {"namespace": NS, "name": name, "check": "c", "cycle": 0, "state": "Ready", **fields}
    about = facts.CheckReported(
        namespace=NS, name=name, controller="ctl-c", check="c", cycle=0, state="Ready"
    )
    return log_message(life.sequence, subject_of(about), msgspec.json.encode(payload), {}, NOON)


@pytest.mark.scenario("A23")
@pytest.mark.parametrize("what", sorted(NONSENSE))
def test_an_invalid_verdict_is_answered_and_the_others_count(what: str) -> None:
    life = a_town()
    before = encode(life.stored("b"))
    batch = [
        a_report(life, "a"),
        a_report(life, "b", **NONSENSE[what]),
        log_message(life.sequence + 1, "admit.check.reported.ctl-c.ns.b", b"\xff{", {}, NOON),
        a_report(life, "z"),
    ]
    batch[3] = batch[3]._replace(sequence=batch[2].sequence + 1)
    moved: set[str] = set()
    answered: set[int] = set()
    while batch:
        commit = fold(life.controller, batch, life.now)
        for put in commit.puts:
            moved.add(put.key.rpartition(".")[2])
            life.revision += 1
            life.controller.committed(put, life.revision, life.now)
        answered |= set(commit.outcomes)
        batch = commit.rest
    assert moved == {"a", "z"}
    assert answered == {life.sequence - 1, life.sequence}
    assert encode(life.stored("b")) == before


def test_the_subject_speaks_for_a_verdict_that_names_no_controller() -> None:
    life = a_town()
    commit = fold(life.controller, [a_report(life, "a")], life.now)
    (put,) = commit.puts
    assert put.workload is not None
    assert put.workload.status.admission_checks[0].state == "Ready"
