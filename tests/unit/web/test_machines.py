"""The page of machines: devices as cells, what is used, states, actions, what lacks room."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from admittance.api.meta import Condition, ObjectMeta, Taint
from admittance.api.runners import Runner, RunnerDevice, RunnerDrain, RunnerSpec, RunnerStatus
from admittance.client.calls import Login
from admittance.events.requests.machines import LackingRow, MachinesReply, MachineState
from admittance.events.stored.machines import OpenRun
from admittance.web.views.frame import menu_of
from admittance.web.views.system.machines import MachineRow, MachinesView, actions, build
from support.printed_actions import arguments_of_call, parameters_of_command

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
GPU = "nvidia.com/gpu"
ADMIN = Login("root", "admin")
OPEN = RunnerSpec()
DRAINED = RunnerSpec(drain=RunnerDrain(reason="a new fan"))
EMPTIES = RunnerSpec(drain=RunnerDrain(deadline=NOW + timedelta(hours=1)))


def device(index: int, slices: int = 1) -> RunnerDevice:
    return RunnerDevice(resource=GPU, index=index, id=f"GPU-{index}", slices=slices)


def runner(name: str = "gpu-1", spec: RunnerSpec = OPEN, **status: Any) -> Runner:
    given = {"capacity": {"cpu": "4", "memory": "1Gi", GPU: "2"}, "devices": (device(0),), **status}
    return Runner(metadata=ObjectMeta(name=name), spec=spec, status=RunnerStatus(**given))


def run(name: str = "w", *ids: str, **given: Any) -> OpenRun:
    return OpenRun(namespace="ns", name=name, revision=1, devices={GPU: ids}, **given)


def view(
    runners: list[Runner], *states: MachineState, login: Login = ADMIN, **reply: Any
) -> MachinesView:
    return build(runners, MachinesReply(machines=states, **reply), login, NOW)


def row(machine: Runner, *runs: OpenRun, ready: bool = True, **state: Any) -> MachineRow:
    says = MachineState(runner=machine.metadata.name, ready=ready, runs=runs, **state)
    return view([machine], says).rows[0]


@pytest.mark.parametrize(
    ("machine", "runs", "state", "word", "of"),
    [
        pytest.param(runner(), (), "free", "free", [], id="nothing has it"),
        pytest.param(runner(), (run("w", "GPU-0"),), "taken", "taken", ["w"], id="a workload"),
        pytest.param(
            runner(devices=(device(0, 4),)),
            (run("v", "GPU-0::1"), run("w", "GPU-0::0", "GPU-0::2")),
            "part",
            "3 of 4",
            ["v", "w"],
            id="some of its shares are free",
        ),
        pytest.param(
            runner(devices=(device(0, 2),)),
            (run("w", "GPU-0::0", "GPU-0::1"),),
            "taken",
            "2 of 2",
            ["w"],
            id="no share is free",
        ),
        pytest.param(runner(spec=DRAINED), (), "closed", "drained", [], id="drained and empty"),
        pytest.param(
            runner(spec=RunnerSpec(unschedulable=True)), (), "closed", "cordoned", [], id="cordoned"
        ),
        pytest.param(
            runner(spec=DRAINED), (run("w", "GPU-0"),), "taken", "taken", ["w"], id="drained, held"
        ),
        pytest.param(
            runner(devices=()),
            (run("w", "GPU-9"),),
            "lost",
            "gone from the machine",
            ["w"],
            id="the machine has lost it",
        ),
    ],
)
def test_a_device_is_a_cell_with_the_workloads_that_have_it(
    machine: Runner, runs: tuple[OpenRun, ...], state: str, word: str, of: list[str]
) -> None:
    [cell] = row(machine, *runs).devices
    assert (cell.state, cell.word, [link.text for link in cell.of]) == (state, word, of)
    assert all(link.href == f"/workloads/ns/{link.text}" for link in cell.of)


@pytest.mark.parametrize(
    ("spec", "ready", "runs", "word", "note"),
    [
        (RunnerSpec(), True, (), "Ready", ""),
        (RunnerSpec(), False, (), "Not seen", "Its runner does not say that it is alive."),
        (DRAINED, False, (), "Not seen", "It is drained: a new fan."),
        (DRAINED, True, (run(),), "Drained", "Jobs may end by themselves."),
        (EMPTIES, True, (run(),), "Draining", "Jobs are evicted at 13:00."),
        (EMPTIES, True, (), "Drained", "It is drained."),
        (RunnerSpec(unschedulable=True), True, (), "Cordoned", "It is cordoned."),
    ],
)
def test_a_machine_has_a_state_with_its_reason(
    spec: RunnerSpec, ready: bool, runs: tuple[OpenRun, ...], word: str, note: str
) -> None:
    shown = row(runner(spec=spec), *runs, ready=ready)
    assert shown.word.text == word
    assert note in shown.notes if note else not shown.notes


def test_cpu_memory_and_what_has_no_devices_are_bars() -> None:
    machine = runner(capacity={"cpu": "4", "memory": "1Gi", GPU: "1", "licence": "2"})
    gauges = row(machine, in_use={"cpu": 1500, "memory": 2**31, GPU: 1}).gauges
    assert [(gauge.text, gauge.used, gauge.over) for gauge in gauges] == [
        ("1.5 of 4 cpu", 37.5, False),
        ("2Gi of 1Gi memory", 100, True),
        ("0 of 2 licence", 0, False),
    ]


def test_runs_come_by_name_and_the_rest_is_counted() -> None:
    runs = [run(f"w{n:02}", requests={"cpu": 1000}) for n in reversed(range(11))]
    rest = OpenRun(namespace="", name="", revision=0)
    shown = row(runner(), rest, *runs, run("held", held=True))
    assert (shown.runs[0].name, shown.runs[0].held, shown.runs_more) == ("held", True, 3)
    assert shown.runs[1].asks == "1 cpu"
    [alone] = row(runner(), rest).runs
    assert (alone.name, alone.link) == ("all other runs", None)


def test_labels_taints_and_what_a_machine_cannot_do_are_shown() -> None:
    machine = Runner(
        metadata=ObjectMeta(name="m", labels={"zone": "b"}),
        spec=RunnerSpec(
            drain=RunnerDrain(reason="prolog failed"),
            taints=(Taint(key="gpu", value="yes", effect="NoSchedule"), Taint(key="x", effect="y")),
        ),
        status=RunnerStatus(
            messages=("cannot limit memory",),
            conditions=(
                Condition(type="NameConflict", status="True", message="two have the name"),
                Condition(type="HooksFailed", status="True", message="prolog failed"),
            ),
        ),
    )
    shown = row(machine)
    assert (shown.labels, shown.taints) == (("zone=b",), ("gpu=yes:NoSchedule", "x:y"))
    assert shown.notes == (
        "It is drained: prolog failed.",
        "Jobs may end by themselves.",
        "Two have the name.",
        "Cannot limit memory.",
    )


def test_the_sentence_counts_machines_and_workloads_without_room() -> None:
    alive = MachineState(runner="a", ready=True)
    waits = LackingRow(
        namespace="ns", name="w", priority=3, since=NOW - timedelta(minutes=4), message="1 short"
    )
    shown = view([runner("b"), runner("a")], alive, lacking=(waits,), lacking_total=2)
    assert [each.name for each in shown.rows] == ["a", "b"]
    assert shown.title == "2 machines, 2 lack room"
    assert shown.say == "1 of 2 machines takes jobs; 1 is not seen. 2 workloads lack room."
    [lacking] = shown.lacking
    assert (lacking.link.href, lacking.priority) == ("/workloads/ns/w", "3")
    assert (lacking.waiting, lacking.misses, shown.lacking_more) == ("4 min", "1 short.", 1)
    assert view([runner("a")], alive).say == "1 of 1 machine takes jobs. No workload lacks room."
    assert view([]).say == "There is no machine yet: start a runner."


def test_without_placement_it_is_said_that_what_runs_is_unknown() -> None:
    shown = build([runner()], None, ADMIN, NOW, unknown="placement does not answer")
    assert shown.say == "1 machine; it is not known what runs there."
    assert (shown.unknown, shown.rows[0].word.text) == ("placement does not answer", "Unknown")
    assert [gauge.text for gauge in shown.rows[0].gauges] == ["4 cpu", "1Gi memory"]
    assert [cell.word for cell in shown.rows[0].devices] == ["unknown"]


def test_many_machines_are_on_several_pages() -> None:
    many = [runner(f"m{n:04}") for n in range(250)]
    shown = build(many, MachinesReply(), ADMIN, NOW, skip=100)
    assert (shown.rows[0].name, len(shown.rows)) == ("m0100", 100)
    assert shown.earlier is not None and shown.later is not None
    assert (shown.earlier.href, shown.later.href) == ("/machines", "/machines?skip=200")


@pytest.mark.parametrize(
    ("spec", "role", "expected"),
    [
        (RunnerSpec(), "admin", ["cordon", "drain"]),
        (RunnerSpec(), "", ["cordon", "drain"]),
        (RunnerSpec(unschedulable=True), "admin", ["uncordon", "drain"]),
        (DRAINED, "admin", ["cordon", "undrain"]),
        (RunnerSpec(), "viewer", []),
    ],
)
def test_a_machine_has_the_actions_of_its_state_and_of_the_role(
    spec: RunnerSpec, role: str, expected: list[str]
) -> None:
    asks = actions(runner("a b", spec), Login("ada", role))
    assert [ask.verb for ask in asks] == expected
    assert all(bool(ask.confirm) == (ask.verb in ("cordon", "drain")) for ask in asks)
    for ask in asks:
        assert parameters_of_command(ask)["name"] == "a b"
        assert arguments_of_call(ask)["runner"] == "a b"
        if ask.field:
            assert parameters_of_command(ask)["reason"] == arguments_of_call(ask)["reason"] == "7"


def test_the_menu_leads_only_where_the_role_may_look() -> None:
    assert "Machines" in [place.text for place in menu_of("viewer")]
    assert "Machines" not in [place.text for place in menu_of("user")]
