"""Grafana's dashboards as data: panels with queries, and the JSON that Grafana reads.

Panels are placed from left to right, and a panel that does not fit begins the next row.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

SCHEMA_VERSION: Final = 39
"""The version of Grafana's dashboard model, of Grafana 10.4 and newer."""
COLUMNS: Final = 24
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_GREEN, _RED = "green", "red"


@dataclass(frozen=True)
class Query:
    """``legend``: a pattern with labels in double braces."""

    expr: str
    legend: str = ""


@dataclass(frozen=True)
class Panel:
    """``about``: what the panel shows. ``kind``: Grafana's name of the visualisation. ``red_from``:
    values from here on are red; with ``red_below`` smaller values are."""

    title: str
    about: str
    queries: Sequence[Query]
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 12
    height: int = 8
    stacked: bool = False
    red_from: float | None = None
    red_below: bool = False


@dataclass(frozen=True)
class Dashboard:
    """``variables``: labels by which a reader can restrict the queries, each with a metric that has
    all values of the label."""

    uid: str
    title: str
    about: str
    panels: Sequence[Panel]
    variables: Mapping[str, str] = field(default_factory=dict)


# Panels and queries. ---------------------------------------------------------------------


def each(what: str, by: str, legend: str = "", function: str = "sum") -> list[Query]:
    """One series for each combination of the labels ``by``."""
    return [Query(f"{function} by ({by}) ({what})", legend or _legend(by))]


def per_minute(what: str, by: str) -> list[Query]:
    """How often something happens in a minute. ``what``: a counter."""
    return [Query(f"60 * sum by ({by}) (rate({what}[$__rate_interval]))", _legend(by))]


def in_range(what: str, by: str) -> list[Query]:
    """How often something happened in the shown time. ``what``: a counter."""
    return [Query(f"sum by ({by}) (increase({what}[$__range]))", _legend(by))]


def quantiles(histogram: str, by: str, where: str = "") -> list[Query]:
    """The median and the 99th percentile of a histogram."""
    rates = f"sum by (le, {by}) (rate({histogram}_bucket{where}[$__rate_interval]))"
    return quantiles_of(rates, _legend(by))


def quantiles_of(buckets: str, legend: str = "") -> list[Query]:
    """The median and the 99th percentile of buckets, as an expression of rates."""
    return [
        Query(f"histogram_quantile({quantile}, {buckets})", f"{legend} {name}".strip())
        for quantile, name in (("0.5", "p50"), ("0.99", "p99"))
    ]


def number(
    title: str, about: str, expr: str, *, width: int = 6, red_from: float | None = None
) -> Panel:
    """A panel that shows one number."""
    return Panel(title, about, [Query(expr)], kind="stat", width=width, height=4, red_from=red_from)


def _legend(by: str) -> str:
    return " ".join(f"{{{{{label.strip()}}}}}" for label in by.split(","))


# JSON. ----------------------------------------------------------------------------------


def text_of(dashboard: Dashboard) -> str:
    """The file of a dashboard."""
    return json.dumps(model_of(dashboard), indent=2, ensure_ascii=False) + "\n"


def model_of(dashboard: Dashboard) -> dict[str, Any]:
    """The dashboard in Grafana's model."""
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": dashboard.about,
        "tags": ["admittance"],
        "id": None,
        "version": 1,
        "schemaVersion": SCHEMA_VERSION,
        "editable": True,
        "graphTooltip": 1,  # one cross hair for all panels
        "timezone": "browser",
        "time": {"from": "now-3h", "to": "now"},
        "timepicker": {},
        "refresh": "30s",
        "annotations": {"list": []},
        "links": [
            {
                "type": "dashboards",
                "title": "Admittance",
                "tags": ["admittance"],
                "asDropdown": True,
                "includeVars": True,
                "keepTime": True,
                "targetBlank": False,
                "icon": "external link",
                "tooltip": "",
                "url": "",
            }
        ],
        "templating": {"list": [_DATASOURCE, *map(_variable, *_columns(dashboard.variables))]},
        "panels": list(_placed(dashboard.panels)),
    }


def _columns(variables: Mapping[str, str]) -> tuple[Iterable[str], Iterable[str]]:
    return variables.keys(), variables.values()


_DATASOURCE: Final = {
    "name": "datasource",
    "label": "Prometheus",
    "type": "datasource",
    "query": "prometheus",
    "current": {},
    "hide": 0,
    "includeAll": False,
    "multi": False,
    "options": [],
    "refresh": 1,
    "regex": "",
    "skipUrlSync": False,
}


def _variable(label: str, metric: str) -> dict[str, Any]:
    values = f"label_values({metric}, {label})"
    return {
        "name": label,
        "label": label,
        "type": "query",
        "datasource": _SOURCE,
        "definition": values,
        "query": {"query": values, "refId": f"values of {label}"},
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        "hide": 0,
        "includeAll": True,
        "allValue": ".*",  # also an empty label: a queue without a cohort
        "multi": True,
        "options": [],
        "refresh": 2,
        "regex": "",
        "skipUrlSync": False,
        "sort": 1,
    }


def _placed(panels: Iterable[Panel]) -> Iterator[dict[str, Any]]:
    x = y = below = 0
    for number, panel in enumerate(panels, 1):
        if x + panel.width > COLUMNS:
            x, y = 0, below
        yield _panel(number, panel, {"x": x, "y": y, "w": panel.width, "h": panel.height})
        x += panel.width
        below = max(below, y + panel.height)


def _panel(number: int, panel: Panel, place: Mapping[str, int]) -> dict[str, Any]:
    instant = panel.kind != "timeseries"
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "gridPos": place,
        "datasource": _SOURCE,
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": _SOURCE,
                "editorMode": "code",
                "expr": query.expr,
                "legendFormat": query.legend or "__auto",
                "instant": instant,
                "range": not instant,
            }
            for index, query in enumerate(panel.queries)
        ],
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        "options": _OPTIONS[panel.kind],
    }


def _defaults(panel: Panel) -> dict[str, Any]:
    first, then = (_RED, _GREEN) if panel.red_below else (_GREEN, _RED)
    steps: list[dict[str, Any]] = [{"color": first, "value": None}]
    if panel.red_from is not None:
        steps.append({"color": then, "value": panel.red_from})
    graph = panel.kind == "timeseries"
    return {
        "unit": panel.unit,
        "min": 0,
        "mappings": [],
        "color": {"mode": "palette-classic" if graph else "thresholds"},
        "thresholds": {"mode": "absolute", "steps": steps},
        "custom": {
            "drawStyle": "line",
            "lineWidth": 1,
            "fillOpacity": 30 if panel.stacked else 0,
            "showPoints": "auto",
            "spanNulls": False,
            "stacking": {"group": "A", "mode": "normal" if panel.stacked else "none"},
            "thresholdsStyle": {"mode": "off" if panel.red_from is None else "dashed"},
        }
        if graph
        else {},
    }


_LAST: Final = {"calcs": ["lastNotNull"], "fields": "", "values": False}
_OPTIONS: Final[Mapping[str, Mapping[str, Any]]] = {
    "timeseries": {
        "legend": {"calcs": [], "displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    "stat": {
        "colorMode": "value",
        "graphMode": "none",
        "justifyMode": "auto",
        "orientation": "auto",
        "reduceOptions": _LAST,
        "textMode": "auto",
    },
    "bargauge": {
        "displayMode": "basic",
        "minVizHeight": 10,
        "minVizWidth": 0,
        "orientation": "horizontal",
        "reduceOptions": _LAST,
        "showUnfilled": True,
        "valueMode": "color",
    },
}
