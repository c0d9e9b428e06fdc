"""The services as values: what their packages declare, and that nothing compares their names."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from admittance.access.roles import ROLES
from admittance.job_rules.options import EXECUTORS
from admittance.runner.host.local_machine import KINDS
from admittance.runtime.process.service import LogConsumers, Service, Streams, WithUp
from admittance.services import SERVICES

ROOT = Path(__file__).resolve().parents[2]
NAMES = frozenset(SERVICES)


def test_every_package_that_runs_as_a_process_declares_a_service() -> None:
    packages = {path.parent.name for path in (ROOT / "services/admittance").glob("*/__main__.py")}
    assert {service.package for service in SERVICES.values()} == {
        f"admittance.{service}" for service in packages
    }


@pytest.mark.parametrize("service", SERVICES.values(), ids=list(SERVICES))
def test_a_declaration_says_what_the_service_says(service: Service) -> None:
    assert service.name == import_module(f"{service.package}.service").SERVICE
    # The core of placement has the package with the plain name.
    package = f"admittance.{service.name.replace('-', '_')}"
    assert service.package in (package, f"{package}_service")
    assert service.load().__module__ == f"{service.package}.service"
    assert service.role in ROLES
    counted = [metric.full_name for metric in service.metrics()]
    assert len(counted) == len(set(counted))


def test_one_service_keeps_the_streams_and_one_runs_jobs() -> None:
    assert [service.name for service in SERVICES.values() if service.streams is Streams.KEEPS] == [
        "workload-controller"
    ]
    [runner] = [service for service in SERVICES.values() if service.runs_jobs]
    assert (runner.ends_in_time, runner.consumers) == (False, LogConsumers.DURABLE)
    assert list(SERVICES)[-1] == runner.name, "its last facts are processed by the others"


def test_the_runner_knows_the_executors_that_options_name() -> None:
    assert tuple(KINDS) == EXECUTORS


def test_a_service_that_up_always_starts_needs_no_word_of_the_environment() -> None:
    always = [service for service in SERVICES.values() if service.with_up is WithUp.ALWAYS]
    assert not any(service.asked({}).starts for service in SERVICES.values())
    assert all(service.provisioning_class is None for service in always)


def compared_names(path: Path) -> Iterator[tuple[str, int, str]]:
    """Names of services that a module compares a value with."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Compare(left=left, comparators=others):
                sides = [left, *others]
            case ast.MatchValue(value=value):
                sides = [value]
            case _:
                continue
        for side in (inner for operand in sides for inner in ast.walk(operand)):
            if isinstance(side, ast.Constant) and side.value in NAMES:
                yield path.relative_to(ROOT).as_posix(), side.lineno, side.value


def test_nothing_outside_a_service_compares_its_name() -> None:
    folders = ("libs", "services", "benchmarks", "tools")
    compared = [
        name
        for folder in folders
        for path in (ROOT / folder).rglob("*.py")
        for name in compared_names(path)
    ]
    assert compared == []
