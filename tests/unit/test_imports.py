"""Each module can be imported first: module-level imports form no cycle."""

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_modules_do_not_import_each_other_in_a_cycle() -> None:
    paths = _modules()
    graph = {name: set(_imported(name, path, paths)) for name, path in paths.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError("import cycle: " + " -> ".join(error.args[1][::-1])) from None


def _modules() -> dict[str, Path]:
    modules = {}
    for root in (ROOT / "libs", ROOT / "services"):
        for path in root.rglob("*.py"):
            parts = path.relative_to(root).with_suffix("").parts
            modules[".".join(parts).removesuffix(".__init__")] = path
    assert len(modules) > 100
    return modules


def _imported(name: str, path: Path, modules: dict[str, Path]) -> Iterator[str]:
    """Modules of ours that importing this one imports. Imports in functions, and those for type
    checking only, run later or never. Packages above a module do not count: Python accepts that
    a package imports its own modules."""
    for node in _run_on_import(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            wanted = [alias.name for alias in node.names]
        else:
            assert node.level == 0, f"{name} imports relatively"
            wanted = [
                full if (full := f"{node.module}.{alias.name}") in modules else str(node.module)
                for alias in node.names
            ]
        yield from (
            module
            for module in wanted
            if module in modules and not f"{name}.".startswith(f"{module}.")
        )


def _run_on_import(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        elif not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from _run_on_import(child)
