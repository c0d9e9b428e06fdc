"""`admit replay` plays every good file and reports each bad one."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from admittance.cli.support.options import Call
from admittance.cli.system import replay
from admittance.cli.system.replay_decision import show
from admittance.events.requests.replays import ReplayInputs, ReplayReply
from support.processes.in_process import Admit


def put(folder: Path, name: str, **more: Any) -> str:
    """A scenario without any object, in a file."""
    file = folder / f"{name}.json.gz"
    scenario = {"name": name, "objects": [], "steps": [{"settle": True}], **more}
    file.write_bytes(gzip.compress(json.dumps(scenario).encode()))
    return str(file)


NOTHING = {"step": 0, "cycles": 0, "workloads": {}, "usage": {}, "trace": []}


def test_each_scenario_is_one_line_in_the_order_of_the_files(
    tmp_path: Path, admit: Admit, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [put(tmp_path, name) for name in ("b", "a", "c")]
    for crowd in (3, 100):  # by several processes, and by one
        monkeypatch.setattr(replay, "PARALLEL_MIN", crowd)
        lines = admit.out("replay", *files).splitlines()
        assert [json.loads(line) for line in lines] == [
            {"name": name, "expected": [NOTHING]} for name in ("b", "a", "c")
        ]


def test_a_bad_scenario_does_not_stop_the_others(tmp_path: Path, admit: Admit) -> None:
    half = tmp_path / "half.json.gz"
    half.write_bytes(b"\x1f\x8b\x08")
    odd = put(tmp_path, "odd", steps=[{"explode": True}])
    files = [str(tmp_path / "nowhere"), str(tmp_path), str(half), odd, put(tmp_path, "good")]
    status, out, err = admit("replay", *files)
    assert status == 2
    assert [json.loads(line)["name"] for line in out.splitlines()] == ["good"]
    lines = err.splitlines()
    assert len(lines) == 4
    for line, file, why in zip(
        lines,
        files,
        (
            "No such file",
            "is a folder",
            "the gzip data of the scenario is cut off",
            "unknown step 'explode'",
        ),
        strict=False,
    ):
        assert line.startswith(f"error: {file}: ")
        assert why in line


def test_answers_are_written_to_the_chosen_folder(tmp_path: Path, admit: Admit) -> None:
    out = tmp_path / "deep" / "out"
    (tmp_path / "again").mkdir()
    files = [put(tmp_path, "a"), put(tmp_path / "again", "a")]
    outcome = admit("replay", *files, "--out", str(out))
    assert outcome.status == 2
    assert outcome.out == ""
    assert "is a scenario a, too" in outcome.err
    assert json.loads((out / "a.json").read_text()) == {"name": "a", "expected": [NOTHING]}


def test_differences_to_expected_answers_are_shown_with_check(tmp_path: Path, admit: Admit) -> None:
    wrong = {**NOTHING, "workloads": {"w": {"state": "Pending"}}}
    same, other = put(tmp_path, "same", expected=[NOTHING]), put(tmp_path, "o", expected=[wrong])
    assert len(admit.out("replay", same, other).splitlines()) == 2
    assert admit.out("replay", same, "--check") == "agree 1/1 scenarios\n"
    said = admit("replay", same, other, "--check")
    assert said.status == 1
    first, last = said.out.splitlines()
    assert first.startswith("o: step 0, workload w: expected")
    assert last == "agree 1/2 scenarios"
    assert "nothing to check" in admit.err(2, "replay", put(tmp_path, "none"), "--check")


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["replay"], id="nothing to replay"),
        pytest.param(["replay", "x.json", "--from-log", "5"], id="a scenario and a decision"),
        pytest.param(["replay", "--check", "--from-log", "5"], id="a decision to compare"),
        pytest.param(["replay", "--from-log", "0"], id="no sequence of a log"),
        pytest.param(["replay", "--from-log", "9" * 30], id="a sequence no log can reach"),
        pytest.param(["replay", "--from-log", "last"], id="no number at all"),
        pytest.param(["replay", "x", "--out", "/dev/null/x"], id="a place that cannot be"),
    ],
)
def test_wrong_arguments_of_replay_are_one_line(arguments: list[str], admit: Admit) -> None:
    assert len(admit.err(2, *arguments).splitlines()) == 1


def test_scenarios_have_one_format(admit: Admit) -> None:
    assert (
        admit.err(2, "replay", "x.json", "-o", "yaml")
        == "error: scenarios are answered in JSON: leave out -o yaml\n"
    )


def test_a_repeated_decision_is_shown_with_its_inputs_and_differences(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logged = {"namespace": "ns", "name": "w", "revision": 3, "seen": 9, "domain": "d", "time": "T"}
    reply = ReplayReply(
        sequence=12,
        kind="assigned",
        epoch=4,
        decision=logged,
        inputs=ReplayInputs(
            revisions=(9,), facts=1200, workloads=2, objects=5, turns=("ns/w",), turns_elsewhere=1
        ),
        differences=("admission: logged 1, now 2",),
    )
    show(Call(), reply)
    first, second, *others = capsys.readouterr().out.splitlines()
    assert first == "decision 12: assigned ns/w at revision 3, by epoch 4 of d, T"
    assert second.startswith('logged: {"namespace":"ns"')
    assert others == [
        "decided from: revision 9 of the bucket: workloads 2, objects 5, decisions in flight 0; "
        "rebuilt from the first fact and 1,200 facts",
        "turns: ns/w, 1 of other namespaces",
        "different: admission: logged 1, now 2",
    ]
