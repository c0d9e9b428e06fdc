"""A provider without its package or its setting names what is missing."""

from __future__ import annotations

import sys

import pytest

from admittance.provider_docker.engine import DockerSettings, Engine
from admittance.provider_kubernetes.cluster import connect
from admittance.provider_kubernetes.settings import KubeSettings
from admittance.runtime.errors import SetupError


def test_provider_docker_names_its_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "docker", None)

    with pytest.raises(SetupError, match=r"admittance\[docker\]"):
        Engine.check()


def test_provider_docker_names_its_missing_setting() -> None:
    with pytest.raises(SetupError) as refused:
        DockerSettings.from_env({})
    said = "ADMIT_DOCKER_IMAGE is not set: it names the image of the workers"
    assert str(refused.value) == said


def test_provider_kubernetes_names_its_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [module for module in sys.modules if module.split(".")[0] == "lightkube"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "lightkube", None)

    with pytest.raises(SetupError, match=r"admittance\[kubernetes\]"):
        connect(KubeSettings())
