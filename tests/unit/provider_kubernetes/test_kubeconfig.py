"""An unusable kubeconfig is named in one sentence with the reason."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from admittance.provider_kubernetes.cluster import REQUESTS, Unauthorized, connect
from admittance.provider_kubernetes.settings import KubeSettings
from admittance.runtime.errors import SetupError

CLUSTER = {"name": "prod", "cluster": {"server": "http://127.0.0.1:1"}}
USER = {"name": "me", "user": {"token": "t"}}
CONTEXT = {"name": "here", "context": {"cluster": "prod", "user": "me"}}


def config(**changed: Any) -> str:
    plain = {
        "kind": "Config",
        "current-context": "here",
        "contexts": [CONTEXT],
        "clusters": [CLUSTER],
        "users": [USER],
    }
    return json.dumps({**plain, **changed})


def cluster(**about: Any) -> str:
    return config(clusters=[{"name": "prod", "cluster": about}])


UNUSABLE_CASES: dict[str, tuple[str | bytes | None, str]] = {
    "a file that is not there": (
        None,
        "the file does not exist (set ADMIT_KUBE_CONFIG to name another one)",
    ),
    "no YAML": ("{", "the file is not valid YAML, line 1: expected the node content, but found "),
    "bytes": (b"\xff\xfe\x00", "the file is not a text file"),
    "characters that YAML has not": ("\0", "the file is not valid YAML: "),
    "an empty one": (
        "",
        "the file is not a kubeconfig: it is empty, or its top level is not a mapping",
    ),
    "a list": (
        "- a\n",
        "the file is not a kubeconfig: it is empty, or its top level is not a mapping",
    ),
    "a word": (
        "hello",
        "the file is not a kubeconfig: it is empty, or its top level is not a mapping",
    ),
    "no current context": (
        config(**{"current-context": None}),
        "the file has no current context: set ADMIT_KUBE_CONTEXT",
    ),
    "no such context": (
        config(**{"current-context": "there"}),
        "the file has no context 'there', only here",
    ),
    "no contexts": (config(contexts=[]), "the file has no contexts"),
    "no mapping as context": (config(contexts=["here"]), "the file has no contexts"),
    "a context that is a word": (
        config(contexts=[{"name": "here", "context": "prod"}]),
        "the context 'here' is not a mapping",
    ),
    "a context without a cluster": (
        config(contexts=[{"name": "here", "context": {"user": "me"}}]),
        "the context 'here' names no cluster",
    ),
    "a context without a user": (
        config(contexts=[{"name": "here", "context": {"cluster": "prod"}}]),
        "the context 'here' names no user",
    ),
    "no clusters": (config(clusters=None), "the file has no clusters"),
    "no users": (config(users=[]), "the file has no users"),
    "no server": (cluster(), "the cluster 'prod' has no server"),
    "no server's address": (cluster(server="http://a:b"), "Invalid port"),
    "a server that is a number": (cluster(server=7), "Expected `str`, got `int` - at `$.server`"),
    "a certificate that is elsewhere": (
        cluster(**{"server": "https://x", "certificate-authority": "/none"}),
        "a certificate file is missing; `kubectl config view --flatten` writes it in",
    ),
    "a certificate that was cut short": (
        cluster(**{"server": "https://x", "certificate-authority-data": "a"}),
        "the value of certificate-authority-data is not valid base64",
    ),
    "a certificate that is none": (
        cluster(**{"server": "https://x", "certificate-authority": __file__}),
        "the certificates cannot be read: ",
    ),
}


@pytest.mark.parametrize("case", UNUSABLE_CASES)
def test_an_unusable_kubeconfig_is_named_with_the_reason(case: str, tmp_path: Path) -> None:
    text, why = UNUSABLE_CASES[case]
    path = tmp_path / "config"
    if text is not None:
        path.write_bytes(text.encode() if isinstance(text, str) else text)

    with pytest.raises(SetupError) as caught:
        connect(KubeSettings(kubeconfig=str(path)))

    assert str(caught.value).startswith(f"the kubeconfig {path} cannot be used: {why}")
    assert "\n" not in str(caught.value)


async def test_only_the_selected_context_has_to_be_valid(tmp_path: Path) -> None:
    path = tmp_path / "config"
    other = {"name": "other", "context": {"cluster": "gone"}}
    clusters = [CLUSTER, {"name": "old", "cluster": {"server": 7}}]
    path.write_text(
        config(contexts=[other, CONTEXT], clusters=clusters, **{"current-context": "other"})
    )

    cluster = connect(KubeSettings(kubeconfig=str(path), context="here"))

    assert cluster.server == "http://127.0.0.1:1"
    await cluster.close()


FAILING_CASES: dict[str, tuple[dict[str, Any], str]] = {
    "is missing": ({"command": "/none/login"}, "No such file or directory: '/none/login'"),
    "fails": ({"command": "false"}, "Exec false returned 1"),
    "says no token": ({"command": "echo", "args": ["hello"]}, "Expecting value"),
    "an unsupported version": (
        {"command": "x", "apiVersion": "client.authentication.k8s.io/v1"},
        "auth exec api version client.authentication.k8s.io/v1 not implemented",
    ),
}


@pytest.mark.parametrize("case", FAILING_CASES)
async def test_a_failing_login_program_is_reported_and_run_again(case: str, tmp_path: Path) -> None:
    """If the provider ended, it would also end for a login that has to be renewed."""
    user, why = FAILING_CASES[case]
    path = tmp_path / "config"
    program = {"apiVersion": "client.authentication.k8s.io/v1beta1", **user}
    path.write_text(config(users=[{"name": "me", "user": {"exec": program}}]))
    cluster = connect(KubeSettings(kubeconfig=str(path)))

    with pytest.raises(Unauthorized, match="cannot log in to the API server: .*" + re.escape(why)):
        await cluster.get(REQUESTS, "ns", "x")
    with pytest.raises(Unauthorized, match=re.escape(why)):
        await anext(cluster.watch(REQUESTS, "ns", "", "1"))
    await cluster.close()
