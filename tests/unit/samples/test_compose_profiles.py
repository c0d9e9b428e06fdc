"""compose.yaml and the sample checks know each other, with or without a container engine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from admittance import services
from admittance.cli.auth.compose import CHECKS as CHECKS_OF_COMPOSE
from admittance.cli.auth.compose import CLUSTER_SERVERS, container_users
from admittance.runtime import clock

ROOT = Path(__file__).parents[3]
CHECKS = ROOT / "deploy" / "samples" / "checks"
IN_IMAGE = "/opt/admittance/checks/"
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
CLUSTERED: dict[str, Any] = yaml.safe_load((ROOT / "deploy" / "compose.ha.yaml").read_text())


OF_OURS = (["commands"], ["observability"])
"""Profiles without programs from outside."""


def of_samples() -> dict[str, dict[str, Any]]:
    """Outside programs; services of Admittance are recognised by their names."""
    return {
        name: service
        for name, service in SERVICES.items()
        if "entrypoint" in service and service.get("profiles", ["commands"]) not in OF_OURS
    }


def of_ours() -> dict[str, dict[str, Any]]:
    """The services that connect with a login of their own: all but the page."""
    return {
        name: service
        for name, service in SERVICES.items()
        if service.get("command", [""])[0] == "serve" and name != services.PAGE.name
    }


@pytest.mark.parametrize("name", sorted(of_ours()))
def test_compose_services_have_the_names_that_the_command_accepts(name: str) -> None:
    assert of_ours()[name]["command"][1] in services.SERVICES
    assert of_ours()[name]["healthcheck"]["test"][-1].endswith("health.sh")


def test_every_service_is_in_compose_and_some_have_a_profile() -> None:
    assert set(services.SERVICES) == set(of_ours())
    for name, service in of_ours().items():
        _, provider, profile = name.partition("provider-")
        own = [profile] if provider else ["observability"] if name == "telemetry" else []
        assert service.get("profiles", []) == own, name


def test_the_page_has_no_credentials() -> None:
    page = SERVICES[services.PAGE.name]
    assert page["command"] == ["serve", services.PAGE.name]
    assert "secrets" not in page
    assert "ADMIT_NATS_CREDS" not in page["environment"]


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_containers_have_minimal_rights_limits_and_short_logs(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["logging"]["options"].keys() == {"max-size", "max-file"}
    if service.get("profiles") != ["commands"]:
        assert service["mem_limit"]
        assert service["pids_limit"]


def test_each_container_that_connects_has_a_user_and_its_own_secret() -> None:
    users = {user.name: user for user in container_users(clock.now())}
    given = {name: service["secrets"] for name, service in SERVICES.items() if "secrets" in service}
    named = {name: "admin" if name == "admit" else name for name in given}
    assert set(named.values()) == COMPOSE["secrets"].keys()
    assert users.keys() == {*COMPOSE["secrets"], *CLUSTERED["secrets"]}
    for name, secrets in given.items():
        assert secrets == [{"source": named[name], "target": "credentials"}], name
        assert SERVICES[name]["environment"]["ADMIT_NATS_CREDS"] == "/run/secrets/credentials"
    for name, secret in COMPOSE["secrets"].items():
        assert secret["file"].endswith(f"/containers/{name}.creds")
    assert set(given) >= {name for name in SERVICES if name.endswith("-check")}
    assert set(given) >= set(of_ours())


def test_services_of_a_cluster_know_all_servers_and_share_the_limits_of_one() -> None:
    for name, service in CLUSTERED["services"].items():
        if name.startswith("nats"):
            assert service["environment"] == {"NATS_NAME": name}
            continue
        servers = service["environment"]["ADMIT_NATS_URL"].split(",")
        assert servers == [f"nats://{server}:4222" for server in CLUSTER_SERVERS][: len(servers)], (
            name
        )
    changed = {"environment", "hostname", "secrets", "volumes", "depends_on", "ports", "command"}
    for copy, original in (("nats-2", "nats"), ("nats-3", "nats"), ("runner-2", "runner")):
        ours, theirs = CLUSTERED["services"][copy], SERVICES[original]
        for key in theirs.keys() - changed - {"build"}:
            if key == "healthcheck":
                assert ours[key]["test"] == theirs[key]["test"]
            else:
                assert ours[key] == theirs[key], (copy, key)


@pytest.mark.parametrize("name", sorted(CHECKS_OF_COMPOSE))
def test_user_of_a_sample_check_has_the_controller_of_its_manifests(name: str) -> None:
    folder = Path(SERVICES[name]["entrypoint"][-1]).parent.name
    text = (CHECKS / folder / "manifests.yaml").read_text()
    assert f"controllerName: {CHECKS_OF_COMPOSE[name]}" in text


def test_every_knob_is_in_the_example_of_settings_with_its_default() -> None:
    example = (ROOT / "deploy" / ".env.example").read_text()
    listed = dict(re.findall(r"^# ?([A-Z_0-9]+)=(.*)$", example, re.MULTILINE))
    texts = [(ROOT / name).read_text() for name in ("compose.yaml", "deploy/compose.ha.yaml")]
    used = dict(re.findall(r"\$\{([A-Z_0-9]+):-([^}]*)\}", "".join(texts)))
    passed = {
        key
        for service in SERVICES.values()
        if isinstance(service.get("environment"), dict)
        for key, value in service["environment"].items()
        if value is None
    }
    assert {name: listed.get(name) for name in used} == used
    assert listed.keys() == used.keys() | passed


@pytest.mark.parametrize("name", ["aws", "kubernetes", "docker"])
def test_a_container_gets_every_variable_of_its_providers_page(name: str) -> None:
    page = (ROOT / "deploy" / "samples" / "providers" / name / "README.md").read_text()
    documented = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `ADMIT_")]
    wanted = {variable for cell in documented for variable in re.findall(r"ADMIT_[A-Z_]+", cell)}
    assert wanted
    assert wanted <= set(SERVICES[f"provider-{name}"]["environment"])


def test_the_image_of_all_is_built_by_one() -> None:
    built = [name for name, service in SERVICES.items() if service["image"] == "admittance"]
    commands = {name for name in built if SERVICES[name].get("profiles") == ["commands"]}
    assert commands == {"auth", "admit"}  # started alone
    others = set(built) - commands
    assert [name for name in others if "build" in SERVICES[name]] == ["workload-controller"]
    for name in others - {"workload-controller"}:
        assert "workload-controller" in SERVICES[name]["depends_on"], name


def test_every_sample_has_the_profile_of_its_name() -> None:
    samples = {folder.name for folder in CHECKS.iterdir() if (folder / "manifests.yaml").exists()}
    profiles = {profile for sample in of_samples().values() for profile in sample["profiles"]}
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
    for name, sample in of_samples().items():
        assert sample["read_only"], name
        assert sample["cap_drop"] == ["ALL"], name
        assert all(port.startswith("127.0.0.1:") for port in sample.get("ports", ())), name


def test_the_sample_s_prometheus_scrapes_the_sample_s_meters() -> None:
    config = yaml.safe_load((CHECKS / "budget" / "prometheus" / "prometheus.yml").read_text())
    [target] = config["scrape_configs"][0]["static_configs"][0]["targets"]
    service, _, port = target.partition(":")
    assert any(target.endswith(f":{port}") for target in SERVICES[service]["ports"])
    manifests = (CHECKS / "budget" / "manifests.yaml").read_text()
    [url] = re.findall(r"prometheus: http://(\w+):(\d+)", manifests)
    assert any(service.endswith(f":{url[1]}") for service in SERVICES[url[0]]["ports"])
