"""Checks cycles of imports, the walls between services, sources of time and chance, sizes, and
names of test modules; gives advice about names.

``python tools/house_check.py [ROOT]`` prints one line per offender and exits with status 1 if
there is any. Imports under ``TYPE_CHECKING`` and by string count, too: readers cannot follow such
cycles either.

The subject of a module or folder decides its size, and most are far below the limits. What is
above a limit has a second subject, which becomes a module or package of its own.
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
MADE = "Made by ``python -m tools."
"""In the docstring of each module that a tool makes."""

LARGER_MODULES: Mapping[str, str] = {
    "services/admittance/runner/jobs/shim.py": "each further module delays the start of a job",
}
"""Modules that may be larger."""

RIDDLES = ("one", "found")
"""Names of variables that say nothing about the value."""

# Modules that read the clock or draw chance themselves. All others call `runtime/clock.py` and
# `runtime/chance.py`, so that a simulation can put a virtual clock and a seed in their place.
OUTSIDE = ("random", "secrets", "time", "uuid")
OWN_TIME_AND_CHANCE: Mapping[str, str] = {
    "libs/admittance/runtime/chance.py": "it is the source of chance",
    "libs/admittance/runtime/clock.py": "it is the source of time",
    "services/admittance/runner/jobs/engine_programs.py": "the shim imports it",
    "services/admittance/runner/groups/job_groups.py": "the shim imports it, to start fast",
    "services/admittance/runner/output/collector.py": "the shim imports it, to start fast",
    "services/admittance/runner/jobs/hooks.py": "the shim imports it, to start fast",
    "services/admittance/runner/jobs/shim.py": "it runs without the package, to start fast",
    "libs/admittance/client/quick_names.py": "it completes words, so it imports little",
}

# Packages inside which cycles are known, each with the way to untie it. A cycle is accepted when
# all of its members lie in one of these packages. Delete a line when its cycles are gone.
KNOWN_CYCLES: Mapping[str, str] = {}

# Imports from libs/ to services/ at a call, which no other rule counts, with the reason.
LATE_IMPORTS: Mapping[tuple[str, str], str] = {
    (
        "admittance.client.methods.health",
        "admittance.examination",
    ): "docs/decisions/0102-the-client-examines-the-system-as-admit-doctor-does.md",
}


SCHEDULING = "admittance.scheduling"
# The modules of the scheduler that write the fields of a workload, by the class that declares the
# fields (`scheduling/state/stored_fields.py`, `workload_info.py`): what was read, what is assumed,
# what follows, and what one cycle leaves for the next.
FIELD_DECLARERS = ("state.stored_fields", "state.workload_info")
FIELD_WRITERS: Mapping[str, frozenset[str]] = {
    "StoredFields": frozenset(
        {
            "workload_updates",
            "families",
            "preemption.loop_guard",
            "state.object_errors",
            "state.scheduler_state",
        }
    ),
    "AssumedFields": frozenset({"state.assumption", "state.scheduler_state"}),
    "DerivedFields": frozenset(
        {
            "configuration_updates",
            "state.assumption",
            "state.held.charging",
            "state.equivalence",
            "state.queue",
            "state.workload_info",
        }
    ),
    "WorkloadInfo": frozenset(
        {
            "cycle.cycle",
            "cycle.decisions",
            "cycle.nominate",
            "cycle.promises",
            "cycle.process",
            "cycle.recheck",
            "state.held.charging",
            "workload_updates",
        }
    ),
}
# Names of variables in the scheduler that are no workloads.
NO_WORKLOADS = frozenset({"self", "result"})


@cache
def tree_of(path: Path) -> ast.Module:
    """The syntax tree of a module."""
    return ast.parse(path.read_text())


@cache
def nodes_of(tree: ast.AST) -> tuple[ast.AST, ...]:
    """All nodes of a syntax tree; each check reads them again."""
    return tuple(ast.walk(tree))


def modules_under(root: Path) -> dict[str, Path]:
    """Dotted names of all modules in libs/ and services/, with their files."""
    modules: dict[str, Path] = {}
    for base in ROOTS:
        for path in sorted((root / base).rglob("*.py")):
            parts = list(path.relative_to(root / base).with_suffix("").parts)
            if parts[-1] == "__init__":
                parts.pop()
            modules[".".join(parts)] = path
    return modules


def _docstrings(tree: ast.AST) -> set[ast.AST]:
    return {node.value for node in nodes_of(tree) if isinstance(node, ast.Expr)}


CODE = re.compile(r"\b(?:from|import) (\w+(?:\.\w+)+)")
"""An import in the text of a program."""
IMPORTERS = ("import_module", "__import__")


def _calls_of_importers(tree: ast.AST) -> Iterator[ast.expr]:
    """The first argument of each call that imports a module by its name."""
    for node in nodes_of(tree):
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
        for node in nodes_of(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in docstrings
    ]
    named = {module for text in texts for module in CODE.findall(text)}
    for argument in _calls_of_importers(tree):
        prefix = ""
        if isinstance(argument, ast.JoinedStr):
            match argument.values:
                case [ast.Constant(value=str(prefix)), *_]:
                    pass
                case [ast.FormattedValue(value=ast.Name(id="__name__")), *_]:
                    prefix = f"{name}."
        completed = {prefix + text for text in texts} & set(modules)
        # Without the rest of a name in the text, every module below may be meant.
        named |= completed or {module for module in modules if prefix and module.startswith(prefix)}
    return named & set(modules)


def has_hidden_import(tree: ast.AST, name: str, modules: Mapping[str, Path]) -> bool:
    """Whether a module imports a module by a name that is not in its text."""
    return any(_calls_of_importers(tree)) and not imports_by_string(tree, name, modules)


def imports_of(modules: Mapping[str, Path]) -> dict[str, set[str]]:
    """For each module the modules of the tree that it imports, anywhere in its text."""
    graph: dict[str, set[str]] = {}
    for name, path in modules.items():
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        tree = tree_of(path)
        targets = imports_by_string(tree, name, modules)
        for node in nodes_of(tree):
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
        graph[name] = {
            target
            for target in targets
            if target in modules and target != name and (name, target) not in LATE_IMPORTS
        }
    return graph


def outside_imports(path: Path) -> list[str]:
    """The sources of time and chance that a module imports from Python itself."""
    sources: list[str] = []
    for node in nodes_of(tree_of(path)):
        if isinstance(node, ast.Import):
            sources.extend(alias.name for alias in node.names if alias.name in OUTSIDE)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module in OUTSIDE:
            sources.append(node.module)
    return sources


def broken_walls(modules: Mapping[str, Path], graph: Mapping[str, set[str]]) -> Iterator[str]:
    """One sentence for each import that goes from libs/ to services/, or between two packages of
    services/. Only modules beside these packages may import them, to list the services."""

    def home(name: str) -> tuple[str, str]:
        """The root of a module, and its package in services/; "": it lies beside the packages."""
        path, top = modules[name], ".".join(name.split(".")[:2])
        root = next(part for part in reversed(path.parts) if part in ROOTS)
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
        for node in nodes_of(tree_of(path)):
            named: list[str] = []
            if isinstance(node, ast.Import):
                named = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                named = [node.module or ""]
            if any(module.partition(".")[0] == "nats" for module in named):
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
    knots: list[list[str]] = []
    while True:
        try:
            TopologicalSorter(rest).prepare()
        except CycleError as error:
            cycle: list[str] = error.args[1][:-1]
        else:
            return sorted(knots, key=len)
        knots.append(sorted(cycle))
        # The edges of this cycle are gone, so that the search ends and finds other cycles.
        for name in cycle:
            rest[name] -= set(cycle)


def unknown(knots: Iterable[list[str]]) -> list[list[str]]:
    """The cycles that lie in none of the packages of ``KNOWN_CYCLES``."""
    return [
        cycle
        for cycle in knots
        if not any(all(f"{n}.".startswith(f"{p}.") for n in cycle) for p in KNOWN_CYCLES)
    ]


def workload_fields(modules: Mapping[str, Path]) -> dict[str, str]:
    """The fields of a workload in the scheduler, each with the class that declares it."""
    paths = [modules.get(f"{SCHEDULING}.{name}") for name in FIELD_DECLARERS]
    classes = [
        node
        for path in paths
        if path is not None
        for node in tree_of(path).body
        if isinstance(node, ast.ClassDef)
    ]
    return {
        field.target.id: declared.name
        for declared in classes
        if declared.name in FIELD_WRITERS
        for field in declared.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
    }


def foreign_writes(modules: Mapping[str, Path]) -> Iterator[str]:
    """One sentence for each write to a field of a workload in a module that must not write it."""
    fields = workload_fields(modules)
    for name, path in modules.items():
        package, _, module = name.partition(f"{SCHEDULING}.")
        for node in ast.walk(tree_of(path)) if module and not package else ():
            if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Store):
                continue
            is_other = isinstance(node.value, ast.Name) and node.value.id in NO_WORKLOADS
            group = fields.get(node.attr)
            if group is None or is_other or module in FIELD_WRITERS[group]:
                continue
            writers = ", ".join(sorted(FIELD_WRITERS[group]))
            yield f"{name} writes {node.attr} of {group}, which is written by {writers} only"


def oversized(root: Path, modules: Mapping[str, Path]) -> Iterator[str]:
    """One sentence for each folder with too many modules, and for each module with too many lines.
    A module that a tool makes may be long."""
    sizes = Counter(
        path.parent.relative_to(root).as_posix()
        for path in modules.values()
        if path.name != "__init__.py"
    )
    for folder, size in sorted(sizes.items()):
        if size > MODULES_PER_FOLDER:
            yield f"{folder} has {size} modules, more than {MODULES_PER_FOLDER}: divide it"
    for path in modules.values():
        where = path.relative_to(root).as_posix()
        lines = len(path.read_text().splitlines())
        is_made = MADE in (ast.get_docstring(tree_of(path)) or "")
        if lines > LINES_PER_MODULE and not is_made and where not in LARGER_MODULES:
            yield f"{where} has {lines} lines, more than {LINES_PER_MODULE}: divide it"


def doubled_tests(root: Path) -> Iterator[str]:
    """One sentence for each name that two test modules outside packages have: pytest imports both
    under this name, and collects only the first."""
    places: dict[str, list[str]] = {}
    for path in sorted((root / "tests").rglob("test_*.py")):
        if not (path.parent / "__init__.py").exists():
            places.setdefault(path.name, []).append(path.relative_to(root).as_posix())
    for where in places.values():
        if len(where) > 1:
            yield f"test modules have one name: {' '.join(where)}"


def offenders(root: Path) -> list[str]:
    """One sentence for each import, cycle, size or name that breaks a rule."""
    modules = modules_under(root)
    said = [*oversized(root, modules), *doubled_tests(root)]
    for name, path in modules.items():
        where = path.relative_to(root).as_posix()
        taken = outside_imports(path)
        if taken and where not in OWN_TIME_AND_CHANCE:
            said.append(f"{where} imports {taken[0]}: call runtime/clock.py or runtime/chance.py")
        if has_hidden_import(tree_of(path), name, modules):
            said.append(f"{where} imports a module by a name that is not in its text")
    graph = imports_of(modules)
    said.extend(broken_walls(modules, graph))
    said.extend(nats_of_services(modules))
    said.extend(foreign_writes(modules))
    for cycle in unknown(cycles(graph)):
        said.append(f"modules import each other in a cycle: {' '.join(cycle)}")
    for cycle in unknown(cycles(folders_of(modules, graph))):
        said.append(f"packages import each other in a cycle: {' '.join(cycle)}")
    return said


def bindings(tree: ast.AST) -> Iterator[str]:
    """The name of each variable and parameter, once for each place that binds it."""
    for node in nodes_of(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.MatchAs) and node.name:
            yield node.name


def advice(root: Path) -> list[str]:
    """One sentence for each of the names that a reader confuses."""
    modules = modules_under(root)
    said: list[str] = []
    riddles: Counter[str] = Counter()
    homes: dict[str, set[str]] = {}
    for name, path in modules.items():
        tree = tree_of(path)
        riddles.update(bound for bound in bindings(tree) if bound in RIDDLES)
        for node in nodes_of(tree):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, set()).add(name)
    for riddle in RIDDLES:
        if riddles[riddle]:
            said.append(f"`{riddle}` is bound {riddles[riddle]} times: name the value")
    for class_name, places in sorted(homes.items()):
        if class_name.startswith("_"):
            continue
        packages = Counter(place.rpartition(".")[0] for place in places)
        if max(packages.values()) > 1:
            said.append(f"{class_name} is a class of {' and of '.join(sorted(places))}")
    return said


def main() -> int:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    for line in advice(root):
        sys.stdout.write(f"advice: {line}\n")
    said = offenders(root)
    for line in said:
        sys.stderr.write(line + "\n")
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
