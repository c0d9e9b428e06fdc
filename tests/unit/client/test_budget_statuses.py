"""Budgets as clients get them: with what the budget-controller sums and does not store."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from admittance.client.errors import NotFound, RequestFailed
from admittance.client.kinds import BUDGET, FLAVOR
from admittance.client.requests.budgets import with_states
from admittance.client.requests.objects import BucketObject, find, find_all
from admittance.events.requests.budgets import (
    BudgetAccount,
    Budgets,
    BudgetsReply,
    BudgetState,
)

STORED = [
    BucketObject(f"budget.{name}", json.dumps({"kind": "Budget"}).encode(), 1)
    for name in ("a", "b", "c")
]
ACCOUNT = BudgetAccount(name="team-a", used=1.5, limit=4)


class Controller:
    """A link to a budget-controller that answers one budget per page; ``error``: it answers
    none."""

    def __init__(
        self, *, error: str = "", reply: BudgetsReply | None = None, role: str = ""
    ) -> None:
        self.namespace = "default"
        self.asked: list[tuple[Budgets, str | None]] = []
        self.bus = SimpleNamespace(nc=SimpleNamespace(role=role))
        self._error = error
        self._reply = reply

    async def ask(
        self, _what: str, asked: Budgets, _reply: object, *, namespace: str | None = None
    ) -> BudgetsReply:
        self.asked.append((asked, namespace))
        if self._error:
            raise RequestFailed(self._error)
        if self._reply is not None:
            return self._reply
        if asked.after:
            return BudgetsReply(budgets=(BudgetState(budget="b"),))
        state = BudgetState(budget="a", checks=("x",), accounts=(ACCOUNT,), accounts_total=1)
        return BudgetsReply(budgets=(state,), more=True)


async def test_budgets_have_what_is_used_of_them() -> None:
    known = await with_states(cast(Any, Controller()), BUDGET, STORED)
    statuses = [budget.plain().get("status") for budget in known.budgets]
    account = {"name": "team-a", "used": 1.5, "limit": 4.0}
    assert statuses == [{"checks": ["x"], "accounts": [account], "accountsTotal": 1}, {}, None]


async def test_without_the_budget_controller_budgets_have_no_status() -> None:
    for link in (Controller(error="why"), Controller(reply=BudgetsReply(error="why"))):
        known = await with_states(cast(Any, link), BUDGET, STORED)
        assert (known.budgets, known.why) == (STORED, "why")


async def test_objects_of_other_kinds_get_no_status() -> None:
    assert (await with_states(cast(Any, None), FLAVOR, STORED)).budgets == STORED


async def test_a_user_of_a_namespace_gets_what_concerns_it() -> None:
    """Users of single namespaces may not read Budgets: the answer has their part of the spec."""
    own = BudgetState(
        budget="a", per="Namespace", window="Month", unit="gpu-hours", accounts=(ACCOUNT,)
    )
    user = Controller(reply=BudgetsReply(budgets=(own,)), role="user")
    link = cast(Any, user)
    [budget], unreadable = await find_all(link, BUDGET, "team-a")
    assert (budget.name, unreadable) == ("a", [])
    assert budget.plain()["spec"] == {
        "per": "Namespace",
        "window": "Month",
        "unit": "gpu-hours",
        "limits": {"team-a": 4.0},
    }
    assert budget.plain()["status"] == {"accounts": [{"name": "team-a", "used": 1.5, "limit": 4.0}]}
    assert (await with_states(link, BUDGET, [budget])).budgets == [budget]
    assert await find(link, BUDGET, "a") == budget
    assert user.asked == [(Budgets(), "team-a"), (Budgets(budget="a"), "default")]
    with pytest.raises(NotFound, match="no budget b has an account or a waiting workload of x"):
        await find(cast(Any, Controller(reply=BudgetsReply(), role="user")), BUDGET, "b", "x")
