"""Budgets and their checks as users write them: the example of the page, and one line for each
mistake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from admittance.api.budgets import BUDGET_CONTROLLER
from admittance.api.reading.manifest import ManifestError, accept
from admittance.api.validation.validate import validate

PAGE = Path(__file__).resolve().parents[3] / "docs/budgets.md"


def said(manifest: Any) -> list[str]:
    try:
        return [str(problem) for problem in validate(accept(manifest).manifest)]
    except ManifestError as error:
        return str(error).splitlines()


def test_the_example_of_the_page_is_accepted() -> None:
    block = PAGE.read_text().partition("```yaml\n")[2].partition("```")[0]
    assert [said(manifest) for manifest in yaml.safe_load_all(block)] == [[], []]


def test_a_budget_may_be_applied_as_it_was_shown() -> None:
    block = PAGE.read_text().partition("```yaml\n")[2].partition("```")[0]
    budget = next(yaml.safe_load_all(block))
    assert said({**budget, "status": {"accounts": [{"name": "team-a", "used": 1}]}}) == []


ABSENT: Any = ...
PRICE = {"resource": "gpu", "perHour": "2.40"}
COST = {"unit": "cost", "prices": [PRICE]}
NO_UNIT = "a resource, such as cpu, gpu or gib, with -seconds, -minutes, -hours, -days, or cost"
LEFT_OUT = "must be left out: only a budget with the unit cost has prices"


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"window": ABSENT}, "window: must be set to one of Day, Week, Month, Year"),
        ({"window": "Hour"}, "window: 'Hour' is not one of Day, Week, Month, Year"),
        ({"per": ABSENT}, "per: must be set to one of ClusterQueue, LocalQueue, Namespace, User"),
        ({"per": "x"}, "per: 'x' is not one of ClusterQueue, LocalQueue, Namespace, User"),
        ({"unit": ABSENT}, "unit: must be set"),
        ({"unit": "gpu-ours"}, f'unit: "gpu-ours" is not a unit: {NO_UNIT}'),
        ({"unit": "hours"}, f'unit: "hours" is not a unit: {NO_UNIT}'),
        ({"limit": -1}, "limit: must not be negative, not -1"),
        ({"limits": {"a": -1}}, "limits[a]: must not be negative, not -1"),
        ({"limits": {"": 1}}, "limits: has a limit without a name"),
        ({"limit": ABSENT},
         "limit: must be set, or limits must have an entry: a budget limits something"),
        ({"maxDelaySeconds": 0}, "maxDelaySeconds: must be at least 1, not 0"),
        ({"unit": "cost"}, "prices: must have a price: the unit of the budget is cost"),
        ({"prices": [PRICE]}, f"prices: {LEFT_OUT}"),
        ({"currency": "EUR"}, f"currency: {LEFT_OUT}"),
        ({**COST, "prices": [PRICE, PRICE]}, "prices[1]: is a second price of gpu"),
        ({**COST, "prices": [{**PRICE, "flavor": "a"}] * 2},
         "prices[1]: is a second price of gpu of flavor a"),
        ({**COST, "prices": [{**PRICE, "per": 0}]}, "prices[0].per: must be more than 0, not 0"),
        ({**COST, "prices": [{**PRICE, "resource": "memory"}]},
         "prices[0].per: must say for how much memory the price is, such as 1Gi"),
        ({**COST, "prices": [{**PRICE, "perHour": -1}]},
         "prices[0].perHour: must not be negative, not -1"),
        ({**COST, "prices": [{"resource": "gpu"}]}, "prices[0].perHour: must be set"),
    ],
)  # fmt: skip
def test_a_wrong_budget_has_one_clear_line(fields: dict[str, Any], line: str) -> None:
    spec = {"per": "User", "window": "Week", "unit": "gpu-hours", "limit": 8, **fields}
    spec = {name: value for name, value in spec.items() if value is not ABSENT}
    manifest = {"apiVersion": "admittance.dev/v1", "kind": "Budget", "metadata": {"name": "b"}}
    [text] = said({**manifest, "spec": spec})
    assert text.removeprefix("(Budget b): ") == f"spec.{line}"


@pytest.mark.parametrize(
    "parameters",
    [
        None,
        {"apiGroup": "example.com", "kind": "Budget", "name": "b"},
        {"apiGroup": "admittance.dev", "kind": "Runner", "name": "b"},
    ],
)
def test_a_check_of_the_controller_names_a_budget(parameters: Any) -> None:
    spec = {"controllerName": BUDGET_CONTROLLER, "parameters": parameters}
    [text] = said(
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "AdmissionCheck",
            "metadata": {"name": "b"},
            "spec": spec,
        }
    )
    assert "spec.parameters: must name a Budget ({apiGroup: admittance.dev, kind: Budget," in text
