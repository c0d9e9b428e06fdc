"""Changes one operator or constant of the pure cores at a time, and prints what no test notices.

``python -m tools.mutants [--count 60] [--seed 1] [--jobs 2] [--at PATH[:LINE]]`` takes a random
sample of the possible changes and runs the tests of the changed package. The changed module lies in
a copy of the tree in a temporary folder, so that the checkout stays as it is. Each line of the
output is a change that no test noticed: a test is missing, or the code is not needed, or both forms
mean the same. ``--at`` tries each change of one module or line instead of a sample.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
CORES: Final = Path("libs", "admittance")
RULES: Final = ("acceptance", "conformance")
"""Tests of several cores at once, which are slower than the unit tests."""
HISTORIES: Final = "unit/control/test_whole_histories.py"
TESTS: Final[Mapping[str, Sequence[str]]] = {
    "arrays": ("unit/arrays",),
    "budgets": ("unit/budgets",),
    "control": ("unit/control", "unit/workload_controller", *RULES),
    "family": ("unit/family", "unit/variants", HISTORIES, *RULES),
    "forecast": ("unit/forecast",),
    "lease": ("unit/lease",),
    "placement": (
        "unit/placement",
        "properties/test_placement_machine.py",
        "properties/test_placement_stories.py",
    ),
    "provisioning": ("unit/provisioning", "unit/provider_pool", "unit/provisioning_check", *RULES),
    "quota": ("unit/quota", "unit/scheduling", *RULES, "unit/control/manifests/test_objections.py"),
    "scheduling": ("unit/scheduling", *RULES, "unit/replay", "unit/whatif"),
    "timers": ("unit/timers", HISTORIES, "acceptance"),
    "usage": ("unit/usage",),
    "variants": ("unit/variants", "unit/family", HISTORIES, *RULES),
    "workload": (
        "unit/workload",
        "unit/control",
        "unit/arrays",
        "unit/workload_controller",
        *RULES,
    ),
}
"""For each core the folders and modules of its tests, the fastest first."""
NOT_COPIED: Final = shutil.ignore_patterns(".[a-z]*", "dist", "build", "node_modules")
PYTEST: Final = ("-x", "-p", "no:cacheprovider", "-m", "not bus")
SLOWER: Final = 5
"""A change with which the tests need so many times the CPU is noticed: it may loop without an end.
The time on the wall says nothing, because other programs may need the CPU as well."""
HANGS: Final = 3600
"""After so many seconds a test waits for something that does not happen."""
LIMITED: Final = """
import resource, sys
import pytest
limit = int(sys.argv.pop(1))
resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
sys.exit(pytest.main(sys.argv[1:]))
"""
"""Runs pytest, and ends it when it has needed more than a number of seconds of the CPU."""

OPERATORS: Final[Mapping[type[ast.AST], type[ast.AST]]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
FUNCTIONS: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}
TEXTS: Final = (ast.JoinedStr, ast.List, ast.Tuple)
"""Values that can be added, but not subtracted: such a change would always be noticed."""
CHANGED: Final = (ast.Compare, ast.BoolOp, ast.Constant, ast.UnaryOp)
"""Conditions that are not negated, because a part of them is changed."""


class Mutant(NamedTuple):
    """The change number ``number`` of a module."""

    path: Path
    number: int
    line: int
    change: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.change}"


def changes(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Makes one change of the module after another, and takes it back after each step. Yields the
    line, and the changed expression before and after."""
    for node in _nodes(tree):
        for field, old, new in _replacements(node):
            shown = _shown(node)
            _put(node, field, new)
            yield getattr(node, "lineno", 0), f"{shown}  ->  {_shown(node)}"
            _put(node, field, old)


def _nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a module, without annotations, types and assertions that never fail."""
    for field, value in ast.iter_fields(tree):
        if field in ("annotation", "returns", "decorator_list", "bases"):
            continue
        for node in value if isinstance(value, list) else [value]:
            if not isinstance(node, ast.AST) or isinstance(node, ast.Assert | ast.Import):
                continue
            if isinstance(node, ast.AnnAssign) and "TypeAlias" in ast.unparse(node.annotation):
                continue
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                continue
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "cast"):
                continue
            if isinstance(node, ast.keyword) and node.arg in ("strict", "frozen", "kw_only"):
                continue
            yield node
            yield from _nodes(node)


def _replacements(node: ast.AST) -> Iterator[tuple[str, object, object]]:
    """For each change of the node itself the name of a field, its value and another value."""
    match node:
        case ast.Compare(ops=ops):
            for at, operator in enumerate(ops):
                if type(operator) in OPERATORS:
                    yield "ops", ops, [*ops[:at], OPERATORS[type(operator)](), *ops[at + 1 :]]
        case ast.BinOp(left=left, right=right) if isinstance(left, TEXTS) or isinstance(
            right, TEXTS
        ):
            pass
        case ast.BoolOp(op=operator) | ast.BinOp(op=operator) | ast.AugAssign(op=operator):
            if type(operator) in OPERATORS:
                yield "op", operator, OPERATORS[type(operator)]()
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "operand", operand, ast.UnaryOp(ast.Not(), operand)
        case ast.Constant(value=bool(value)):
            yield "value", value, not value
        case ast.Constant(value=int(value) | float(value)):
            yield "value", value, value + 1
        case ast.Call(func=ast.Name(id=name) as called) if name in FUNCTIONS:
            yield "func", called, ast.Name(FUNCTIONS[name], called.ctx)
    if isinstance(node, ast.If | ast.IfExp | ast.While) and not isinstance(node.test, CHANGED):
        yield "test", node.test, ast.UnaryOp(ast.Not(), node.test)


def _put(node: ast.AST, field: str, value: object) -> None:
    setattr(node, field, value)


def _shown(node: ast.AST) -> str:
    """The node on one line; of a statement only its condition."""
    text = ast.unparse(node.test if isinstance(node, ast.If | ast.While) else node)
    text = " ".join(text.split())
    return text if len(text) <= 90 else f"{text[:87]}..."


def mutants_of(root: Path, path: Path) -> list[Mutant]:
    """All possible changes of the module, in the order of its text."""
    tree = ast.parse((root / path).read_text())
    numbered = enumerate(changes(tree))
    return [Mutant(path, number, line, change) for number, (line, change) in numbered]


def changed_text(root: Path, mutant: Mutant) -> str:
    """The module with the change."""
    tree = ast.parse((root / mutant.path).read_text())
    for number, _ in enumerate(changes(tree)):
        if number == mutant.number:
            return ast.unparse(tree)
    raise IndexError(f"{mutant.path} has no change number {mutant.number}")


def modules(root: Path) -> list[Path]:
    """The modules of all cores."""
    return sorted(
        path.relative_to(root)
        for core in TESTS
        for path in (
            *(root / CORES / core).rglob("*.py"),
            *(root / CORES).glob(f"{core}.py"),
        )
    )


def tests_of(path: Path) -> tuple[str, ...]:
    """The folders of the tests of a module's core."""
    core = path.relative_to(CORES).parts[0].removesuffix(".py")
    return tuple(f"tests/{folder}" for folder in TESTS[core])


