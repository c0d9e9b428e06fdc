"""The queries of dashboards and alerts, and the metrics and labels that a query names."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import promql_parser as promql
import yaml
from tools.pages.metrics import by_service

from admittance.runtime.telemetry.metrics import PREFIX

FOLDER: Final = Path(__file__).parents[3] / "deploy" / "observability"
ALWAYS: Final = {"job", "instance"}
"""Labels that Prometheus adds."""
_SUFFIXES: Final = {"_bucket": {"le"}, "_count": set(), "_sum": set()}
_COMPARISONS: Final = {"==", "!=", "<", "<=", ">", ">="}
_SETS: Final = {"and", "or", "unless"}


class Asked(NamedTuple):
    """A query, and where it stands."""

    where: str
    expr: str
    legend: str = ""


def dashboards() -> dict[str, dict[str, Any]]:
    """The files of dashboards, by name."""
    paths = sorted((FOLDER / "dashboards").glob("*.json"))
    return {path.name: json.loads(path.read_text()) for path in paths}


def alerts() -> list[dict[str, Any]]:
    """All alerts."""
    text = (FOLDER / "alerts.yaml").read_text()
    return [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]


def queries_of_dashboards(interval: str = "1m", shown: str = "1h") -> list[Asked]:
    """All queries as Grafana sends them with every variable at All. ``interval``: of rates;
    ``shown``: the shown time."""
    return [
        Asked(
            f"{name}: {panel['title']} {target['refId']}",
            filled(target["expr"], interval, shown),
            target["legendFormat"],
        )
        for name, board in dashboards().items()
        for panel in board["panels"]
        for target in panel["targets"]
    ]


def filled(expr: str, interval: str = "1m", shown: str = "1h") -> str:
    """The query with values in place of Grafana's variables."""
    expr = expr.replace("$__rate_interval", interval).replace("$__range", shown)
    return re.sub(r"\$\w+", ".*", expr)


def queries_of_alerts() -> list[Asked]:
    """For each alert the vectors that it compares, without the comparison."""
    return [
        Asked(rule["alert"], vector)
        for rule in alerts()
        for vector in vectors_of(promql.parse(rule["expr"]))
    ]


def vectors_of(expr: promql.Expr) -> Iterator[str]:
    """The compared vectors that an alert combines."""
    while isinstance(expr, promql.ParenExpr):
        expr = expr.expr
    match expr:
        case promql.BinaryExpr() if str(expr.op) in _COMPARISONS:
            yield from vectors_of(expr.lhs)
        case promql.BinaryExpr() if str(expr.op) in _SETS:
            yield from vectors_of(expr.lhs)
            yield from vectors_of(expr.rhs)
        case promql.Call() if expr.func.name == "absent":
            yield from vectors_of(expr.args[0])
        case _:
            yield expr.prettify()


@cache
def labels_of_metrics() -> dict[str, set[str]]:
    """The labels of each series that services show, by its name."""
    metrics = {"up": set(ALWAYS)}
    for definitions in by_service().values():
        for definition in definitions:
            labels = {*definition.labels, *ALWAYS}
            name = f"{PREFIX}{definition.full_name}"
            if definition.kind == "histogram":
                metrics |= {f"{name}{suffix}": labels | more for suffix, more in _SUFFIXES.items()}
            else:
                metrics[name] = labels
    return metrics


def mistakes(query: str) -> list[str]:
    """The metrics and labels of a query that no service has."""
    try:
        expr = promql.parse(query)
    except ValueError as error:
        return [f"{query}: {error}"]
    faults: list[str] = []
    labels: set[str] = set()
    for selector in _selectors(expr):
        known = labels_of_metrics().get(selector.name or "")
        if known is None:
            faults.append(f"no service shows {selector.name}")
            continue
        labels |= known
        wrong = {matcher.name for matcher in selector.matchers.matchers} - known
        faults += [f"{selector.name} has no label {label}" for label in sorted(wrong)]
    faults += [f"no metric of the query has the label {label}" for label in grouped(expr) - labels]
    return faults


def parsed(query: str) -> promql.Expr:
    """The query as a tree. Raises ValueError."""
    return promql.parse(query)


def matched(expr: promql.Expr) -> set[str]:
    """The labels that a plain selector keeps: all labels of its metric."""
    return {
        label
        for selector in _selectors(expr)
        for label in labels_of_metrics().get(selector.name or "", ())
    }


def grouped(expr: promql.Expr) -> set[str]:
    """The labels by which the query groups and joins."""
    labels: set[str] = set()
    for part in _parts(expr):
        modifier = getattr(part, "modifier", None)
        if isinstance(part, promql.AggregateExpr) and modifier is not None:
            labels |= set(modifier.labels)
        elif isinstance(part, promql.BinaryExpr) and modifier is not None:
            labels |= set(modifier.matching.labels if modifier.matching else ())
            labels |= set(modifier.group_labels or ())
    return labels


def _selectors(expr: promql.Expr) -> Iterator[promql.VectorSelector]:
    for part in _parts(expr):
        if isinstance(part, promql.VectorSelector):
            yield part


def _parts(expr: promql.Expr) -> Iterator[promql.Expr]:
    yield expr
    match expr:
        case promql.BinaryExpr():
            below = [expr.lhs, expr.rhs]
        case promql.Call():
            below = list(expr.args)
        case promql.AggregateExpr():
            below = [expr.expr]
        case promql.ParenExpr() | promql.UnaryExpr() | promql.SubqueryExpr():
            below = [expr.expr]
        case promql.MatrixSelector():
            below = [expr.vector_selector]
        case _:
            below = []
    for part in below:
        yield from _parts(part)
