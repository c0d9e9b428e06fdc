"""The minimum run time: for how long an admitted workload may not be preempted. Source:
`docs/spec/scheduling.md#6.9`.

The setting (minRunSeconds) is that of the workload's WorkloadPriorityClass, or of the ClusterQueue
of its quota if its class has none. The time counts from the moment when all pods of the workload
were ready for the first time, and from its admission until then. A reservation does not run, so it
is not protected."""

from __future__ import annotations

from collections.abc import Container
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from admittance.scheduling.state.flavor_plan import MinRun, MinRuns
from admittance.scheduling.state.workload_info import WorkloadInfo

_SECOND: Final = timedelta(seconds=1)


class Youth(NamedTuple):
    """Until when a workload has not run long enough, and the setting that says so."""

    until: datetime
    rule: MinRun


def youth_of(min_runs: MinRuns, workload: WorkloadInfo, now: datetime) -> Youth | None:
    """Returns until when the workload is too young to be preempted; None: it has run long enough,
    has no minimum run time, or is leaving already."""
    run, held = workload.run, workload.charge
    if run is None or held is None or workload.is_leaving:
        return None
    rule = min_runs.of(held.queue.name, run.priority_class)
    if rule is None:
        return None
    until = run.since + rule.least
    return Youth(until, rule) if now < until else None


def may_not_preempt(min_runs: MinRuns, workload: WorkloadInfo, now: datetime) -> Youth | None:
    """Returns until when no workload may preempt this one; None: it may be preempted now, perhaps
    only if no other workloads make enough room."""
    youth = youth_of(min_runs, workload, now) if min_runs else None
    return youth if youth is not None and youth.rule.is_required else None


def when_old(youth: Youth, now: datetime) -> str:
    """Returns when a young workload may be preempted, in words: ``in 4 min (minRunSeconds of
    ClusterQueue a)``. Rounds up to the smaller unit."""
    left = -((now - youth.until) // _SECOND)
    if left < 60:
        text = f"{left} s"
    else:
        minutes = -(-left // 60)
        hours, rest = divmod(minutes, 60)
        text = f"{minutes} min" if not hours else f"{hours} h {rest} min" if rest else f"{hours} h"
    return f"in {text} (minRunSeconds of {youth.rule.source})"


def with_youth(message: str, min_runs: MinRuns, victim: WorkloadInfo, now: datetime) -> str:
    """Returns the message of a preemption. If the victim is younger than its minRunSeconds, the
    message says why it is preempted in spite of that."""
    if not min_runs or (youth := youth_of(min_runs, victim, now)) is None:
        return message
    return (
        f"{message}. It has not run for minRunSeconds of {youth.rule.source}, but no other "
        "workloads make enough room"
    )


class NotVictims(Container[WorkloadInfo]):
    """The workloads that must not be victims of one nomination: those in ``gone``, and those that
    are too young at ``now``.

    ``until``: when the first of the young workloads that `in` was asked about has run long enough;
    None: none of them was too young."""

    __slots__ = ("_gone", "_min_runs", "_now", "_spared_preferred", "_spares_preferred", "until")

    def __init__(self, gone: Container[WorkloadInfo], min_runs: MinRuns, now: datetime) -> None:
        self._gone = gone
        self._min_runs = min_runs
        self._now = now
        self._spares_preferred = True
        self._spared_preferred = False
        self.until: datetime | None = None

    def __contains__(self, workload: object) -> bool:
        assert isinstance(workload, WorkloadInfo)
        if workload in self._gone:
            return True
        youth = youth_of(self._min_runs, workload, self._now)
        if youth is None or not (youth.rule.is_required or self._spares_preferred):
            return False
        self._spared_preferred |= not youth.rule.is_required
        if self.until is None or youth.until < self.until:
            self.until = youth.until
        return True

    def yields(self) -> bool:
        """From now on workloads with minRunPolicy Preferred may be victims in spite of their age.
        Returns whether a workload was left out that may be a victim now."""
        self._spares_preferred = False
        spared, self._spared_preferred = self._spared_preferred, False
        return spared
