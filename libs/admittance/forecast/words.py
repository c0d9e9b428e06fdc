"""The words of a forecast: on which runs it rests, and what would let an unknown start be known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from admittance.forecast.forecast import HORIZON, Rows
from admittance.forecast.rows import Holding, Source
from admittance.forecast.run_times import Basis, RunTimes, levels
from admittance.scheduling.state.flavor_plan import NO_PREEMPTION

FROM_LIMITS = "from declared limits alone: no run of such a workload has ended yet"


def basis_words(basis: Basis, source: Source) -> str:
    """Such as ``34 runs of train.py by ada``."""
    by = f" by {source.user}" if source.user else ""
    of = {
        "array": "of its array",
        "script": f"of {source.script}{by}",
        "user": f"in {source.queue}{by}",
        "queue": f"in {source.queue}",
    }.get(basis.level[0], "in all queues")
    return f"{basis.runs} run{'s' * (basis.runs != 1)} {of}"


def basis_of(
    own: Source, holding: Iterable[Holding], run_times: RunTimes, queue: str, namespace: str
) -> str:
    """On which runs the forecast for a workload rests: the runs that show when the workloads end
    that hold quota of its ClusterQueue, or of other queues if none of its own does. Of these runs
    those are named that stand for the most workloads. ``own``: the source of the workload, which
    counts if nothing holds quota. Script and user are named only for workloads of the
    ``namespace``.
    """
    held = list(holding)
    near = [each for each in held if each.queue == queue] or held
    sources = [
        each.source if each.key[0] == namespace else Source(each.source.queue) for each in near
    ]
    counted: Counter[str] = Counter()
    for source in sources or [own]:
        basis = run_times.basis(source)
        if basis is not None:
            counted[basis_words(basis, source)] += 1
    if not counted:
        return FROM_LIMITS
    first = min(counted, key=lambda words: (-counted[words], words))
    others = len(counted) - 1
    more = f" and {others} other group{'s' * (others != 1)} of runs" if others else ""
    return f"from {first}{more}"


def played_words(rows: Rows) -> str:
    """What the forecast of a tree played beside quota and the order of queues, and what it did not
    play; "": quota and order were all there was. Such as ``, with preemption and backfill``."""
    queues = rows.queues.values()
    names = {
        "preemption": any(rules.policy is not NO_PREEMPTION for rules in queues),
        "fair sharing": rows.strategies is not None,
        "backfill": any(rules.backfill for rules in queues),
    }
    played = [name for name, is_used in names.items() if is_used]
    most, last = ", ".join(played[:-1]), played[-1:]
    words = " and ".join(each for each in (most, *last) if each)
    without = ", without migrations of variants" if rows.migrates else ""
    return (f", with {words}" if words else "") + without


def why_not_found(holding: Iterable[Holding], run_times: RunTimes) -> str:
    """Why plays found no start of a workload that could start, and what would let it be known."""
    unlimited = [
        each
        for each in holding
        if each.limit is None and not any(run_times.values(level) for level in levels(each.source))
    ]
    if unlimited:
        count = len(unlimited)
        what = "1 workload that holds" if count == 1 else f"{count} workloads that hold"
        have = "has" if count == 1 else "have"
        return (
            f"{what} quota {have} no time limit, and no earlier run shows how long it "
            "takes: submit with --time"
        )
    return f"it does not start within {HORIZON / 86_400:g} days in most plays"
