"""The image that everything in containers is built on; without an engine all of it is skipped."""

from __future__ import annotations

import containers
import pytest


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An image with Python, nats-server and the lock's packages."""
    reason = containers.engine()
    if reason:
        pytest.skip(reason)
    return containers.base_image(tmp_path_factory.mktemp("base"))
