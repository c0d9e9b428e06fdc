"""How long `admit history` and `admit usage` take on a log with many runs.

``python -m benchmarks.accounting [--runs 10000] [--beside-runs 10000] [--days 365] [--rounds 5]``

Starts `admit up --insecure` without a runner, publishes facts about released quota, evenly over
the days, of 30 ClusterQueues and 10 users, with other facts beside them, and then asks.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import date, timedelta
from statistics import median

from admittance.bench.connection import connected
from admittance.bench.system import embedded
from admittance.client.requests import past, usage
from admittance.client.requests.link import Link
from admittance.events.codec import encode
from admittance.events.facts import Noted, QuotaReleased
from admittance.events.shapes import Admission, PodSetAssignment
from admittance.events.subjects import subject_of
from admittance.runtime import clock
from admittance.runtime.bus.bus import Outgoing
from benchmarks.harness.program import Option, run_program

QUEUES, USERS, FLAVORS = 30, 10, 2
BATCH = 500


def released(number: int, runs: int, days: int) -> Outgoing:
    """A fact about a run of ten minutes."""
    end = clock.now() - timedelta(days=days) * ((runs - number) / runs)
    usage = {"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "1"}
    flavor = f"flavor-{number % FLAVORS}"
    fact = QuotaReleased(
        namespace=f"team-{number % QUEUES}",
        name=f"train-{number}",
        uid=f"c2f1a5d6-0000-4000-8000-{number:012}",
        time=end,
        revision=number + 2,
        reason="Preempted" if number % 10 == 0 else "Succeeded",
        since=end - timedelta(minutes=10),
        until=end,
        admission=Admission(
            cluster_queue=f"queue-{number % QUEUES}",
            pod_set_assignments=(
                PodSetAssignment(
                    name="main", count=1, flavors=dict.fromkeys(usage, flavor), resource_usage=usage
                ),
            ),
        ),
        admission_revision=number + 1,
        ended=number % 10 != 0,
        queue="research",
        submitted_by=f"user-{number // QUEUES % USERS}",
        labels={"project": f"project-{number % 7}"},
        waited_seconds=30,
        submitted_at=end - timedelta(minutes=11),
        machines=(f"gpu-{number % 16}",),
        preempted_by=f"team-{number % 7}/big" if number % 10 == 0 else "",
        fact=number + 1,
    )
    return Outgoing(subject_of(fact), encode(fact))


def beside(number: int) -> Outgoing:
    """A fact of another kind."""
    fact = Noted(
        namespace=f"team-{number % QUEUES}", name=f"w-{number}", revision=1, message="x" * 400
    )
    return Outgoing(subject_of(fact), encode(fact))


async def _timed(ask: Callable[[], Awaitable[int]], rounds: int) -> str:
    seconds, rows = [], 0
    for _ in range(rounds):
        begin = time.perf_counter()
        rows = await ask()
        seconds.append(time.perf_counter() - begin)
    return f"{1000 * median(seconds):.0f} ms (first {1000 * seconds[0]:.0f}), {rows:,} rows"


async def measured(*, runs: int, beside_runs: int, days: int, rounds: int) -> list[str]:
    """The figures, one line for each question."""
    async with embedded("--no-runner") as child, connected(child.url, child.access) as link:
        for begin in range(0, runs, BATCH):
            batch = [released(n, runs, days) for n in range(begin, min(runs, begin + BATCH))]
            await link.bus.publish_all(batch)
        for begin in range(0, beside_runs, BATCH):
            await link.bus.publish_all([beside(n) for n in range(begin, begin + BATCH)])
        return [line async for line in _figures(link, runs, days, rounds)]


async def _figures(link: Link, runs: int, days: int, rounds: int) -> AsyncIterator[str]:
    since = clock.now() - timedelta(days=days + 1)
    first: date = since.date()

    async def history() -> int:
        return len((await past.history(link, None, since=since)).rows)

    async def history_of_one() -> int:
        return len((await past.history(link, "team-3", since=since)).rows)

    yield f"history of {runs:,} runs: {await _timed(history, rounds)}"
    yield f"history of one namespace of {QUEUES}: {await _timed(history_of_one, rounds)}"
    for by in (
        (),
        ("user",),
        ("cluster-queue", "namespace", "queue", "user", "flavor"),
        ("day",),
        ("label:project",),
    ):

        async def sums(by: tuple[str, ...] = by) -> int:
            return len((await usage.usage(link, by, first, None, None)).sums)

        name = ",".join(by) or "nothing"
        yield f"usage of {days} days by {name}: {await _timed(sums, rounds)}"


if __name__ == "__main__":
    run_program(
        measured,
        __doc__,
        Option("--runs", 10_000, least=1),
        Option("--beside-runs", 10_000, "other facts on the log", least=0),
        Option("--days", 365, least=1),
        Option("--rounds", 5, least=1),
    )
