"""How long short commands take, most of which is imports: medians in milliseconds.

    .venv/bin/python -m benchmarks.cli_start [--rounds 15] [--nats URL] [--against TREE]

Starts `admit up` on a temporary data folder unless a server is named. Commands take turns, so that
other load on the machine affects all alike; with --against every command also runs with the code of
another checkout. `wall` is what a person waits, `cpu` what the process computes: the steadier
figure on a busy machine. `libraries` is the import of what the command line is made with (click),
which --help is held against. The byte code of all modules is written before the first round, as pip
and `make install` do.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

ADMIT: Final = "from admittance.cli.main import main; main()"
LIBRARIES: Final = "import click, click.shell_completion"
HERE: Final = Path(__file__).resolve().parent.parent
QUEUES: Final = HERE / "deploy" / "samples" / "queues.yaml"
WORKLOADS: Final = 8

COMMANDS: Final[Mapping[str, Sequence[str]]] = {
    "--help": ["--help"],
    "get --help": ["get", "--help"],
    "get workloads": ["get", "workloads"],
    "get clusterqueues": ["get", "clusterqueues"],
    "explain": ["explain", "workload", "start-1"],
    "submit": ["submit", "-q", "research", "--cpu", "4", "--", "true"],
    "wait": ["wait", "workload", "start-1", "--for", "Pending"],
    "describe": ["describe", "workload", "start-1"],
}
COMPLETIONS: Final[Mapping[str, str]] = {
    "completion of a command": "admit ge",
    "completion of a kind": "admit get work",
    "completion of a name": "admit explain workload sta",
}


def command_of(words: Sequence[str]) -> list[str]:
    return [sys.executable, "-c", ADMIT, *words]


def environment(url: str, tree: Path | None, byte_code: str) -> dict[str, str]:
    """The variables of a command. ``byte_code``: the folder where Python keeps byte code."""
    variables = {**os.environ, "ADMIT_NATS_URL": url, "PYTHONPYCACHEPREFIX": byte_code}
    variables.pop("PYTHONDONTWRITEBYTECODE", None)
    if tree is not None:
        variables["PYTHONPATH"] = f"{tree / 'libs'}:{tree / 'services'}"
    return variables


class ProcessCost(NamedTuple):
    """Milliseconds of one process."""

    wall: float
    cpu: float


def run_and_time(command: Sequence[str], environ: Mapping[str, str]) -> ProcessCost:
    """The times of one process. Raises RuntimeError where it fails."""
    began = time.perf_counter()
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, env=environ, stdout=said, stderr=said)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        wall = time.perf_counter() - began
        if status:
            said.seek(0)
            raise RuntimeError(f"{command}: {said.read().decode()}")
    return ProcessCost(wall * 1000, (used.ru_utime + used.ru_stime) * 1000)


def measured(
    url: str, rounds: int, tree: Path | None, byte_code: str
) -> dict[str, list[ProcessCost]]:
    """The times of every command in every round, after a round that writes byte code."""
    costs: dict[str, list[ProcessCost]] = {}
    for number in range(rounds + 1):
        if number == 1:
            costs.clear()
        for where, label in ((None, ""), *(((tree, "against: "),) if tree else ())):
            environ = environment(url, where, byte_code)
            runs = {"libraries": [sys.executable, "-c", LIBRARIES]}
            runs |= {name: command_of(words) for name, words in COMMANDS.items()}
            for name, command in runs.items():
                costs.setdefault(label + name, []).append(run_and_time(command, environ))
            for name, line in COMPLETIONS.items():
                asked = {
                    **environ,
                    "_ADMIT_COMPLETE": "complete_bash",
                    "COMP_WORDS": line,
                    "COMP_CWORD": str(len(line.split()) - 1),
                }
                costs.setdefault(label + name, []).append(run_and_time(command_of([]), asked))
    return costs


@contextmanager
def server_with_services(url: str | None) -> Iterator[str]:
    """The URL of a server with services; one of our own where none is named."""
    if url is not None:
        yield url
        return
    with tempfile.TemporaryDirectory() as folder:
        words = ["up", "--insecure", "--data-dir", folder, "--port", "0", "--no-runner"]
        up = subprocess.Popen(
            command_of(words), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        try:
            assert up.stdout is not None
            yield up.stdout.readline().removeprefix("ready ").strip()
        finally:
            up.terminate()
            up.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--nats", metavar="URL")
    parser.add_argument("--against", type=Path, metavar="TREE")
    parser.add_argument("--json", type=Path, metavar="FILE")
    chosen = parser.parse_args()
    with server_with_services(chosen.nats) as url, tempfile.TemporaryDirectory() as byte_code:
        environ = environment(url, None, byte_code)
        run_and_time(command_of(["apply", "-f", str(QUEUES)]), environ)
        for number in range(WORKLOADS):
            words = ["submit", "-q", "research", "--name", f"start-{number}", "--cpu", "4"]
            run_and_time(command_of([*words, "--", "true"]), environ)
        costs = measured(url, chosen.rounds, chosen.against, byte_code)
    medians = {
        name: {
            "wall": round(statistics.median(cost.wall for cost in each)),
            "cpu": round(statistics.median(cost.cpu for cost in each)),
        }
        for name, each in costs.items()
    }
    lines = [f"{'':40} {'wall':>6} {'cpu':>6}   ms, medians of {chosen.rounds}"]
    lines += [f"{name:40} {row['wall']:6} {row['cpu']:6}" for name, row in medians.items()]
    sys.stdout.write("\n".join(lines) + "\n")
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(medians, indent=2) + "\n")


if __name__ == "__main__":
    main()
