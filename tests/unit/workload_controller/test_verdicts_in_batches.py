"""Verdicts as they come from the log: an invalid one does not affect the others."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from admittance.control.batch import fold
from admittance.control.commit import LogMessage
from admittance.events import facts
from admittance.events.codec import encode
from admittance.events.subjects import subject_of
from admittance.replay.log_messages import log_message
from support.builders import NOON
from support.cores.configured_system import NS
from support.cores.stepped_cores import SteppedCores
from support.cores.stepped_scheduler import groups

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


def a_town() -> SteppedCores:
    cores = SteppedCores()
    cores.check("c")
    cores.queue("cq", resourceGroups=groups(default="9"), admissionChecks=["c"])
    for name in ("a", "b", "z"):
        cores.submit(name, "cq", "1")
    cores.settle()
    return cores


def a_report(cores: SteppedCores, name: str, **fields: Any) -> LogMessage:
    cores.sequence += 1
    payload = {"namespace": NS, "name": name, "check": "c", "cycle": 0, "state": "Ready", **fields}
    about = facts.CheckReported(
        namespace=NS, name=name, controller="ctl-c", check="c", cycle=0, state="Ready"
    )
    return log_message(cores.sequence, subject_of(about), msgspec.json.encode(payload), {}, NOON)


@pytest.mark.scenario("A23")
@pytest.mark.parametrize("what", sorted(NONSENSE))
def test_an_invalid_verdict_is_answered_and_the_others_count(what: str) -> None:
    cores = a_town()
    before = encode(cores.stored("b"))
    batch = [
        a_report(cores, "a"),
        a_report(cores, "b", **NONSENSE[what]),
        log_message(cores.sequence + 1, "admit.check.reported.ctl-c.ns.b", b"\xff{", {}, NOON),
        a_report(cores, "z"),
    ]
    batch[3] = batch[3]._replace(sequence=batch[2].sequence + 1)
    moved: set[str] = set()
    answered: set[int] = set()
    while batch:
        commit = fold(cores.controller, batch, cores.now)
        for put in commit.puts:
            moved.add(put.key.rpartition(".")[2])
            cores.revision += 1
            cores.controller.committed(put, cores.revision, cores.now)
        answered |= set(commit.outcomes)
        batch = commit.rest
    assert moved == {"a", "z"}
    assert answered == {cores.sequence - 1, cores.sequence}
    assert encode(cores.stored("b")) == before


def test_the_subject_names_the_controller_of_a_verdict_without_one() -> None:
    cores = a_town()
    commit = fold(cores.controller, [a_report(cores, "a")], cores.now)
    (put,) = commit.puts
    assert put.workload is not None
    assert put.workload.status.admission_checks[0].state == "Ready"
