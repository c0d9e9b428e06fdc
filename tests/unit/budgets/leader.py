"""The decisions of one leader of the budget-controller, and the sums that it has read."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from admittance.budgets.decisions import BudgetDecisions, BudgetVerdict
from admittance.budgets.holders import holder_of
from admittance.usage.fold import UsageFold
from admittance.usage.runs import Run
from admittance.usage.summary import Summary, SummaryKey
from admittance.workload.stored import StoredWorkload
from support.builders import NOON
from unit.budgets.budgeted import a_budget, a_check

DELAY = timedelta(days=7)


class Leader:
    """``changed``: the summaries that the decisions have not read; None: all of them."""

    def __init__(self, **spec: Any) -> None:
        self.decisions = BudgetDecisions(DELAY)
        self.decisions.apply_check("budget", a_check())
        self.decisions.apply_budget("b", a_budget(**spec))
        self.fold = UsageFold()
        self.changed: set[SummaryKey] | None = None

    def reads(self, *runs: Run) -> None:
        for about in self.fold.needed(runs):
            self.fold.summaries[about] = Summary()
        self.fold.fold(runs)
        if self.changed is not None:
            self.changed |= self.fold.dirty
        for run in runs:
            self.decisions.apply_run(run)

    def sees(self, *workloads: StoredWorkload, now: datetime = NOON) -> None:
        for workload in workloads:
            meta = workload.metadata
            self.decisions.apply_workload(meta.namespace, meta.name, workload, now)

    def sums(self, now: datetime = NOON) -> None:
        self.decisions.apply_sums(self.fold.summaries, self.decisions.periods(now), self.changed)
        self.changed = set()
        self.fold.dirty.clear()

    def decides(self, now: datetime = NOON) -> list[BudgetVerdict]:
        self.sums(now)
        return self.decisions.decide(now)

    def says(self, now: datetime = NOON) -> list[tuple[str, str]]:
        return [(v.holder.name, v.answer.state) for v in self.decides(now)]


def ended(workload: StoredWorkload, until: datetime, sequence: int = 1) -> Run:
    """The report of the end of the workload's quota."""
    holder = holder_of(workload)
    assert holder is not None
    return holder.run._replace(until=int(until.timestamp()), sequence=sequence)
