"""Mechanisms of budgets, each taken out as in `mutations`."""

from __future__ import annotations

from typing import Any, Final

from admittance.budget_controller.usage_reader import UsageReader
from admittance.budgets.account_sums import AccountSums
from admittance.budgets.decisions import BudgetDecisions
from admittance.budgets.holders import Holder
from simulation.hunting.mutations import Mutation, Patch
from simulation.plots.catalog import budgeted

_OVER: Final = "is approved, and .* books"


def _without_approvals(_: BudgetDecisions, holder: Holder, check: str) -> bool:
    """What is approved counts for nothing until its job may start."""
    row = holder.rows.get(check)
    return not holder.waits or row is None


def _do_nothing(*_: Any) -> None:
    pass


async def _load_nothing(*_: Any) -> None:
    pass


BUDGET_MUTATIONS: Final = {
    "two jobs would be approved for what is left for one": Mutation(
        (Patch(BudgetDecisions, "_may_run", _without_approvals),), budgeted, _OVER, 64
    ),
    "jobs that have ended would have used nothing": Mutation(
        (Patch(AccountSums, "apply_sums", _do_nothing),), budgeted, _OVER, 5
    ),
    "a new leader would not read what was summed before the log begins": Mutation(
        (Patch(UsageReader, "_load", _load_nothing),), budgeted, _OVER, 14
    ),
}
"""By what would happen without the mechanism."""
