"""The profile `observability`: its Prometheus finds the services of compose.yaml by their names.
Grafana and the collector need images that are not on every machine; unit tests read their files."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import containers
import pytest

pytestmark = [
    pytest.mark.deploy,
    pytest.mark.skipif(bool(containers.no_prometheus()), reason=containers.no_prometheus()),
]

STARTED = ("workload-controller", "scheduler", "retry-timer", "metrics")


def asked(port: int, query: str, shown: str) -> str:
    """The values of a label in the answer of Prometheus, sorted; "" while it starts."""
    url = f"http://127.0.0.1:{port}/api/v1/query?{urlencode({'query': query})}"
    try:
        with urlopen(url, timeout=10) as answer:
            series = json.load(answer)["data"]["result"]
    except (URLError, ConnectionError):
        return ""
    return " ".join(sorted(sample["metric"][shown].partition("/")[0] for sample in series))


def test_prometheus_scrapes_running_services_and_misses_absent_ones(
    base: str, tmp_path: Path
) -> None:
    port = containers.free_port()
    more = {"ADMIT_ADMIN": "0.0.0.0:9464", "ADMIT_METRICS_PORT": str(port)}
    with containers.deployed(base, tmp_path, ("observability",), more, only=STARTED) as deployment:
        scraped = "retry-timer scheduler workload-controller"
        containers.eventually(lambda: asked(port, 'up{job="admittance"} == 1', "instance"), scraped)
        leads = 'admittance_led_domains{service!="scheduler"} == 1'
        containers.eventually(lambda: asked(port, leads, "service"), "workload-controller")
        missing = 'ALERTS{alertname="AdmittanceServiceMissing"}'
        absent = "array-controller provisioning-check variant-controller"
        assert containers.eventually(lambda: asked(port, missing, "service"), absent) == absent
        deployment.compose("stop", "retry-timer")
        containers.eventually(lambda: asked(port, missing, "service"), "check retry-timer")
