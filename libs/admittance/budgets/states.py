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
    if rules is None:
        return BudgetState(budget=name)
    if not checks:
        return BudgetState(budget=name, per=rules.per, window=rules.window, unit=rules.unit)
    accounts = accounts_of(rules, decisions.accounts(checks[0], now) or {})
    return _state(rules, checks, accounts, _waits(decisions, checks, now), now)


def state_in(
    decisions: BudgetDecisions, name: str, namespace: str, now: datetime
) -> BudgetState | None:
    """What is the namespace's own of the state of a budget: its account and those of its
    LocalQueues, and its workloads that wait. None: it has neither. Accounts of ClusterQueues and
    users count what other namespaces use, and are left out."""
    rules, checks = decisions.rules_of(name), decisions.checks_of(name)
    if rules is None or not checks:
        return None
    known = decisions.accounts(checks[0], now) or {}
    if rules.per == "Namespace" and rules.limit_of(namespace) is not None:
        known.setdefault(namespace, Account(namespace))
    accounts = [
        account
        for account in accounts_of(rules, known)
        if (rules.per == "Namespace" and account.name == namespace)
        or (rules.per == "LocalQueue" and account.name.startswith(f"{namespace}/"))
    ]
    waits = {
        about: until
        for about, until in _waits(decisions, checks, now).items()
        if about.namespace == namespace
    }
    return _state(rules, checks, accounts, waits, now) if accounts or waits else None


def _waits(
    decisions: BudgetDecisions, checks: Sequence[str], now: datetime
) -> dict[WorkloadName, datetime | None]:
    waits: dict[WorkloadName, datetime | None] = {}
    for check in checks:
        waits.update(decisions.waits_for(check, now))
    return waits


def _state(
    rules: BudgetRules,
    checks: Sequence[str],
    accounts: Sequence[BudgetAccount],
    waits: Mapping[WorkloadName, datetime | None],
    now: datetime,
) -> BudgetState:
    window = window_of(rules.window, now)
    asked = [about for about, until in waits.items() if until is None]
    later = [(until, about) for about, until in waits.items() if until is not None]
    waiting = [*sorted(asked), *[about for _, about in sorted(later)]]
    return BudgetState(
        budget=rules.name,
        per=rules.per,
        window=rules.window,
        unit=rules.unit,
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
