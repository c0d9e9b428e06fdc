"""Budget (not in Kueue): how much each queue, namespace or user may use in a window of time. An
AdmissionCheck of the controller `BUDGET_CONTROLLER` names it in its parameters."""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias

import msgspec

from admittance.api.fields.limits import (
    Description,
    LabelKey,
    NameOrNone,
    Positive,
    Quantity,
    field_rule,
    list_rule,
    one_of,
)
from admittance.api.fields.problems import FORBIDDEN, REQUIRED, Problem
from admittance.api.fields.units import parse, quantity_error
from admittance.api.fields.usage_units import unit_named
from admittance.api.meta import ObjectMeta, Strict

BUDGET_CONTROLLER: Final = "admittance.dev/budget"
"""The check controller that keeps budgets."""
VERSION: Final = "admittance.dev/v1"
OWNERS: Final = ("ClusterQueue", "LocalQueue", "Namespace", "User")
WINDOWS: Final = ("Day", "Week", "Month", "Year")
COST: Final = "cost"
"""The unit of a budget that counts money."""
LIMITS_MAX: Final = 1_000
PRICES_MAX: Final = 100
UNIT_MAX: Final = 400
_BYTES: Final = ("memory", "ephemeral-storage")


def _unit_error(name: str) -> str:
    try:
        if name != COST:
            unit_named(name)
    except ValueError as error:
        return f"{error}, or {COST}"
    return ""


def _limit_errors(limits: dict[str, str | int | float]) -> list[Problem]:
    problems = [Problem("", "has a limit without a name")] if "" in limits else []
    for name, limit in limits.items():
        if error := quantity_error(limit):
            problems.append(Problem(f"[{name[:60]}]", error))
    return problems


Owner: TypeAlias = Annotated[str, one_of(OWNERS, required=True)]
Window: TypeAlias = Annotated[str, one_of(WINDOWS, required=True)]
Unit: TypeAlias = Annotated[
    str, field_rule(required=True, syntax=_unit_error, minLength=1, maxLength=UNIT_MAX)
]
Limits: TypeAlias = Annotated[
    dict[str, Quantity],
    field_rule(
        what="limits",
        entries=_limit_errors,
        propertyNames={"minLength": 1},
        maxProperties=LIMITS_MAX,
    ),
]


class BudgetPrice(Strict, frozen=True, kw_only=True):
    """What ``per`` of a resource costs for an hour. ``resource`` "gpu": the GPUs of all vendors.
    ``flavor`` "": of each flavor without a price of its own."""

    resource: LabelKey
    flavor: NameOrNone = ""
    per_hour: Quantity
    per: Quantity = 1


class BudgetSpec(Strict, frozen=True, kw_only=True):
    """``limit``: of each queue, namespace or user without an own one in ``limits``; None: these
    have no limit. A LocalQueue is named ``namespace/queue``. ``max_delay_seconds``: a workload
    over its budget asks again after so long at the latest; None: when the next window begins, or
    after the longest delay of a check."""

    per: Owner = ""
    window: Window = ""
    unit: Unit = ""
    limit: Quantity | None = None
    limits: Limits = msgspec.field(default_factory=dict)
    prices: Annotated[tuple[BudgetPrice, ...], list_rule(PRICES_MAX, "prices")] = ()
    currency: Description = ""
    max_delay_seconds: Positive | None = None


class Budget(Strict, frozen=True, kw_only=True):
    """A budget. The windows begin at midnight in UTC; a week begins on Monday. ``status``: what is
    used of it, in answers only; it is not stored."""

    api_version: str = VERSION
    kind: str = "Budget"
    metadata: ObjectMeta = ObjectMeta()
    spec: BudgetSpec = BudgetSpec()
    status: Any = None


def check_budget(budget: Budget) -> list[Problem]:
    """The problems of several fields together."""
    spec = budget.spec
    problems: list[Problem] = []
    if spec.limit is None and not spec.limits:
        message = "must be set, or limits must have an entry: a budget limits something"
        problems.append(Problem("spec.limit", message, REQUIRED))
    if spec.unit == COST and not spec.prices:
        message = f"must have a price: the unit of the budget is {COST}"
        problems.append(Problem("spec.prices", message, REQUIRED))
    if spec.unit != COST and (spec.prices or spec.currency):
        field = "spec.prices" if spec.prices else "spec.currency"
        message = f"must be left out: only a budget with the unit {COST} has prices"
        problems.append(Problem(field, message, FORBIDDEN))
    return problems + _price_problems(spec.prices)


def _price_problems(prices: tuple[BudgetPrice, ...]) -> list[Problem]:
    problems: list[Problem] = []
    seen: set[tuple[str, str]] = set()
    for number, price in enumerate(prices):
        field = f"spec.prices[{number}]"
        if (price.resource, price.flavor) in seen:
            of_flavor = f" of flavor {price.flavor}" if price.flavor else ""
            problems.append(Problem(field, f"is a second price of {price.resource}{of_flavor}"))
        seen.add((price.resource, price.flavor))
        if not quantity_error(price.per) and not parse(price.per):
            problems.append(Problem(f"{field}.per", f"must be more than 0, not {price.per}"))
        elif price.resource in _BYTES and price.per == 1:
            message = f"must say for how much {price.resource} the price is, such as 1Gi"
            problems.append(Problem(f"{field}.per", message, REQUIRED))
    return problems
