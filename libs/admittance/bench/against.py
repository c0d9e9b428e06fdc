"""`admit bench --against`: this version and another one in turns, and the ratios of their
figures."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final

import msgspec

from admittance.bench.connection import connected
from admittance.bench.generator import BenchPlan, bench_plan, read
from admittance.bench.run import Report, loop_factory, play, show
from admittance.bench.system import embedded, family
from admittance.bench.trees import Tree, tree_of
from admittance.bench.turns import in_turns
from admittance.runtime.errors import SetupError
from admittance.runtime.process.progress import Steps

THIS: Final = "this"
SERVER: Final = "nats-server"
MISSING: Final = "ModuleNotFoundError"
HINT: Final = (
    "; it needs other packages than this version: give a folder with a .venv of its own, as "
    "`git worktree add` and `make install` make it"
)
MIB: Final = 1 << 20
WIDTH: Final = 44
"""Of the column of names, in letters."""


class Ratio(msgspec.Struct, frozen=True, kw_only=True):
    """The medians of one figure of both versions; ``ratio``: the median over all pairs of this ÷
    other, with the least and the greatest one. None: a figure of the other version was 0."""

    this: float
    other: float
    ratio: float | None
    least: float | None
    most: float | None


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON of `admit bench --against`: the reports of both versions in the order of the pairs,
    and the ratio of each figure."""

    against: str
    ratios: dict[str, Ratio]
    this: tuple[Report, ...]
    other: tuple[Report, ...]


def compare(
    generator: Path,
    against: str,
    *,
    pairs: int,
    scale: float = 1.0,
    distinct: bool = False,
    json_path: Path | None = None,
    as_json: bool = False,
) -> int:
    """Plays a generator file with this version and with ``against``, a folder or a commit, in
    turns; prints the ratios; returns 0 if all workloads of all runs finished. Raises SetupError."""
    plan = bench_plan(read(generator), scale=scale, distinct=distinct)
    with (
        tree_of(against) as tree,
        Steps("bench") as steps,
        asyncio.Runner(loop_factory=loop_factory()) as runner,
    ):
        reports = runner.run(
            in_turns(
                {
                    THIS: partial(_played, plan, None, steps),
                    against: partial(_played, plan, tree, steps),
                },
                pairs,
            )
        )
    made = comparison(against, reports[THIS], reports[against])
    show(made, lines_of(made), json_path=json_path, as_json=as_json)
    return 0 if all(report.complete for report in (*made.this, *made.other)) else 1


async def _played(plan: BenchPlan, tree: Tree | None, steps: Steps) -> Report:
    """The figures of a new system with the code of a tree, or of this version."""
    steps.begin(f"starts {tree.name if tree else 'this version'}")
    options = ["--no-runner", *(["--no-web"] if tree is None or tree.has_page else [])]
    env, admit = (tree.env, tree.admit) if tree else (None, None)
    try:
        async with (
            embedded(*options, env=env, admit=admit) as child,
            connected(child.url, child.access) as link,
        ):
            report, _ = await play(link, plan, lambda: family(child.pid), steps)
            return report
    except SetupError as error:
        if tree is None:
            raise
        raise SetupError(f"{tree.name}: {error}{HINT if MISSING in str(error) else ''}") from None


def comparison(against: str, this: Sequence[Report], other: Sequence[Report]) -> Comparison:
    """The ratios of the figures of two versions, each with one report of each pair."""
    figures = {**FIGURES, **_delays(this)}
    return Comparison(
        against=against,
        ratios={
            name: _ratio(list(map(of, this)), list(map(of, other))) for name, of in figures.items()
        },
        this=tuple(this),
        other=tuple(other),
    )


def _ratio(this: Sequence[float], other: Sequence[float]) -> Ratio:
    ratios = [a / b for a, b in zip(this, other, strict=True) if b]
    whole = len(ratios) == len(this)
    return Ratio(
        this=median(this),
        other=median(other),
        ratio=round(median(ratios), 3) if whole else None,
        least=round(min(ratios), 3) if whole else None,
        most=round(max(ratios), 3) if whole else None,
    )


def _cpu(report: Report, of: Callable[[str], bool]) -> float:
    return sum(use.cpu_seconds for use in report.processes if of(use.name))


FIGURES: Final[Mapping[str, Callable[[Report], float]]] = {
    "wall, s": lambda report: report.wall_seconds,
    "CPU of all processes, s": lambda report: report.cpu_seconds,
    "CPU of admit, s": lambda report: _cpu(report, lambda name: name != SERVER),
    "CPU of nats-server, s": lambda report: _cpu(report, lambda name: name == SERVER),
    "CPU of a workload, ms": lambda report: report.cpu_ms_per_workload,
    "first admission, s": lambda report: report.first_admission_seconds,
    "peak memory, MiB": lambda report: report.peak_memory_bytes / MIB,
    "evictions": lambda report: report.evictions,
}


def _delays(reports: Sequence[Report]) -> dict[str, Callable[[Report], float]]:
    """Figures of the times to admission of each class of workloads that every run has."""
    classes = set.intersection(*(set(report.time_to_admission_ms) for report in reports))

    def figure(class_name: str, which: str) -> Callable[[Report], float]:
        return lambda report: float(getattr(report.time_to_admission_ms[class_name], which))

    return {
        f"time to admission {which}, ms, class {name}": figure(name, which)
        for name in sorted(classes)
        for which in ("p50", "p99")
    }


def lines_of(made: Comparison) -> list[str]:
    """The comparison as text: medians and ratios, and a line for each run that is not complete."""
    lines = [f"medians of {len(made.this)} pairs, this ÷ {made.against}; least and greatest ratio"]
    for name, row in made.ratios.items():
        line = f"{name:<{WIDTH}} {row.this:>10.2f} ÷ {row.other:>10.2f}"
        if row.ratio is not None:
            line += f" = {row.ratio:.2f}   {row.least:.2f} to {row.most:.2f}"
        lines.append(line)
    for name, reports in ((THIS, made.this), (made.against, made.other)):
        lines += [
            f"INCOMPLETE: {name}: {report.finished} of {report.workloads} workloads finished"
            + (f": {report.trouble}" if report.trouble else "")
            for report in reports
            if not report.complete
        ]
    return lines
