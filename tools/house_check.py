"""Checks sizes of folders and modules, cycles of imports, the walls between services, and sources
of time and chance.

``python tools/house_check.py [ROOT]`` prints one line per offender and exits with status 1 if
there is any. Imports under ``TYPE_CHECKING`` and by string count: a reader cannot follow such a
cycle either.
A module or folder with a good reason to be larger is listed below with that reason.
"""

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOTS = ("libs", "services")
MODULES_PER_FOLDER = 15
LINES_PER_MODULE = 500

# Paths from the root of the repository, each with its reason.
LARGE_FOLDERS: Mapping[str, str] = {
    "libs/admittance/events": "all messages of the wire, and their words, are one subject",
}
LONG_MODULES: Mapping[str, str] = {}

# Modules that read the clock or draw chance themselves. All others call `runtime/clock.py` and
# `runtime/chance.py`, so that a simulation can put a virtual clock and a seed in their place.
OUTSIDE = ("random", "secrets", "time", "uuid")
OWN_TIME_AND_CHANCE: Mapping[str, str] = {
    "libs/admittance/runtime/chance.py": "it is the source of chance",
    "libs/admittance/runtime/clock.py": "it is the source of time",
    "services/admittance/runner/jobs/engine_programs.py": "the shim imports it",
    "services/admittance/runner/output/collector.py": "the shim imports it, to start fast",
    "services/admittance/runner/jobs/shim.py": "it runs without the package, to start fast",
    "libs/admittance/client/quick_names.py": "it completes words, so it imports little",
}

# Packages inside which cycles are known, each with the way to untie it. A cycle is accepted when
# all of its members lie in one of these packages. Delete a line when its cycles are gone.
KNOWN_CYCLES: Mapping[str, str] = {}


@cache
def tree_of(path: Path) -> ast.Module:
    """The syntax tree of a module."""
    return ast.parse(path.read_text())


def modules_under(root: Path) -> dict[str, Path]:
    """Dotted names of all modules in libs/ and services/, with their files."""
    found: dict[str, Path] = {}
    for base in ROOTS:
        for path in sorted((root / base).rglob("*.py")):
            parts = list(path.relative_to(root / base).with_suffix("").parts)
            if parts[-1] == "__init__":
                parts.pop()
            found[".".join(parts)] = path
    return found


def _docstrings(tree: ast.AST) -> set[ast.AST]:
    return {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}


CODE = re.compile(r"\b(?:from|import) (\w+(?:\.\w+)+)")
"""An import in the text of a program."""
IMPORTERS = ("import_module", "__import__")


