"""The images of everything in containers; without an engine all of it is skipped."""

from __future__ import annotations

import socket

import containers
import pytest


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An image with Python, nats-server and the lock's packages; on it compose.yaml's images are
    built, once for all tests."""
    reason = containers.engine()
    if reason:
        pytest.skip(reason)
    found = containers.base_image(tmp_path_factory.mktemp("base"))
    containers.build(found)
    return found


@pytest.fixture(scope="session")
def gateway() -> str:
    """An address of this machine that containers reach; what they shall not see listens there."""
    if containers.engine():
        pytest.skip(containers.engine())
    found = containers.docker(
        *("network", "inspect", "bridge", "--format", "{{(index .IPAM.Config 0).Gateway}}")
    ).strip()
    try:
        with socket.socket() as probe:
            probe.bind((found, 0))
    except OSError as error:
        pytest.skip(f"containers do not reach this machine at {found!r}: {error}")
    return found
