"""The error of an unreachable engine has a remedy."""

from __future__ import annotations

import pytest

from admittance.provider_docker.engine import error_sentence

SDK = "Error while fetching server API version: ('Connection aborted.', {})"
SOCKET = "unix:///run/engine.sock"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        pytest.param(
            OSError(SDK.format("PermissionError(13, 'Permission denied')")),
            "give the service the socket's group (compose.yaml: ADMIT_DOCKER_GROUP)",
            id="a socket of others names the group that is lacking",
        ),
        pytest.param(
            OSError(SDK.format("FileNotFoundError(2, 'No such file or directory')")),
            f"no engine listens at {SOCKET}: start it, or name another one, DOCKER_HOST",
            id="a socket that is not there is named",
        ),
        pytest.param(
            OSError(SDK.format("ConnectionRefusedError(111, 'Connection refused')")),
            f"no engine listens at {SOCKET}: start it, or name another one, DOCKER_HOST",
            id="an address without a listener",
        ),
        pytest.param(TimeoutError(), "TimeoutError", id="what says nothing goes by its kind"),
    ],
)
def test_the_error_of_an_unreachable_engine_has_a_remedy(
    error: Exception, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", SOCKET)
    assert error_sentence(error).endswith(said)
