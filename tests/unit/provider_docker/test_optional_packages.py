"""Providers whose packages are not there say which, and how to get them."""

from __future__ import annotations

import sys

import pytest

from admittance.provider_docker.engine import Engine
from admittance.provider_kubernetes.cluster import connect
from admittance.provider_kubernetes.settings import KubeSettings
from admittance.runtime.errors import SetupError


def test_the_one_of_worker_containers_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "docker", None)

    with pytest.raises(SetupError, match=r"admittance\[docker\]"):
        Engine.check()


def test_the_one_of_a_cluster_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [one for one in sys.modules if one.split(".")[0] == "lightkube"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "lightkube", None)

    with pytest.raises(SetupError, match=r"admittance\[kubernetes\]"):
        connect(KubeSettings())
