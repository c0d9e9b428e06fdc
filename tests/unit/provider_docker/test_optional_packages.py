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


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(None, id="a file that is not there"),
        pytest.param("", id="an empty one"),
        pytest.param("{", id="no YAML"),
        pytest.param("kind: Config\ncontexts: []\nclusters: []\nusers: []\n", id="no context"),
        pytest.param("- a\n", id="a list"),
    ],
)
def test_a_kubeconfig_of_no_use_is_told(
    text: str | None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("kube") / "config"
    if text is not None:
        path.write_text(text)

    with pytest.raises(SetupError, match="kubeconfig"):
        connect(KubeSettings(kubeconfig=str(path)))
