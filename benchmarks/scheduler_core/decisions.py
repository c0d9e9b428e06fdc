"""The cost of decisions if all heads fit, of arrivals, and of both with many pending workloads."""

from __future__ import annotations

import gc
import statistics
from datetime import timedelta
from pathlib import Path

import msgspec

from admittance.events.facts import Assigned
from admittance.scheduling.state.config import Config

from .bench import START, Bench, a_workload, clock, condition, with_status


def arrival_microseconds(queues: int, count: int) -> float:
    """Microseconds for a new pending workload."""
    bench = Bench(queues)
    made = bench.workloads(count)
    before = clock()
    bench.apply_all(made)
    return (clock() - before) / count * 1e6


def decision_microseconds(queues: int, count: int) -> tuple[float, float]:
    """Microseconds for a decision if all heads fit: of the cycles alone, and with the changes that
    the decisions cause in the state."""
    bench = Bench(queues)
    made = {workload.metadata.name: workload for workload in bench.workloads(count)}
    bench.apply_all(list(made.values()))
    cycling = echoing = 0.0
    decided = 0
    holding = condition("QuotaReserved", START), condition("Admitted", START)
    while bench.core.has_work():
        before = clock()
        assigned = bench.core.cycle(now=START)
        cycling += clock() - before
        decided += len(assigned)
        echoes = [
            with_status(made[decision.name], *holding, admission=decision.admission)
            for decision in assigned
            if isinstance(decision, Assigned)
        ]
        before = clock()
        bench.apply_all(echoes)
        echoing += clock() - before
    assert decided == count, (decided, count)
    return cycling / count * 1e6, (cycling + echoing) / count * 1e6


def admission_microseconds(pending: int, *, rounds: int = 3_000) -> float:
    """Microseconds for an admission in one of 30 full queues with ``pending`` workloads: one
    workload finishes, the next is admitted, and the state contains that. The median of all rounds
    after the first quarter."""
    bench = Bench(30, nominal="60", config=Config(preemption=False))
    made = {workload.metadata.name: workload for workload in bench.workloads(pending)}
    bench.apply_all(list(made.values()))
    gc.collect()
    gc.freeze()
    finished = condition("Finished", START)
    holding = condition("QuotaReserved", START), condition("Admitted", START)
    now = START
    running: list[str] = []
    times: list[float] = []
    newest = pending
    for _ in range(rounds):
        spent = 0.0
        admitted = 0
        events = []
        # For each finished workload one like it arrives, so the number of pending workloads stays.
        for name in running[:1]:
            gone = made.pop(name)
            kin = a_workload(newest, 0, "1", 0)
            fresh = msgspec.structs.replace(kin, spec=gone.spec)
            made[fresh.metadata.name] = fresh
            events += [with_status(gone, finished), fresh]
            newest += 1
        del running[:1]
        now += timedelta(milliseconds=1)
        while True:
            before = clock()
            for event in events:
                bench.apply(event, now)
            decided = bench.core.cycle(now=now) if bench.core.has_work() else []
            spent += clock() - before
            admitted += len(decided)
            events = []
            for each in decided:
                assert isinstance(each, Assigned)
                running.append(each.name)
                events.append(with_status(made[each.name], *holding, admission=each.admission))
            if not events and not bench.core.has_work():
                break
        if admitted:
            times.append(spent / admitted)
    gc.unfreeze()
    return statistics.median(times[len(times) // 4 :]) * 1e6


def explain_milliseconds(queues: int, count: int) -> float:
    """Milliseconds to explain one workload in the middle of many pending ones."""
    bench = Bench(queues, nominal="0")
    bench.apply_all(bench.workloads(count))
    bench.core.cycle(now=START)
    times = []
    for n in range(count // 2, count // 2 + 50):
        before = clock()
        assert bench.core.explain("ns", f"w-{n}", now=START).position
        times.append(clock() - before)
    return statistics.median(times) * 1e3


def _resident() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


def bytes_per_workload(queues: int, count: int) -> float:
    """Bytes for a pending workload: the growth of the process while workloads are applied."""
    bench = Bench(queues)
    bench.apply_all(bench.workloads(1_000))
    gc.collect()
    before = _resident()
    for first in range(1_000, count + 1_000, 1_000):
        bench.apply_all(bench.workloads(1_000, first))
    gc.collect()
    return (_resident() - before) / count
