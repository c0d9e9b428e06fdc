"""What a budget has used and what waits for it, as people and programs read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from math import inf
from typing import Final

from admittance.budgets.decisions import BudgetDecisions
from admittance.budgets.rules import BudgetRules, hundredths, window_of
from admittance.budgets.verdicts import Account
from admittance.events.requests.budgets import BudgetAccount, BudgetState, BudgetWait
from admittance.events.subjects import WorkloadName

ACCOUNTS_MAX: Final = 500
"""The most accounts of a budget in an answer, and in the metrics."""
WAITING_MAX: Final = 50
"""The most workloads in an answer."""


def state_of(decisions: BudgetDecisions, name: str, now: datetime) -> BudgetState:
    """The state of a stored budget. ``decisions`` has read the sums of its window; else the state
    has no accounts."""
    rules, checks = decisions.rules_of(name), decisions.checks_of(name)
    if rules is None or not checks:
        return BudgetState(budget=name)
    window = window_of(rules.window, now)
    accounts = accounts_of(rules, decisions.accounts(checks[0], now) or {})
    waits: dict[WorkloadName, datetime | None] = {}
    for check in checks:
        waits.update(decisions.waits_for(check, now))
    asked = [about for about, until in waits.items() if until is None]
    later = [(until, about) for about, until in waits.items() if until is not None]
    waiting = [*sorted(asked), *[about for _, about in sorted(later)]]
    return BudgetState(
        budget=name,
        checks=tuple(checks),
        window_begin=datetime.fromtimestamp(window.begin, UTC),
        window_end=datetime.fromtimestamp(window.end, UTC),
        accounts=tuple(accounts[:ACCOUNTS_MAX]),
        accounts_total=len(accounts),
        waiting=tuple(
            BudgetWait(namespace=about[0], name=about[1], until=waits[about])
            for about in waiting[:WAITING_MAX]
        ),
        waiting_total=len(waiting),
    )


def accounts_of(rules: BudgetRules, accounts: Mapping[str, Account]) -> Sequence[BudgetAccount]:
    """The accounts that have used something, and those with a limit of their own."""

    def part(name: str) -> float:
        """The part of its limit that the account has used and may use."""
        account, limit = accounts.get(name, Account(name)), rules.limit_of(name)
        booked = account.used + account.ahead
        if limit is None:
            return -inf
        if not limit:
            return inf if booked else 0.0
        return float(booked / limit)

    names = sorted(accounts.keys() | rules.named_limits(), key=lambda name: (-part(name), name))
    found = []
    for name in names:
        account, limit = accounts.get(name, Account(name)), rules.limit_of(name)
        found.append(
            BudgetAccount(
                name=name,
                used=float(hundredths(account.used)),
                ahead=float(hundredths(account.ahead)),
                limit=None if limit is None else float(limit),
            )
        )
    return found
