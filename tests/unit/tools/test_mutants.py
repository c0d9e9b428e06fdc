"""`make mutants` names the changes of a core that no test notices, and changes a copy only."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from tools.mutants import TESTS, changed_text, changes, main, modules, mutants_of

CORE = "libs/admittance/lease.py"
SOURCE = "def is_late(age: int | None) -> bool:\n    return age is not None and age > 3\n"
TEST = """
from admittance.lease import is_late

def test_a_lease_is_late():
    assert is_late(5) and not is_late(None)
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree with one core; its test does not try the limit."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    root = tmp_path / "tree"
    for path, text in ((CORE, SOURCE), ("tests/unit/lease/test_lease.py", TEST)):
        (root / path).parent.mkdir(parents=True)
        (root / path).write_text(text)
    return root


def test_changes_that_no_test_notices_are_named(
    root: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["--at", CORE, "--jobs", "2"], root) == 1
    assert capfd.readouterr().out.splitlines() == [
        f"not noticed: {CORE}:2: age > 3  ->  age >= 3",
        f"not noticed: {CORE}:2: 3  ->  4",
        "2 of 4 changes were noticed",
    ]
    assert (root / CORE).read_text() == SOURCE


def test_tests_that_fail_without_a_change_end_the_run(root: Path) -> None:
    (root / "tests/unit/lease/test_lease.py").write_text("def test_it():\n    assert False\n")
    with pytest.raises(SystemExit, match="tests/unit/lease fails without a change"):
        main(["--count", "1", "--jobs", "1"], root)


def test_one_change_is_made_at_a_time(root: Path) -> None:
    texts = [changed_text(root, mutant) for mutant in mutants_of(root, Path(CORE))]
    assert [text.splitlines()[1].strip() for text in texts] == [
        "return age is not None or age > 3",
        "return age is None and age > 3",
        "return age is not None and age >= 3",
        "return age is not None and age > 4",
    ]


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("a < b", ["a <= b"]),
        ("not a", ["not not a"]),
        ("a if b else c", ["a if not b else c"]),
        ("min(a)", ["max(a)"]),
        ("True", ["False"]),
        ("a += 2", ["a -= 2", "3"]),
        ("if a: b", ["not a"]),
        ("a + [b]", []),
        ("f'{a - b}'", ["a + b"]),
        ("x: int | None = None", []),
        ("Key: TypeAlias = int | str", []),
        ("isinstance(a, int | str)", []),
        ("assert a == 3", []),
        ("zip(a, b, strict=True)", []),
    ],
)
def test_operators_constants_and_conditions_are_changed(text: str, changed: list[str]) -> None:
    tree = ast.parse(text)
    assert [change.partition("  ->  ")[2] for _, change in changes(tree)] == changed
    assert ast.unparse(tree) == ast.unparse(ast.parse(text))


def test_every_core_has_modules_and_tests() -> None:
    root = Path(__file__).parents[3]
    cores = {path.parts[2].removesuffix(".py") for path in modules(root)}
    assert cores == set(TESTS)
    assert [
        at for at in TESTS.values() for folder in at if not (root / "tests" / folder).exists()
    ] == []
