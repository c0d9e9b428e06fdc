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


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param(
            None,
            "the file does not exist (set ADMIT_KUBE_CONFIG to name another one)",
            id="a file that is not there",
        ),
        pytest.param(
            "{",
            "the file is not valid YAML, line 1: expected the node content, but found ",
            id="no YAML",
        ),
        pytest.param(b"\xff\xfe\x00", "the file is not a text file", id="bytes"),
        pytest.param("\0", "the file is not valid YAML: ", id="characters that YAML has not"),
        pytest.param(
            "",
            "the file is not a kubeconfig: it is empty, or its top level is not a mapping",
            id="an empty one",
        ),
        pytest.param(
            "- a\n",
            "the file is not a kubeconfig: it is empty, or its top level is not a mapping",
            id="a list",
        ),
        pytest.param(
            "hello",
            "the file is not a kubeconfig: it is empty, or its top level is not a mapping",
            id="a word",
        ),
        pytest.param(
            config(**{"current-context": None}),
            "the file has no current context: set ADMIT_KUBE_CONTEXT",
            id="no current context",
        ),
        pytest.param(
            config(**{"current-context": "there"}),
            "the file has no context 'there', only here",
            id="no such context",
        ),
        pytest.param(config(contexts=[]), "the file has no contexts", id="no contexts"),
        pytest.param(
            config(contexts=["here"]), "the file has no contexts", id="no mapping as context"
        ),
        pytest.param(
            config(contexts=[{"name": "here", "context": "prod"}]),
            "the context 'here' is not a mapping",
            id="a context that is a word",
        ),
        pytest.param(
            config(contexts=[{"name": "here", "context": {"user": "me"}}]),
            "the context 'here' names no cluster",
            id="a context without a cluster",
        ),
        pytest.param(
            config(contexts=[{"name": "here", "context": {"cluster": "prod"}}]),
            "the context 'here' names no user",
            id="a context without a user",
        ),
        pytest.param(config(clusters=None), "the file has no clusters", id="no clusters"),
        pytest.param(config(users=[]), "the file has no users", id="no users"),
        pytest.param(cluster(), "the cluster 'prod' has no server", id="no server"),
        pytest.param(cluster(server="http://a:b"), "Invalid port", id="no server's address"),
        pytest.param(
            cluster(server=7),
            "Expected `str`, got `int` - at `$.server`",
            id="a server that is a number",
        ),
        pytest.param(
            cluster(**{"server": "https://x", "certificate-authority": "/none"}),
            "a certificate file is missing; `kubectl config view --flatten` writes it in",
            id="a certificate that is elsewhere",
        ),
        pytest.param(
            cluster(**{"server": "https://x", "certificate-authority-data": "a"}),
            "the value of certificate-authority-data is not valid base64",
            id="a certificate that was cut short",
        ),
        pytest.param(
            cluster(**{"server": "https://x", "certificate-authority": __file__}),
            "the certificates cannot be read: ",
            id="a certificate that is none",
        ),
    ],
)
def test_an_unusable_kubeconfig_is_named_with_the_reason(
    tmp_path: Path, text: str | bytes | None, why: str
) -> None:
    path = tmp_path / "config"
    if text is not None:
        path.write_bytes(text.encode() if isinstance(text, str) else text)

    with pytest.raises(SetupError) as told:
        connect(KubeSettings(kubeconfig=str(path)))

    assert str(told.value).startswith(f"the kubeconfig {path} cannot be used: {why}")
    assert "\n" not in str(told.value)


async def test_only_the_selected_context_has_to_be_valid(tmp_path: Path) -> None:
    path = tmp_path / "config"
    other = {"name": "other", "context": {"cluster": "gone"}}
    clusters = [CLUSTER, {"name": "old", "cluster": {"server": 7}}]
    path.write_text(
        config(contexts=[other, CONTEXT], clusters=clusters, **{"current-context": "other"})
    )

    found = connect(KubeSettings(kubeconfig=str(path), context="here"))

    assert found.server == "http://127.0.0.1:1"
    await found.close()


@pytest.mark.parametrize(
    ("user", "why"),
    [
        pytest.param(
            {"command": "/none/login"}, "No such file or directory: '/none/login'", id="is missing"
        ),
        pytest.param({"command": "false"}, "Exec false returned 1", id="fails"),
        pytest.param({"command": "echo", "args": ["hello"]}, "Expecting value", id="says no token"),
        pytest.param(
            {"command": "x", "apiVersion": "client.authentication.k8s.io/v1"},
            "auth exec api version client.authentication.k8s.io/v1 not implemented",
            id="an unsupported version",
        ),
    ],
)
async def test_a_failing_login_program_is_reported_and_run_again(
    tmp_path: Path, user: dict[str, Any], why: str
) -> None:
    """If the provider ended, it would also end for a login that has to be renewed."""
    path = tmp_path / "config"
    program = {"apiVersion": "client.authentication.k8s.io/v1beta1", **user}
    path.write_text(config(users=[{"name": "me", "user": {"exec": program}}]))
    found = connect(KubeSettings(kubeconfig=str(path)))

    with pytest.raises(Unauthorized, match="cannot log in to the API server: .*" + re.escape(why)):
        await found.get(REQUESTS, "ns", "x")
    with pytest.raises(Unauthorized, match=re.escape(why)):
        await anext(found.watch(REQUESTS, "ns", "", "1"))
    await found.close()
