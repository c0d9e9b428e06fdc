"""deploy/observability: dashboards, alerts, and what the compose profile starts with them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from tools import deploy_lists
from tools.dashboards import FOLDER, files

from support.programs import promql

ROOT = Path(__file__).parents[3]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OBSERVABILITY = promql.FOLDER
BOARDS = promql.dashboards()

SOURCE = {"const": {"type": "prometheus", "uid": "${datasource}"}}
REDUCED = {"reduceOptions": {"type": "object", "required": ["calcs", "fields", "values"]}}
VARIABLE = {
    "type": "object",
    "required": ["name", "type", "query", "hide", "includeAll", "multi", "options", "refresh"],
    "properties": {
        "name": {"pattern": r"^\w+$"},
        "type": {"enum": ["datasource", "query"]},
        "hide": {"enum": [0, 1, 2]},
        "refresh": {"enum": [0, 1, 2]},
    },
    "if": {"properties": {"type": {"const": "query"}}},
    "then": {"required": ["datasource", "definition"], "properties": {"datasource": SOURCE}},
}
TARGET = {
    "type": "object",
    "required": ["refId", "datasource", "expr", "legendFormat", "instant", "range"],
    "properties": {
        "refId": {"pattern": "^[A-Z]$"},
        "datasource": SOURCE,
        "expr": {"type": "string", "minLength": 1},
        "editorMode": {"enum": ["code", "builder"]},
        "instant": {"type": "boolean"},
        "range": {"type": "boolean"},
    },
}
STEP = {
    "type": "object",
    "required": ["color", "value"],
    "properties": {"value": {"type": ["number", "null"]}, "color": {"enum": ["green", "red"]}},
}
PANEL = {
    "type": "object",
    "required": ["id", "type", "title", "description", "gridPos", "datasource", "targets"],
    "properties": {
        "id": {"type": "integer", "minimum": 1},
        "type": {"enum": ["timeseries", "stat", "bargauge"]},
        "title": {"type": "string", "minLength": 1},
        "description": {"type": "string", "minLength": 1},
        "datasource": SOURCE,
        "gridPos": {
            "type": "object",
            "required": ["x", "y", "w", "h"],
            "properties": {
                "x": {"type": "integer", "minimum": 0, "maximum": 23},
                "y": {"type": "integer", "minimum": 0},
                "w": {"type": "integer", "minimum": 1, "maximum": 24},
                "h": {"type": "integer", "minimum": 3},
            },
        },
        "targets": {"type": "array", "minItems": 1, "items": TARGET},
        "fieldConfig": {
            "type": "object",
            "required": ["defaults", "overrides"],
            "properties": {
                "defaults": {
                    "type": "object",
                    "properties": {
                        "unit": {"enum": ["short", "s", "percentunit"]},
                        "thresholds": {
                            "required": ["mode", "steps"],
                            "properties": {
                                "mode": {"enum": ["absolute", "percentage"]},
                                "steps": {"type": "array", "minItems": 1, "items": STEP},
                            },
                        },
                    },
                }
            },
        },
        "options": {"type": "object"},
    },
    "if": {"properties": {"type": {"const": "timeseries"}}},
    "then": {"properties": {"options": {"required": ["legend", "tooltip"]}}},
    "else": {"properties": {"options": {"required": ["reduceOptions"], "properties": REDUCED}}},
}
BOARD = {
    "type": "object",
    "required": ["uid", "title", "schemaVersion", "panels", "templating", "time", "annotations"],
    "properties": {
        "id": {"type": "null"},
        "uid": {"pattern": "^[a-z-]{1,40}$"},
        "schemaVersion": {"type": "integer", "minimum": 36},
        "refresh": {"pattern": r"^\d+[smh]$"},
        "time": {"required": ["from", "to"]},
        "templating": {
            "required": ["list"],
            "properties": {"list": {"type": "array", "minItems": 1, "items": VARIABLE}},
        },
        "annotations": {"required": ["list"], "properties": {"list": {"type": "array"}}},
        "links": {"type": "array", "items": {"required": ["type", "title", "tags"]}},
        "panels": {"type": "array", "minItems": 1, "items": PANEL},
    },
}
"""What Grafana's dashboard model (schema version 39) demands of the parts that are used here."""


