"""A weekly budget per namespace; what was spent, Prometheus knows. The user story 2 of KEP-993.

Over budget nothing new starts before the week turns, and what runs is stopped. The budget itself is
an object of a kind of its own (manifests.yaml); nothing of Admittance knows that kind.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import random
import signal
import sys
import time
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import urlopen

import msgspec
from running import Running
from weeks import week_of

from admittance.checks import AdmissionCheckController, Ready, Request, Retry, Withdrawal

ANSWER_SECONDS = 5.0
"""Limit for an answer of Prometheus."""
UNKNOWN_SECONDS = 60.0
"""Without an answer it is asked again after so long. Meanwhile nothing starts, and running jobs
continue."""


class Budget(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The spec of a Budget. ``limits``: per namespace; one that is not there has no limit.

    ``query`` answers one number, what was spent since the week began; ``$namespace`` and
    ``$elapsed`` (as ``3600s``) are filled in. ``maxDelaySeconds``: a held workload asks again
    after so long at the latest, so that a raised budget is noticed; else when the week turns.
    ``spreadSeconds``: held workloads come back at a random time within so long.
    """

    prometheus: str
    query: str
    limits: dict[str, float]
    reset_weekday: str = "Monday"
    reset_time: str = "00:00"
    timezone: str = "UTC"
    look_every_seconds: float = 30.0
    max_delay_seconds: float | None = None
    spread_seconds: float = 0.0

    def __post_init__(self) -> None:
        """A ValueError makes the AdmissionCheck inactive, with these words."""
        week_of(datetime.fromtimestamp(0, UTC), self.reset_weekday, self.reset_time, self.timezone)
        if not self.prometheus.startswith(("http://", "https://")):
            raise ValueError(f"prometheus {self.prometheus!r} is no URL")
        if self.look_every_seconds <= 0:
            raise ValueError("lookEverySeconds must be more than 0")


class Unknown(Exception):
    """Prometheus did not say what was spent."""


async def spent(budget: Budget, namespace: str, elapsed: timedelta) -> float:
    """What the namespace has spent since the week began. Raises Unknown."""
    query = budget.query.replace("$namespace", namespace)
    # A range has to be longer than nothing, also in the first second of a week.
    query = query.replace("$elapsed", f"{max(1, round(elapsed.total_seconds()))}s")
    url = f"{budget.prometheus.rstrip('/')}/api/v1/query?{urlencode({'query': query})}"
    return await asyncio.to_thread(_ask, url)


def _ask(url: str) -> float:
    try:
        with urlopen(url, timeout=ANSWER_SECONDS) as answer:
            found = json.load(answer)["data"]["result"]
        # Nothing was ever counted there: nothing was spent.
        amount = float(found[0]["value"][1]) if found else 0.0
        if math.isnan(amount):
            raise ValueError("it says NaN")
        return amount
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        why, where = getattr(error, "reason", None) or error, url.partition("/api/")[0]
        raise Unknown(f"{where} does not tell what was spent: {why}") from None


async def judged(budget: Budget, namespace: str, now: datetime) -> Ready | Retry:
    """Whether the namespace is within its budget. Raises Unknown."""
    limit = budget.limits.get(namespace)
    if limit is None:
        return Ready(f"namespace {namespace} has no budget to keep")
    begin, end = week_of(now, budget.reset_weekday, budget.reset_time, budget.timezone)
    amount = await spent(budget, namespace, now - begin)
    if amount < limit:
        return Ready(f"{amount:g} of the weekly {limit:g} are spent")
    after = (end - now).total_seconds() + random.uniform(0, budget.spread_seconds)
    if budget.max_delay_seconds is not None:
        after = min(after, budget.max_delay_seconds)
    week = end.isoformat(timespec="seconds").replace("+00:00", "Z")
    return Retry(
        f"weekly budget of {limit:g} is spent ({amount:g}); next week begins {week}", after=after
    )


# --- The check. -----------------------------------------------------------------------------------

controller = AdmissionCheckController("example.com/budget", parameters=Budget)
running = Running(Path(os.environ.get("ADMIT_DATA_DIR", ".")) / "budget-running.jsonl")
budgets: dict[str, Budget] = {}
"""By AdmissionCheck, as it came with the newest request; after a restart, as the file has it."""


def now() -> datetime:
    return datetime.fromtimestamp(time.time(), UTC)


@controller.check
async def decide(request: Request) -> Ready | Retry:
    budgets[request.check] = request.parameters
    try:
        verdict = await judged(request.parameters, request.namespace, now())
    except Unknown as error:
        return Retry(str(error), after=UNKNOWN_SECONDS)
    if isinstance(verdict, Ready):
        # From now on it is looked at again and again: see look().
        running.keep(request.reference, msgspec.json.encode(request.parameters))
    return verdict


@controller.withdrawn
async def forget(withdrawal: Withdrawal) -> None:
    """It was evicted, or it is finished."""
    running.forget(withdrawal.uid, withdrawal.check, withdrawal.cycle)


async def look() -> None:
    """Says Retry for workloads that run over budget, until the week turns."""
    groups = defaultdict(list)
    for reference, parameters in running.all():
        budgets.setdefault(reference.check, msgspec.json.decode(parameters, type=Budget))
        groups[reference.check, reference.namespace].append(reference)
    for (check, namespace), references in groups.items():
        try:
            verdict = await judged(budgets[check], namespace, now())
        except Unknown as error:
            sys.stderr.write(f"{namespace}: {error}; what runs goes on\n")
            continue
        if isinstance(verdict, Retry):
            for reference in references:
                await controller.report(reference, verdict)
                running.forget(reference.uid, reference.check, reference.cycle)


async def keep_looking(stop: asyncio.Event) -> None:
    while not stop.is_set():
        pause = min((one.look_every_seconds for one in budgets.values()), default=1.0)
        try:
            await asyncio.wait_for(stop.wait(), pause)
        except TimeoutError:
            await look()


async def main() -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    running.compact()
    await asyncio.gather(controller.serve(stop=stop), keep_looking(stop))


if __name__ == "__main__":
    asyncio.run(main())
