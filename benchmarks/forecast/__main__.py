"""Scores the forecast of starts over generated days, which the scheduler's core plays.

    .venv/bin/python -m benchmarks.forecast [--case N ...] [--questions 3] [--floor]
        [--pending 10000] [--json FILE]

For each day: the share of starts between p10 and p90, the width of the intervals over the time that
came true, the median error of p50, and the same of two naive guesses: the mean wait of the last 20
in the queue, and a play in which every workload runs until its declared limit. With --pending, the
CPU time of one forecast of so many waiting workloads in one tree. With --floor, the errors of plays
that are given what no forecast has: see `benchmarks.forecast.floor`.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from pathlib import Path

from admittance.forecast.arrivals import Arrivals
from admittance.forecast.forecast import Memory, Rows, forecast
from admittance.forecast.played import QueueRules
from admittance.forecast.rows import Holding, Source, Waiting
from admittance.forecast.run_times import RunTimes
from admittance.quota.cell import Quota
from admittance.quota.tree import Tree
from admittance.runtime.process.startup import collect_garbage_less_often

from .days import CASES, Day
from .floor import FLOOR_HEAD, floor_line, floor_of
from .score import CPU, Score, score

HEAD = (
    "seed load urgent | workloads asked unknown | inside width | error mean-wait limits ratio | ms"
)


def line(found: Score) -> str:
    """A score as a line under `HEAD`; errors are in minutes."""
    day: Day = found.day
    return (
        f"{day.seed:4} {day.load:4.2f} {day.urgent:6.2f} | {found.workloads:9} {found.questions:5} "
        f"{found.unknown:7} | {found.inside:6.2f} {found.width:5.1f} | {found.error:5.0f} "
        f"{found.naive_error:9.0f} {found.limits_error:6.0f} {found.ratio:5.2f} | "
        f"{found.cpu_ms:4.0f}"
    )


def cpu_seconds(pending: int) -> float:
    """CPU seconds of one forecast of so many workloads that wait in a tree of five queues."""
    chance = random.Random(1)
    tree = Tree()
    names = [f"q{number}" for number in range(5)]
    rules = {name: QueueRules(tree.set_queue(name, "all", {CPU: Quota(32_000)})) for name in names}
    memory = Memory(RunTimes(), Arrivals(0.0))
    waiting, holding = [], []
    for number in range(pending):
        queue = names[number % 5]
        source = Source(queue, f"u{number % 25}", f"s{number % 70}.py")
        need = ((CPU, chance.choice((1000, 2000, 4000))),)
        key = ("ns", f"w{number}")
        if number < 1000:
            memory.run_times.add(source, chance.lognormvariate(5, 1), float(number))
        if number < 60:
            rules[queue].node.cell(CPU).charge(need[0][1])
            holding.append(Holding(key, queue, need, 999.0, source))
        waiting.append(Waiting(key, queue, float(number), ((need,),), source, number % 3))
    before = time.process_time()
    forecast(Rows(rules, waiting, holding), memory, 20_000.0, chance.random)
    return time.process_time() - before


def main() -> None:
    """Prints the scores."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--case", type=int, action="append", choices=range(len(CASES)))
    parser.add_argument("--pending", type=int, help="CPU time with so many waiting workloads")
    parser.add_argument(
        "--questions",
        type=int,
        default=3,
        metavar="N",
        help="how many waiting workloads are asked about each hour (3); with many, the errors of "
        "two versions can be compared",
    )
    parser.add_argument("--floor", action="store_true", help="the errors that remain at best")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the figures as JSON, too")
    options = parser.parse_args()
    if options.questions < 1:
        parser.error(f"--questions {options.questions}: ask about at least one workload")
    collect_garbage_less_often()
    figures: dict[str, object] = {}
    if options.pending is not None:
        seconds = figures["cpuSeconds"] = round(cpu_seconds(options.pending), 2)
        print(f"one forecast of {options.pending:,} waiting workloads: {seconds} s of CPU")  # noqa: T201
    cases = options.case or range(len(CASES))
    if options.floor:
        print(FLOOR_HEAD)  # noqa: T201
        figures["floors"] = floors = []
        for case in cases:
            floor = floor_of(CASES[case], options.questions)
            floors.append({"day": CASES[case]._asdict(), **floor})
            print(floor_line(CASES[case], floor), flush=True)  # noqa: T201
    elif options.pending is None or options.case:
        print(HEAD)  # noqa: T201
        scores = []
        for case in cases:
            found = score(CASES[case], options.questions)
            scores.append({**found._asdict(), "day": found.day._asdict(), "ratio": found.ratio})
            print(line(found), flush=True)  # noqa: T201
        figures["days"] = scores
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
