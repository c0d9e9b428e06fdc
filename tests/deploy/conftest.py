"""The images of everything in containers; without an engine all of it is skipped."""

from __future__ import annotations

import containers
import pytest


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An image with Python, nats-server and the lock's packages; on it compose.yaml's images are
    built, once for all tests."""
    reason = containers.engine()
    if reason:
        pytest.skip(reason)
    image = containers.base_image(tmp_path_factory.mktemp("base"))
    containers.build(image)
    return image