class Copies:
    """Copies of the tree in a temporary folder, one for each job."""

    def __init__(self, root: Path, folder: Path, count: int) -> None:
        self._free: SimpleQueue[Path] = SimpleQueue()
        for number in range(count):
            copy = folder / str(number) / "tree"
            shutil.copytree(root, copy, ignore=NOT_COPIED, symlinks=True)
            # Some tests read data beside the repository.
            if (shared := root.parent / "shared").exists():
                (copy.parent / "shared").symlink_to(shared)
            self._free.put(copy)
        self._limits: dict[str, float] = {}

    def measure(self, folders: Iterable[str]) -> None:
        """Runs the tests of these folders without a change, and measures the CPU that they need;
        raises SystemExit if one fails."""
        copy = self._free.get()
        for folder in folders:
            before = _cpu_of_children()
            done = self._tests(copy, folder, HANGS)
            if done.returncode:
                raise SystemExit(f"{folder} fails without a change:\n{done.stdout}")
            self._limits[folder] = 20 + SLOWER * (_cpu_of_children() - before)
        self._free.put(copy)

    def notices(self, mutant: Mutant) -> bool:
        """Whether a test fails with the change."""
        copy = self._free.get()
        module = copy / mutant.path
        text = module.read_text()
        module.write_text(changed_text(copy, mutant))
        try:
            return any(self._fails(copy, folder) for folder in tests_of(mutant.path))
        finally:
            module.write_text(text)
            self._free.put(copy)

    def _fails(self, copy: Path, folder: str) -> bool:
        try:
            done = self._tests(copy, folder, self._limits[folder])
        except subprocess.TimeoutExpired:
            return True
        return done.returncode != 0

    def _tests(self, copy: Path, folder: str, limit: float) -> subprocess.CompletedProcess[str]:
        roots = os.pathsep.join(str(copy / root) for root in ("libs", "services"))
        return subprocess.run(
            [sys.executable, "-c", LIMITED, str(int(limit)), *PYTEST, folder],
            cwd=copy,
            # Without the byte code of the tests, each run would compile them again.
            env={**os.environ, "PYTHONPATH": roots, "PYTHONDONTWRITEBYTECODE": ""},
            capture_output=True,
            text=True,
            timeout=HANGS,
            check=False,
        )


def _cpu_of_children() -> float:
    """The seconds of the CPU that ended processes of this one have needed."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def chosen(root: Path, *, count: int, seed: int, at: str) -> list[Mutant]:
    """A sample of all changes, or each change of the module or line ``at``."""
    if at:
        path, _, line = at.partition(":")
        every = mutants_of(root, Path(path))
        return [mutant for mutant in every if line in ("", str(mutant.line))]
    every = [mutant for path in modules(root) for mutant in mutants_of(root, path)]
    return random.Random(seed).sample(every, min(count, len(every)))


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Tries the changes. Returns 1 if no test noticed one of them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=60, help="size of the sample")
    parser.add_argument("--seed", type=int, default=1, help="of the sample")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="changes tried at once")
    parser.add_argument("--at", default="", metavar="PATH[:LINE]", help="each change there")
    given = parser.parse_args(arguments)
    mutants = chosen(root, count=given.count, seed=given.seed, at=given.at)
    noticed = 0
    with (
        tempfile.TemporaryDirectory(prefix="admit-mutants-") as folder,
        ThreadPoolExecutor(given.jobs) as pool,
    ):
        copies = Copies(root, Path(folder), given.jobs)
        copies.measure({tests for mutant in mutants for tests in tests_of(mutant.path)})
        for mutant, is_noticed in zip(mutants, pool.map(copies.notices, mutants), strict=True):
            noticed += is_noticed
            if not is_noticed:
                sys.stdout.write(f"not noticed: {mutant}\n")
                sys.stdout.flush()
    sys.stdout.write(f"{noticed} of {len(mutants)} changes were noticed\n")
    return noticed < len(mutants)


if __name__ == "__main__":
    sys.exit(main())
