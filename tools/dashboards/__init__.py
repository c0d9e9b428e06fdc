"""Grafana's dashboards in deploy/observability/dashboards, written by `python -m tools.dashboards`.

`tests/unit/docs/test_observability.py` holds every query against the metrics of the code, and
`tests/system/pages/test_dashboards.py` runs every query against a real Prometheus.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tools.dashboards import capacity, checks, machines, queues, system, waits
from tools.dashboards.grafana import text_of

FOLDER: Final = Path(__file__).parents[2] / "deploy" / "observability" / "dashboards"
DASHBOARDS: Final = tuple(
    module.BOARD for module in (queues, waits, checks, capacity, machines, system)
)


def files() -> dict[str, str]:
    """The text of each dashboard, by the name of its file."""
    return {
        f"{dashboard.uid.removeprefix('admittance-')}.json": text_of(dashboard)
        for dashboard in DASHBOARDS
    }
