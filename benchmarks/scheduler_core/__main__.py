"""Measures the scheduler's pure core: one Python process, no bus.

    .venv/bin/python -m benchmarks.scheduler_core [--json FILE] [--only NAME ...] [--against TREE]

Figures are medians of several runs, each after a garbage collection. With --against every figure is
also measured by this benchmark in another checkout, with its code, in processes that alternate with
those of this checkout, so that other load of the machine affects both alike.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from admittance.runtime.process.startup import collect_garbage_less_often

from .figures import FIGURES, Figure


def median_of(figure: Figure) -> float:
    """The median of the runs of a figure."""
    results = []
    for _ in range(figure.runs):
        gc.collect()
        results.append(figure.run())
    return round(statistics.median(results), 2)


def measured_apart(name: str, tree: Path | None) -> float:
    """The figure, measured by another process in the checkout ``tree``; None: in this checkout. The
    other checkout measures with its own benchmark, because modules move between releases."""
    environment = dict(os.environ)
    if tree is not None:
        environment["PYTHONPATH"] = f"{tree / 'libs'}:{tree / 'services'}"
    command = [sys.executable, "-m", "benchmarks.scheduler_core", "--only", name]
    done = subprocess.run(
        command, cwd=tree, env=environment, check=True, capture_output=True, text=True
    )
    return float(json.loads(done.stdout)[name])


def compared(name: str, tree: Path, turns: int) -> dict[str, float]:
    """The figure with the code of the other tree and of this checkout, in turns."""
    pairs = [(measured_apart(name, tree), measured_apart(name, None)) for _ in range(turns)]
    other = statistics.median(other_seconds for other_seconds, _ in pairs)
    ours = statistics.median(own_seconds for _, own_seconds in pairs)
    ratio = statistics.median(mine / theirs for theirs, mine in pairs if theirs)
    return {"other": other, "ours": ours, "ratio": round(ratio, 3)}


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--json", type=Path, help="write the figures there too")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="figures, or parts of names")
    parser.add_argument("--against", type=Path, help="another checkout to compare with")
    parser.add_argument("--turns", type=int, default=3, help="how often, with --against")
    options = parser.parse_args()
    # As the services do.
    collect_garbage_less_often()
    wanted: list[str] = options.only or list(FIGURES)
    names = [
        name
        for name in FIGURES
        if name in wanted or any(part in name for part in wanted if part not in FIGURES)
    ]
    figures: dict[str, object] = {}
    for name in names:
        if options.against is not None:
            figures[name] = compared(name, options.against.resolve(), options.turns)
            sys.stderr.write(f"{name} {figures[name]}\n")
        else:
            figures[name] = median_of(FIGURES[name])
    if "admissionMicrosecondsAmong1000" in figures and options.against is None and len(names) > 1:
        figures |= _derived(figures)
    text = json.dumps(figures, indent=2)
    sys.stdout.write(text + "\n")
    if options.json is not None:
        options.json.write_text(text + "\n")


def _derived(figures: dict[str, object]) -> dict[str, object]:
    def of(name: str) -> float:
        return float(str(figures.get(name, "nan")))

    return {
        "decisionsPerSecond30": round(1e6 / of("decisionMicroseconds30")),
        "decisionsPerSecond3000": round(1e6 / of("decisionMicroseconds3000")),
        "decisionRatio1000to30": round(
            of("decisionMicroseconds1000") / of("decisionMicroseconds30"), 2
        ),
        "contendedPerSecond30": round(1e6 / of("contendedMicroseconds30")),
        "contendedPerSecond3000": round(1e6 / of("contendedMicroseconds3000")),
        "admissionRatio200000to1000": round(
            of("admissionMicrosecondsAmong200000") / of("admissionMicrosecondsAmong1000"), 2
        ),
    }


if __name__ == "__main__":
    main()
