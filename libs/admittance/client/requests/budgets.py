"""Budgets with what the budget-controller sums and does not store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from admittance.client.errors import RequestFailed
from admittance.client.kinds import BUDGET, ObjectKind
from admittance.client.requests.budget_states import budget_states
from admittance.client.requests.link import Link
from admittance.client.requests.objects import OF_NAMESPACES, BucketObject
from admittance.events.requests.budgets import BudgetState

OF_SPEC: Final = ("budget", "per", "window", "unit")
"""The fields of `BudgetState` that are no part of the status."""


class KnownBudgets(NamedTuple):
    """Budgets with their states. ``why``: why their states are not known; "": they are."""

    budgets: list[BucketObject]
    states: Mapping[str, BudgetState]
    why: str = ""


async def with_states(link: Link, kind: ObjectKind, stored: Sequence[BucketObject]) -> KnownBudgets:
    """Adds what is used, limits and waits to budgets, in ``status``, with the fields of
    `BudgetState`; returns objects of other kinds unchanged, and those of a user of single
    namespaces, which have it. If the budget-controller does not answer, budgets have no status."""
    if kind is not BUDGET or not stored or link.bus.nc.role in OF_NAMESPACES:
        return KnownBudgets(list(stored), {})
    try:
        known = await budget_states(link, stored[0].name if len(stored) == 1 else "")
    except RequestFailed as error:
        return KnownBudgets(list(stored), {}, str(error))
    states = {state.budget: state for state in known}
    return KnownBudgets([_with_state(each, states.get(each.name)) for each in stored], states)


def _with_state(stored: BucketObject, state: BudgetState | None) -> BucketObject:
    """The budget with its state; None: the budget-controller has not read it."""
    if state is None:
        return stored
    try:
        value = stored.plain()
    except RequestFailed:
        return stored  # the value is not JSON, and is reported where it is shown
    status = msgspec.to_builtins(state)
    value["status"] = {name: status[name] for name in status if name not in OF_SPEC}
    return BucketObject(stored.key, msgspec.json.encode(value), stored.revision)
