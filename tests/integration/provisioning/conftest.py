"""EC2 for the tests of its provider: one server for all of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ec2_server import Ec2Server


@pytest.fixture(scope="session")
def ec2_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ec2Server]:
    server = Ec2Server(tmp_path_factory.mktemp("ec2"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def ec2(ec2_process: Ec2Server) -> Ec2Server:
    """As new."""
    ec2_process.reset()
    return ec2_process
