"""compose.yaml and the sample checks know each other, with or without a container engine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from admittance.cli.support import services

ROOT = Path(__file__).parents[3]
CHECKS = ROOT / "deploy" / "samples" / "checks"
IN_IMAGE = "/opt/admittance/checks/"
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "compose.yaml").read_text())[
    "services"
]


def of_samples() -> dict[str, dict[str, Any]]:
    """Outside programs; services of Admittance are recognised by their names."""
    return {
        name: one for name, one in SERVICES.items() if "profiles" in one and "entrypoint" in one
    }


def of_ours() -> dict[str, dict[str, Any]]:
    return {name: one for name, one in SERVICES.items() if one.get("command", [""])[0] == "serve"}


@pytest.mark.parametrize("name", sorted(of_ours()))
def test_compose_services_have_the_names_that_the_command_accepts(name: str) -> None:
    assert of_ours()[name]["command"][1] in services.SERVICES
    assert of_ours()[name]["healthcheck"]["test"][-1].endswith("health.sh")


def test_every_service_is_in_compose_and_providers_have_a_profile() -> None:
    assert set(services.SERVICES) == set(of_ours())
    for name, one in of_ours().items():
        _, provider, profile = name.partition("provider-")
        assert one.get("profiles", []) == ([profile] if provider else []), name


def test_compose_services_have_minimal_rights() -> None:
    for name, one in of_ours().items():
        assert one["read_only"], name
        assert one["cap_drop"] == ["ALL"], name
        assert one["security_opt"] == ["no-new-privileges:true"], name


@pytest.mark.parametrize("name", ["aws", "kubernetes", "docker"])
def test_a_container_gets_every_variable_of_its_providers_page(name: str) -> None:
    page = (ROOT / "deploy" / "samples" / "providers" / name / "README.md").read_text()
    told = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `ADMIT_")]
    wanted = {one for cell in told for one in re.findall(r"ADMIT_[A-Z_]+", cell)}
    assert wanted
    assert wanted <= set(SERVICES[f"provider-{name}"]["environment"])


def test_the_image_of_all_is_built_by_one() -> None:
    built = [name for name, one in SERVICES.items() if one["image"] == "admittance"]
    assert [name for name in built if "build" in SERVICES[name]] == ["workload-controller"]
    for name in set(built) - {"workload-controller"}:
        assert "workload-controller" in SERVICES[name]["depends_on"], name


def test_every_sample_has_the_profile_of_its_name() -> None:
    samples = {folder.name for folder in CHECKS.iterdir() if (folder / "manifests.yaml").exists()}
    profiles = {profile for one in of_samples().values() for profile in one["profiles"]}
    assert samples - profiles == {"allowance"}  # of the demo
    assert profiles <= samples


@pytest.mark.parametrize("name", sorted(of_samples()))
def test_what_a_profile_starts_is_in_the_image(name: str) -> None:
    program = of_samples()[name]["entrypoint"][-1]
    if name == "prometheus":
        assert program == "prometheus"  # of its own image
        return
    assert program.startswith(IN_IMAGE)
    assert (CHECKS / program.removeprefix(IN_IMAGE)).is_file()
    assert (
        f"COPY deploy/samples/checks {IN_IMAGE.rstrip('/')}"
        in (ROOT / "deploy" / "Dockerfile").read_text()
    )
    assert "!deploy/samples/checks" in (ROOT / ".dockerignore").read_text().splitlines()


def test_samples_start_only_on_request_and_with_minimal_rights() -> None:
    for name, one in of_samples().items():
        assert one["read_only"], name
        assert one["cap_drop"] == ["ALL"], name
        assert all(port.startswith("127.0.0.1:") for port in one.get("ports", ())), name


def test_the_sample_s_prometheus_scrapes_the_sample_s_meters() -> None:
    config = yaml.safe_load((CHECKS / "budget" / "prometheus.yml").read_text())
    [target] = config["scrape_configs"][0]["static_configs"][0]["targets"]
    service, _, port = target.partition(":")
    assert any(one.endswith(f":{port}") for one in SERVICES[service]["ports"])
    manifests = (CHECKS / "budget" / "manifests.yaml").read_text()
    [url] = re.findall(r"prometheus: http://(\w+):(\d+)", manifests)
    assert any(one.endswith(f":{url[1]}") for one in SERVICES[url[0]]["ports"])
