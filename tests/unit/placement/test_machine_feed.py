"""What the decisions of placement get of machines: each change once, and how long one is lost."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from admittance.api.runners import RunnerDrain
from admittance.control.user_requests.runner_rules import JobRefusal
from admittance.events.stored.machines import (
    ALIVE_RUNNERS,
    INVENTORIES,
    OPEN_RUNS,
    MachineFailure,
    OpenRun,
    OpenRuns,
    RunnerAlive,
    RunnerInventory,
)
from admittance.events.system import RunnerAnnouncement, RunnerStarts
from admittance.placement.machines.known_runners import KnownRunners, StoredRunner
from admittance.placement.machines.machine import Machine
from admittance.placement.machines.machine_feed import MachineFeed, older_runners
from support.builders import NOON


class RecordedCalls:
    """The calls that a listener got."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def set_machine(self, machine: Machine) -> None:
        self.calls.append(("machine", machine.id, machine.ready, machine.lost_since))

    def forget_machine(self, machine_id: str) -> None:
        self.calls.append(("forget", machine_id))

    def set_runs(self, machine_id: str, runs: Iterable[OpenRun]) -> None:
        self.calls.append(("runs", machine_id, [run.name for run in runs]))

    def taken(self) -> list[tuple[Any, ...]]:
        calls, self.calls = self.calls, []
        return calls


def announce(runners: KnownRunners, name: str, runner: str, *, alive: bool = True) -> None:
    said = RunnerInventory(id=runner, name=name, capacity={"cpu": 4000})
    runners.said(INVENTORIES, name, msgspec.json.encode(said))
    value = msgspec.json.encode(RunnerAlive(id=runner)) if alive else None
    runners.said(ALIVE_RUNNERS, name, value)
    for write in runners.writes(NOON):
        runners.set_object(write.name, StoredRunner(write.object, write.expected + 1))


def test_only_what_changed_is_passed_on_and_a_lost_runner_keeps_its_time() -> None:
    runners, listener = KnownRunners(), RecordedCalls()
    announce(runners, "r1", "one")
    announce(runners, "r2", "two", alive=False)
    feed = MachineFeed(runners, listener)
    feed.pass_on(NOON)
    assert listener.taken() == [("machine", "one", True, None), ("machine", "two", False, NOON)]
    later = NOON + timedelta(seconds=9)
    feed.touched.add("r2")
    feed.pass_on(later)
    assert listener.taken() == [("machine", "two", False, NOON)]
    feed.pass_on(later)
    assert listener.taken() == []
    run = OpenRun(namespace="ns", name="w", revision=3)
    for runner in ("two", "other"):
        runners.said(OPEN_RUNS, "r2", msgspec.json.encode(OpenRuns(id=runner, runs=(run,))))
        announce(runners, "r2", "two")
        feed.touched.add("r2")
    feed.pass_on(later)
    # The open runs of another data folder are not those of this machine.
    assert listener.taken() == [("machine", "two", True, None)]
    runners.said(OPEN_RUNS, "r2", msgspec.json.encode(OpenRuns(id="two", runs=(run,))))
    feed.touched.add("r2")
    feed.pass_on(later)
    assert listener.taken()[1:] == [("runs", "two", ["w"])]


def test_a_machine_takes_no_pods_as_long_as_its_runner_says_that_a_hook_failed() -> None:
    runners, seen = KnownRunners(), list[Machine]()
    listener: Any = RecordedCalls()
    listener.set_machine = seen.append
    announce(runners, "r1", "one")
    feed = MachineFeed(runners, listener)
    failure = MachineFailure(at=NOON, reason="PrologFailed", message="no disk")

    def passed_on() -> tuple[bool, str]:
        feed.touched.add("r1")
        feed.pass_on(NOON)
        return seen[-1].takes_pods, seen[-1].message

    def say(runner: str, failure: MachineFailure | None) -> None:
        said = RunnerInventory(id=runner, name="r1", failure=failure)
        runners.said(INVENTORIES, "r1", msgspec.json.encode(said))

    def store(drain: RunnerDrain | None) -> None:
        [write] = runners.writes(NOON)
        spec = replace(write.object.spec, drain=drain)
        runners.set_object("r1", StoredRunner(replace(write.object, spec=spec), 9))

    say("other", failure)
    assert passed_on() == (False, ""), "the runner that is alive has another data folder"
    say("one", failure)
    assert passed_on() == (False, "no disk"), "its object does not say so yet"
    [write] = runners.writes(NOON)
    assert write.object.spec.drain == RunnerDrain(reason="no disk")
    store(RunnerDrain(reason="a fan"))
    assert passed_on() == (False, "a fan"), "the reason of an admin"
    undrained = replace(write.object, spec=replace(write.object.spec, drain=None))
    runners.set_object("r1", StoredRunner(undrained, 10))
    assert passed_on() == (False, "no disk"), "an admin has ended the drain"
    store(None)
    assert passed_on() == (False, "no disk"), "the condition says so, and its runner not yet"
    say("one", None)
    assert passed_on() == (True, "")


def test_a_machine_with_a_new_data_folder_replaces_the_old_one() -> None:
    runners, listener = KnownRunners(), RecordedCalls()
    announce(runners, "r1", "one")
    feed = MachineFeed(runners, listener)
    feed.pass_on(NOON)
    listener.taken()
    announce(runners, "r1", "new")
    feed.touched.add("r1")
    feed.pass_on(NOON)
    assert listener.taken() == [("forget", "one"), ("machine", "new", True, None)]
    runners.set_object("r1", StoredRunner(None, 9))
    feed.touched.add("r1")
    feed.pass_on(NOON)
    assert listener.taken() == [("forget", "new")]


def test_runners_that_do_not_say_that_they_honour_placements_are_older() -> None:
    announced = {
        "one": RunnerAnnouncement(root="/data", placement=True),
        "old": RunnerAnnouncement(root="/srv/old"),
        "older": RunnerAnnouncement(),
    }
    assert older_runners(announced) == ["old (/srv/old)", "older"]


def test_a_refusal_says_why_a_runner_does_not_start_a_job() -> None:
    spec = b'{"podSets":[{"template":{"spec":{"containers":[{"image":"a/b"}]}}}]}'
    job = JobRefusal("ada", "ns", spec)
    assert job == JobRefusal("ada", "ns", bytes(spec))
    for starts, why in (
        (RunnerStarts(every=True), ""),
        (RunnerStarts(every=True, namespaces=("other",)), "no jobs of namespace ns"),
        (RunnerStarts(submitters=("bob",)), "no Unix user for jobs of the user ada"),
        (RunnerStarts(every=True, images=("c/*",)), "the image a/b is not allowed"),
    ):
        assert why in job(starts)
        assert bool(why) == bool(job(starts))