def _calls_of_importers(tree: ast.AST) -> Iterator[ast.expr]:
    """The first argument of each call that imports a module by its name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args:
            called = node.func.attr if isinstance(node.func, ast.Attribute) else node.func
            name = called.id if isinstance(called, ast.Name) else called
            if name in IMPORTERS:
                yield node.args[0]


def imports_by_string(tree: ast.AST, name: str, modules: Mapping[str, Path]) -> set[str]:
    """The modules of the tree that a module imports by its texts: whole names, the rest of a name
    that a call puts together, such as ``f"house.{room}"``, and imports in the text of a program."""
    docstrings = _docstrings(tree)
    texts = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in docstrings
    ]
    named = {found for text in texts for found in CODE.findall(text)}
    for argument in _calls_of_importers(tree):
        prefix = ""
        if isinstance(argument, ast.JoinedStr):
            match argument.values:
                case [ast.Constant(value=str(prefix)), *_]:
                    pass
                case [ast.FormattedValue(value=ast.Name(id="__name__")), *_]:
                    prefix = f"{name}."
        found = {prefix + text for text in texts} & set(modules)
        # Without the rest of a name in the text, every module below may be meant.
        named |= found or {one for one in modules if prefix and one.startswith(prefix)}
    return named & set(modules)


def has_hidden_import(tree: ast.AST, name: str, modules: Mapping[str, Path]) -> bool:
    """Whether a module imports a module whose name does not stand in its text."""
    return any(_calls_of_importers(tree)) and not imports_by_string(tree, name, modules)


def imports_of(modules: Mapping[str, Path]) -> dict[str, set[str]]:
    """For each module the modules of the tree that it imports, anywhere in its text."""
    graph: dict[str, set[str]] = {}
    for name, path in modules.items():
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        tree = tree_of(path)
        targets = imports_by_string(tree, name, modules)
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                targets.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                base = node.module or ""
                if node.level:
                    above = package.split(".")[: len(package.split(".")) - node.level + 1]
                    base = ".".join([*above, *([node.module] if node.module else [])])
                for alias in node.names:
                    inner = f"{base}.{alias.name}"
                    targets.add(inner if inner in modules else base)
        graph[name] = {t for t in targets if t in modules and t != name}
    return graph


def outside_imports(path: Path) -> list[str]:
    """The sources of time and chance that a module imports from Python itself."""
    found: list[str] = []
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            found.extend(alias.name for alias in node.names if alias.name in OUTSIDE)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module in OUTSIDE:
            found.append(node.module)
    return found


def broken_walls(modules: Mapping[str, Path], graph: Mapping[str, set[str]]) -> Iterator[str]:
    """One sentence for each import that goes from libs/ to services/, or between two packages of
    services/. Only modules beside these packages may import them, to list the services."""

    def home(name: str) -> tuple[str, str]:
        """The root of a module, and its package in services/; "": it lies beside the packages."""
        path, top = modules[name], ".".join(name.split(".")[:2])
        root = next(one for one in reversed(path.parts) if one in ROOTS)
        return root, top if modules.get(top, path).name == "__init__.py" else ""

    for name, targets in sorted(graph.items()):
        here, mine = home(name)
        for target in sorted(targets):
            there, other = home(target)
            if there == "services" and (here == "libs" or (mine and other not in ("", mine))):
                yield f"{name} imports {target} of another service: move what both need to libs"


def nats_of_services(modules: Mapping[str, Path]) -> Iterator[str]:
    """One sentence for each module of a service that imports the client of NATS itself."""
    services = {name.rpartition(".")[0] for name in modules if name.endswith(".__main__")}
    for name, path in sorted(modules.items()):
        if not any(name.startswith(f"{service}.") for service in services):
            continue
        for node in ast.walk(tree_of(path)):
            named: list[str] = []
            if isinstance(node, ast.Import):
                named = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                named = [node.module or ""]
            if any(one.partition(".")[0] == "nats" for one in named):
                yield f"{name} imports nats: only the runtime does"


def folders_of(modules: Mapping[str, Path], graph: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """The same graph between packages; a package and its subpackages count as one subject."""

    def folder(name: str) -> str:
        return name if modules[name].name == "__init__.py" else name.rpartition(".")[0]

    between: dict[str, set[str]] = {}
    for name, targets in graph.items():
        here = folder(name)
        mine = between.setdefault(here, set())
        for there in map(folder, targets):
            related = f"{there}.".startswith(f"{here}.") or f"{here}.".startswith(f"{there}.")
            if not related:
                mine.add(there)
    return between


def cycles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """One cycle of each knot in the graph, shortest first."""
    rest = {name: set(targets) for name, targets in graph.items()}
    found: list[list[str]] = []
    while True:
        try:
            TopologicalSorter(rest).prepare()
        except CycleError as error:
            cycle: list[str] = error.args[1][:-1]
        else:
            return sorted(found, key=len)
        found.append(sorted(cycle))
        # The edges of this cycle are gone, so that the search ends and finds other cycles.
        for name in cycle:
            rest[name] -= set(cycle)


def unknown(found: Iterable[list[str]]) -> list[list[str]]:
    """The cycles that lie in none of the packages of ``KNOWN_CYCLES``."""
    return [
        cycle
        for cycle in found
        if not any(all(f"{n}.".startswith(f"{p}.") for n in cycle) for p in KNOWN_CYCLES)
    ]


def offenders(root: Path) -> list[str]:
    """One sentence for each folder, module or cycle that breaks a limit."""
    modules = modules_under(root)
    said: list[str] = []
    sizes = Counter(
        path.parent.relative_to(root).as_posix()
        for path in modules.values()
        if path.name != "__init__.py"
    )
    for folder, size in sorted(sizes.items()):
        if size > MODULES_PER_FOLDER and folder not in LARGE_FOLDERS:
            said.append(f"{folder} has {size} modules, at most {MODULES_PER_FOLDER}: split it")
    for name, path in modules.items():
        lines = len(path.read_text().splitlines())
        where = path.relative_to(root).as_posix()
        if lines > LINES_PER_MODULE and where not in LONG_MODULES:
            said.append(f"{where} has {lines} lines, at most {LINES_PER_MODULE}: split it")
        taken = outside_imports(path)
        if taken and where not in OWN_TIME_AND_CHANCE:
            said.append(f"{where} imports {taken[0]}: call runtime/clock.py or runtime/chance.py")
        if has_hidden_import(tree_of(path), name, modules):
            said.append(f"{where} imports a module whose name is not in its text")
    graph = imports_of(modules)
    said.extend(broken_walls(modules, graph))
    said.extend(nats_of_services(modules))
    for cycle in unknown(cycles(graph)):
        said.append(f"modules import each other in a cycle: {' '.join(cycle)}")
    for cycle in unknown(cycles(folders_of(modules, graph))):
        said.append(f"packages import each other in a cycle: {' '.join(cycle)}")
    return said


def main() -> int:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    said = offenders(root)
    for line in said:
        sys.stderr.write(line + "\n")
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
