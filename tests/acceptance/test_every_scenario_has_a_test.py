"""Every acceptance scenario of docs/spec/lifecycle.md has a test that carries its id: on the pure
cores all of them, against real services and a real nats-server one of each kind.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
SPECIFICATION = TESTS.parent / "docs" / "spec" / "lifecycle.md"


def _specified() -> Iterator[str]:
    """The ids in the first column of the tables of scenarios; a span of ids stands for each."""
    for row in re.findall(r"^\| ([A-FL]\d\S*) ", SPECIFICATION.read_text(), re.MULTILINE):
        first, _, last = row.partition("\N{EN DASH}")
        letter, start = first[0], int(first[1:])
        for number in range(start, int(last[1:] if last else start) + 1):
            yield f"{letter}{number}"


ALL = tuple(_specified())
ESSENTIAL = (
    *("A1", "A2", "A9", "B4", "B5", "L4", "L16", "L19"),
    *(f"D{number}" for number in (8, 10, 12, 14)),
    *(f"E{number}" for number in (2, 3, 4, 7, 8, 9, 10, 14)),
)
"""One of each kind: checks, preemption, checks of flavors, delays, timers, families, capacity."""
REAL = ("integration", "system", "deploy")
"""Folders of tests that start services and a server."""


def marked() -> Iterator[tuple[str, Path, str]]:
    """Id, file and test of everything that is marked with a scenario, read and not run."""
    for path in sorted(TESTS.rglob("test_*.py")):
        text = path.read_text()
        if "scenario(" not in text:
            continue
        tree = ast.parse(text)
        of_module = set(_of_module(tree))
        for node in ast.walk(tree):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            if not node.name.startswith("test_"):
                continue
            ids = {scenario for decorator in node.decorator_list for scenario in _ids(decorator)}
            for scenario in ids | of_module:
                yield scenario, path.relative_to(TESTS), node.name


def _of_module(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "pytestmark" for target in node.targets
        ):
            values = node.value.elts if isinstance(node.value, ast.List) else [node.value]
            for value in values:
                yield from _ids(value)


def _ids(mark: ast.expr) -> Iterator[str]:
    """The ids in ``@pytest.mark.scenario(…)``, or in ``@scenario(…)`` as its short name."""
    if not isinstance(mark, ast.Call) or ast.unparse(mark.func) not in (
        "scenario",
        "pytest.mark.scenario",
    ):
        return
    for argument in mark.args:
        assert isinstance(argument, ast.Constant), f"{ast.unparse(mark)}: ids are written out"
        yield str(argument.value)


@pytest.fixture(scope="module")
def marks() -> dict[str, set[str]]:
    """Id to the top folders of the tests that carry it."""
    folders: dict[str, set[str]] = {}
    for scenario, path, _ in marked():
        folders.setdefault(scenario, set()).add(path.parts[0])
    return folders


def test_the_specification_lists_each_scenario_once() -> None:
    assert len(ALL) == len(set(ALL)) > 120


def test_every_scenario_is_played_on_the_pure_cores(marks: dict[str, set[str]]) -> None:
    missing = [scenario for scenario in ALL if not marks.get(scenario, set()) - set(REAL)]
    assert missing == []


def test_the_essential_scenarios_are_played_for_real(marks: dict[str, set[str]]) -> None:
    missing = [scenario for scenario in ESSENTIAL if not marks.get(scenario, set()) & set(REAL)]
    assert missing == []


def test_no_test_carries_the_id_of_a_scenario_that_is_not_there() -> None:
    unknown = [
        (scenario, str(path), name) for scenario, path, name in marked() if scenario not in ALL
    ]
    assert unknown == []