# Dashboards. ------------------------------------------------------------------------------


def test_dashboards_are_what_the_script_makes() -> None:
    written = {path.name: path.read_text() for path in FOLDER.iterdir()}
    assert written == files(), "run python -m tools.dashboards"


@pytest.mark.parametrize("name", sorted(BOARDS))
def test_a_dashboard_has_the_form_of_grafanas_model(name: str) -> None:
    jsonschema.validate(BOARDS[name], BOARD)


@pytest.mark.parametrize("name", sorted(BOARDS))
def test_panels_have_their_own_number_and_place(name: str) -> None:
    panels = BOARDS[name]["panels"]
    assert [panel["id"] for panel in panels] == list(range(1, len(panels) + 1))
    assert len({panel["title"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
        references = [target["refId"] for target in panel["targets"]]
        assert len(set(references)) == len(references)


@pytest.mark.parametrize("name", sorted(BOARDS))
def test_variables_of_queries_are_those_of_the_dashboard(name: str) -> None:
    board = BOARDS[name]
    variables = {variable["name"]: variable for variable in board["templating"]["list"]}
    assert next(iter(variables)) == "datasource"
    used = set(
        re.findall(r"\$([a-z]\w*)", str([variable["targets"] for variable in board["panels"]]))
    )
    assert used == variables.keys() - {"datasource"}
    for variable in list(variables.values())[1:]:
        match = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]["query"])
        assert match is not None
        assert match[2] == variable["name"]
        assert match[2] in promql.labels_of_metrics()[match[1]]


def test_queries_of_dashboards_name_metrics_and_labels_that_exist() -> None:
    mistakes_by_query = {
        query.where: promql.mistakes(query.expr) for query in promql.queries_of_dashboards()
    }
    assert {where: wrong for where, wrong in mistakes_by_query.items() if wrong} == {}


def test_legends_name_labels_that_the_query_keeps() -> None:
    for query in promql.queries_of_dashboards():
        shown = set(re.findall(r"{{(\w+)}}", query.legend))
        assert shown <= promql.grouped(promql.parsed(query.expr)), query


def test_another_prefix_of_metrics_needs_one_replacement() -> None:
    texts = [path.read_text() for path in (OBSERVABILITY / "dashboards").iterdir()]
    text = "".join([*texts, (OBSERVABILITY / "alerts.yaml").read_text()])
    known = promql.labels_of_metrics().keys()
    metrics = {name.removesuffix("_") for name in re.findall(r"admittance_\w*", text)}
    assert metrics - known == {"admittance"}  # in the comment that says how to replace it


# Alerts. ----------------------------------------------------------------------------------


def test_alerts_name_metrics_and_labels_that_exist() -> None:
    mistakes_by_alert = {
        alert["alert"]: promql.mistakes(alert["expr"]) for alert in promql.alerts()
    }
    assert {name: wrong for name, wrong in mistakes_by_alert.items() if wrong} == {}


def test_every_alert_says_what_is_wrong_how_bad_it_is_and_what_to_do() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    titles = re.findall(r"^##+ (.+)$", page, re.MULTILINE)
    sections = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
    for alert in promql.alerts():
        assert set(alert["annotations"]) == {"summary", "description", "runbook_url"}
        assert alert["labels"]["severity"] in ("critical", "warning", "info")
        file, _, section = alert["annotations"]["runbook_url"].partition("#")
        assert file == "docs/operations.md"
        assert section in sections, alert["alert"]
        labels = set(re.findall(r"\$labels\.(\w+)", str(alert["annotations"])))
        expr = promql.parsed(alert["expr"])
        assert labels <= (promql.grouped(expr) or promql.matched(expr)), alert["alert"]


def test_every_alert_fires_in_a_test_of_the_rules() -> None:
    text = (OBSERVABILITY / "alerts.test.yaml").read_text()
    fired = set(re.findall(r'alertname="(\w+)"[^}]*}\'?, value: ', text))
    fired |= set(re.findall(r'alertname="(\w+)", alertstate="firing"', text))
    names = [alert["alert"] for alert in promql.alerts()]
    assert len(set(names)) == len(names)
    assert set(names) == fired


@pytest.mark.skipif(not shutil.which("promtool"), reason="there is no promtool")
def test_the_rules_pass_their_tests_and_prometheus_takes_its_configuration() -> None:
    for arguments in (
        ("test", "rules", "alerts.test.yaml"),
        ("check", "rules", "alerts.yaml"),
        ("check", "config", "--syntax-only", "prometheus.yml"),
    ):
        done = subprocess.run(
            ["promtool", *arguments], cwd=OBSERVABILITY, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


# What compose starts. ---------------------------------------------------------------------


def read(name: str) -> dict[str, Any]:
    parsed: dict[str, Any] = yaml.safe_load((OBSERVABILITY / name).read_text())
    return parsed


def mounts(service: str) -> dict[str, str]:
    """The files and folders of this repository in the container, by their path there."""
    parts = [volume.split(":") for volume in SERVICES[service]["volumes"]]
    return {part[1]: part[0] for part in parts if part[0].startswith(".")}


def port(service: str) -> str:
    """The only port that the container opens for the machine, on loopback."""
    [line] = SERVICES[service]["ports"]
    assert line.startswith("127.0.0.1:")
    return str(line.rpartition(":")[2])


def test_the_profile_starts_three_images_with_pinned_versions() -> None:
    profiled = {n: o for n, o in SERVICES.items() if o.get("profiles") == ["observability"]}
    assert {"metrics", "grafana", "otel-collector"} <= profiled.keys()
    for name in ("metrics", "grafana", "otel-collector"):
        assert re.search(r":-[\w./-]+:v?\d+\.\d+\.\d+}$", profiled[name]["image"])
        for path, here in mounts(name).items():
            assert (ROOT / here).exists(), path


def test_prometheus_scrapes_every_service_of_compose() -> None:
    [job] = read("prometheus.yml")["scrape_configs"]
    assert job["job_name"] == "admittance"
    [discovery] = job["dns_sd_configs"]
    assert set(discovery["names"]) >= {"scheduler", "runner-2", "budget-check"}
    assert deploy_lists.PROMETHEUS.read_text() == deploy_lists.prometheus(), "run make schema"
    admin = SERVICES["scheduler"]["environment"]["ADMIT_ADMIN"]
    assert admin.removesuffix("}").endswith(f":{discovery['port']}")
    assert read("prometheus.yml")["rule_files"] == ["/etc/prometheus/alerts.yaml"]
    assert mounts("metrics")["/etc/prometheus/alerts.yaml"].endswith("/alerts.yaml")
    assert mounts("metrics")["/etc/prometheus/prometheus.yml"].endswith("/prometheus.yml")


def test_grafana_finds_prometheus_and_the_dashboards() -> None:
    [source] = read("grafana/datasources/prometheus.yaml")["datasources"]
    assert source["type"] == "prometheus"
    assert source["url"] == f"http://metrics:{port('metrics')}"
    assert source["isDefault"]
    scrape = read("prometheus.yml")["global"]["scrape_interval"]
    assert source["jsonData"]["timeInterval"] == scrape
    [provider] = read("grafana/dashboards/admittance.yaml")["providers"]
    mounted = mounts("grafana")
    assert (ROOT / mounted[provider["options"]["path"]]).resolve() == FOLDER
    assert (ROOT / mounted["/etc/grafana/provisioning"]).resolve() == OBSERVABILITY / "grafana"


def test_the_collector_has_every_part_that_its_pipelines_name() -> None:
    config = read("otel-collector.yaml")
    for pipeline in config["service"]["pipelines"].values():
        for kind in ("receivers", "processors", "exporters"):
            assert set(pipeline[kind]) <= config[kind].keys()
            assert pipeline[kind]
    assert set(config["service"]["extensions"]) <= config["extensions"].keys()
    http = config["receivers"]["otlp"]["protocols"]["http"]["endpoint"]
    assert http == f"0.0.0.0:{port('otel-collector')}"
    assert "/etc/otelcol/config.yaml" in mounts("otel-collector")
