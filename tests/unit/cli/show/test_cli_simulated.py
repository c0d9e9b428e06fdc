"""The output of `admit simulate`, and its errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from admittance.cli.commands.program import invoke
from admittance.cli.show import simulations as simulate
from admittance.cli.show.simulations import shown
from admittance.events.requests.manifests import Applied
from admittance.events.requests.whatif import (
    Counts,
    SimulatedState,
    SimulateReply,
    WouldBeEvicted,
    WouldStart,
    WouldWait,
)
from admittance.events.shapes import Admission, PodSetAssignment


def on(*flavors: dict[str, str], queue: str = "cq") -> Admission:
    pods = tuple(PodSetAssignment(name=f"p{n}", flavors=of) for n, of in enumerate(flavors))
    return Admission(cluster_queue=queue, pod_set_assignments=pods)


SPOT = on({"cpu": "spot"})


@pytest.mark.parametrize(
    ("admission", "said"),
    [
        pytest.param(on({"cpu": "spot", "memory": "spot"}), "spot", id="one flavor for all"),
        pytest.param(
            on({"cpu": "spot", "gpu": "a100"}), "cpu:spot,gpu:a100", id="a flavor for each resource"
        ),
        pytest.param(
            on({"cpu": "spot"}, {"cpu": "steady"}), "p0=spot p1=steady", id="one for each pod set"
        ),
        pytest.param(on({}), "-", id="nothing is asked for"),
    ],
)
def test_flavors(admission: Admission, said: str) -> None:
    assert simulate.flavors(admission) == said


STATE_CASES: dict[str, tuple[SimulatedState | None, str]] = {
    "it does not exist": (None, "is not there"),
    "it runs": (SimulatedState(phase="Running", admission=SPOT), "runs on spot"),
    "it has quota": (SimulatedState(phase="QuotaReserved", admission=SPOT), "reserves spot"),
    "it waits in a queue": (
        SimulatedState(phase="Pending", reason="WaitingForQuota", position=3),
        "waits, number 3: WaitingForQuota",
    ),
    "it waits nowhere": (SimulatedState(phase="Deactivated"), "waits: Deactivated"),
}


@pytest.mark.parametrize("case", STATE_CASES)
def test_the_state_of_a_workload_without_the_change(case: str) -> None:
    standing, said = STATE_CASES[case]
    assert simulate.standing_text(standing, gone="is not there") == said


def test_counts_come_first_and_lists_say_what_they_leave_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    start = WouldStart(
        namespace="ns", name="a", local_queue="lq", admission=SPOT, checks=("budget",), again=True
    )
    eviction = WouldBeEvicted(namespace="ns", name="b", reason="Preempted", by="ns/a", rule="R")
    wait = WouldWait(namespace="ns", name="b", reason="WaitingForQuota", message="1 short")
    reply = SimulateReply(
        results=(
            Applied(kind="Cohort", name="team", outcome="changed"),
            Applied(kind="Cohort", name="other", outcome="unchanged"),
        ),
        counts=Counts(starts=1_001, waits=1, evictions=1, gone=2, run=3, reserved=4, off=5),
        starts=(start,),
        waits=(wait,),
        evictions=(eviction,),
    )
    simulate.show(reply, wide=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:4] == [
        "cohort team would be changed",
        "1 object is unchanged",
        "1,001 would start, 1 would wait, 1 would be evicted, 2 deleted",
        "Unaffected: 3 run, 4 wait for checks, 0 wait, 5 deactivated or rejected",
    ]
    text = "\n".join(lines)
    assert "Would start (1,001)" in text
    assert "… and 1,000 more" in text
    assert "again; once ready: budget" in text
    assert "Preempted (R) by ns/a" in text


def test_no_difference_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    simulate.show(SimulateReply(counts=Counts(run=2)), wide=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines == [simulate.NO_DIFFERENCE, "Unaffected: 2 run, 0 wait"]


def test_the_json_has_every_list_and_number() -> None:
    value: dict[str, Any] = shown(SimulateReply(revision=4))
    assert value["starts"] == ()
    assert value["counts"]["evictions"] == 0
    assert value["settled"] is True


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param([], "nothing to simulate", id="no manifest, deletion or change"),
        pytest.param(["--delete", "cq"], "is not an object; write kind/name", id="no name"),
        pytest.param(["--delete", "nonsense/x"], 'no kind "nonsense"', id="an unknown kind"),
        pytest.param(["-f", "BAD"], "nominalQuota: must not be negative", id="a bad manifest"),
        pytest.param(["-f", "no-such-file"], "no-such-file", id="no such file"),
        pytest.param(["--set", "w"], "write NAME:priority=NUMBER", id="a change without a value"),
        pytest.param(["--set", "w:cpu=3"], "write NAME:priority=NUMBER", id="an unknown field"),
        pytest.param(["--set", "w:priority=x"], '"x" is not a whole number', id="no number"),
        pytest.param(
            ["--set", "w:queue=a", "--set", "w:queue=b"], "queue is set twice", id="two queues"
        ),
    ],
)
def test_wrong_input_is_refused_before_any_request(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text(
        "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ClusterQueue\nmetadata: {name: cq}\nspec:\n"
        "  resourceGroups:\n  - coveredResources: [cpu]\n    flavors:\n    - name: spot\n"
        "      resources:\n      - {name: cpu, nominalQuota: -1}\n"
    )
    typed = [str(bad) if word == "BAD" else word for word in arguments]
    # No server listens there: a request would fail with another status.
    assert invoke(["--nats", "nats://127.0.0.1:1", "simulate", *typed]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert said in printed.err
    if "BAD" in arguments:
        assert f"{bad}: document 1 (ClusterQueue cq): spec.resourceGroups[0]" in printed.err
