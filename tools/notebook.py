"""Writes the notebook of the samples. ``python -m tools.notebook``"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

TARGET: Final = Path(__file__).resolve().parents[1] / "deploy" / "samples" / "notebook.ipynb"

CELLS: Final = (
    (
        "markdown",
        "# Jobs from a notebook\n\n"
        "Start `admit up`, and create the queues with `admit apply -f deploy/samples/queues.yaml`. "
        "More: `docs/python.md`.",
    ),
    (
        "code",
        "from admittance.client import SyncClient\n\nclient = SyncClient.connect()",
    ),
    ("markdown", "A small search: each job gets a number, and one of them fails."),
    (
        "code",
        "jobs = [\n"
        '    client.submit(["sh", "-c", "echo trying $N; test $N != 3"], queue="research",\n'
        '                  env={"N": str(n)}, labels={"from": "notebook"})\n'
        "    for n in range(1, 5)\n"
        "]\n"
        "jobs",
    ),
    (
        "code",
        "results = [job.result(timeout=60) for job in jobs]\n"
        "good = sum(result.succeeded for result in results)\n"
        'print(f"{good} of {len(jobs)} jobs succeeded")\n'
        "for job, result in zip(jobs, results):\n"
        '    text = "".join(piece.text for piece in job.logs())\n'
        "    print(job.name, result.exit_code, text.strip())",
    ),
    ("markdown", "Why does a job wait? Here it asks for all that the queue may use, twice."),
    (
        "code",
        'first, second = (client.submit(["sleep", "600"], queue="research", cpu=4) for _ in "ab")\n'
        'first.wait("Running", timeout=60)\n'
        "why = second.explain()\n"
        "print(why.phase, why.reason)\n"
        "for remedy in why.unblocked_by:\n"
        '    print("-", remedy)',
    ),
    (
        "code",
        "for job in (first, second, *jobs):\n"
        '    client.delete("workload", job.name)\n'
        "client.close()",
    ),
)


def made() -> str:
    """The notebook as JSON text."""
    cells: list[dict[str, Any]] = []
    for number, (kind, text) in enumerate(CELLS, 1):
        cell: dict[str, Any] = {
            "cell_type": kind,
            "id": f"cell-{number}",
            "metadata": {},
            "source": text.splitlines(keepends=True),
        }
        if kind == "code":
            cell |= {"execution_count": None, "outputs": []}
        cells.append(cell)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook = {
        "cells": cells,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(notebook, indent=1) + "\n"


if __name__ == "__main__":
    TARGET.write_text(made())
