"""What budgets have used, as the budget-controller answers."""

from __future__ import annotations

from admittance.client.errors import RequestFailed
from admittance.client.requests.link import Link
from admittance.events.requests.budgets import Budgets, BudgetsReply, BudgetState


async def budget_states(
    link: Link, budget: str = "", namespace: str | None = None
) -> list[BudgetState]:
    """The states of budgets by name, of as many answers as they need. ``budget``: only this one;
    "": all. ``namespace``: only what is the namespace's own; None: the whole states. Raises
    RequestFailed."""
    states: list[BudgetState] = []
    more = True
    while more:
        asked = Budgets(budget=budget, after=states[-1].budget if states else "")
        reply = await link.ask("budgets", asked, BudgetsReply, namespace=namespace)
        if reply.error:
            raise RequestFailed(reply.error)
        states += reply.budgets
        more = reply.more and bool(reply.budgets)
    return states
