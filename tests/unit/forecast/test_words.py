"""The words of a forecast, and the script of a workload."""

from __future__ import annotations

import json
from typing import Any

import pytest

from admittance.forecast.forecast import Rows
from admittance.forecast.played import QueueRules
from admittance.forecast.rows import Holding, Source
from admittance.forecast.run_times import RunTimes
from admittance.forecast.words import FROM_LIMITS, basis_of, played_words, why_not_found
from admittance.quota.tree import Tree
from admittance.scheduling.state.flavor_plan import Policy
from admittance.workload.scripts import script_of, script_of_command

ADA = Source("q", "ada", "train.py")


def known(*sources: Source) -> RunTimes:
    run_times = RunTimes()
    for source in sources:
        run_times.add(source, 1.0, 0.0)
    return run_times


def held(source: Source, namespace: str = "ns", limit: float | None = None) -> Holding:
    return Holding((namespace, "w"), source.queue, (), 0.0, source, limit)


RUNS = known(ADA, ADA, Source("q", "ada"), Source("q", "bob"), Source("r"))


@pytest.mark.parametrize(
    ("own", "holding", "words"),
    [
        pytest.param(ADA, [], "2 runs of train.py by ada", id="nothing holds quota"),
        pytest.param(
            ADA, [held(Source("q", "ada", "new.py"))], "3 runs in q by ada", id="a new script"
        ),
        pytest.param(
            ADA, [held(Source("q", "eve", "train.py"))], "4 runs in q", id="a script of others"
        ),
        pytest.param(ADA, [held(Source("r", "eve"))], "5 runs in all queues", id="another queue"),
        pytest.param(
            ADA,
            [held(ADA), held(ADA), held(Source("q", "bob"))],
            "2 runs of train.py by ada and 1 other group of runs",
            id="most workloads count",
        ),
        pytest.param(ADA, [held(ADA, "other")], "4 runs in q", id="another namespace"),
    ],
)
def test_the_basis_is_what_tells_when_quota_is_free(
    own: Source, holding: list[Holding], words: str
) -> None:
    assert basis_of(own, holding, RUNS, "q", "ns") == f"from {words}"


def test_the_basis_of_an_array_and_of_limits_alone() -> None:
    element = Source("q", "ada", "", "uid")
    assert basis_of(element, [], known(element, element), "q", "ns") == "from 2 runs of its array"
    assert basis_of(ADA, [held(ADA)], known(), "q", "ns") == FROM_LIMITS


@pytest.mark.parametrize(
    ("holding", "words"),
    [
        ([held(Source("z"))], "1 workload that holds quota has no time limit"),
        ([held(Source("z"))] * 2, "2 workloads that hold quota have no time limit"),
        ([held(Source("z"), limit=9.0)], "it does not start within 4 days"),
    ],
)
def test_an_unknown_start_says_what_would_let_it_be_known(
    holding: list[Holding], words: str
) -> None:
    found = why_not_found(holding, known())
    assert found.startswith(words)
    assert ("--time" in found) is ("limit" in words)


@pytest.mark.parametrize(
    ("command", "script"),
    [
        ("python /home/ada/train.py --epochs 3", "train.py"),
        ("uv run python -m pkg.train", "pkg.train"),
        ("./solver input.dat", "solver"),
        ("Rscript Fit.R", "Fit.R"),
        ("", ""),
    ],
)
def test_the_script_of_a_command(command: str, script: str) -> None:
    assert script_of_command(command.split()) == script


def test_the_script_of_a_command_line_of_a_shell() -> None:
    assert script_of_command(["sh", "-c", "cd x && python train.py"]) == "train.py"
    assert script_of_command(["sh", "-c", ""]) == "sh"
    assert script_of_command(["python", "-c", "import train"]) == "python"


def test_the_script_of_a_spec_is_that_of_its_first_container() -> None:
    container = {"command": ["python"], "args": ["train.py"]}
    spec = {"podSets": [{"template": {"spec": {"containers": [container]}}}]}
    assert script_of(json.dumps(spec).encode()) == "train.py"
    assert script_of(b'{"podSets": []}') == ""
    assert script_of(b'{"podSets": 5}') == ""


PREEMPTS = {"policy": Policy("LowerPriority")}


@pytest.mark.parametrize(
    ("rules", "tree", "words"),
    [
        pytest.param({}, {}, "", id="quota alone"),
        pytest.param(PREEMPTS, {}, ", with preemption", id="one"),
        pytest.param(
            {**PREEMPTS, "backfill": True},
            {"strategies": (), "migrates": True},
            ", with preemption, fair sharing and backfill, without migrations of variants",
            id="all",
        ),
    ],
)
def test_the_basis_names_what_was_played(
    rules: dict[str, Any], tree: dict[str, Any], words: str
) -> None:
    queue = QueueRules(Tree().set_queue("q", "", {}), **rules)
    assert played_words(Rows({"q": queue}, (), (), **tree)) == words
