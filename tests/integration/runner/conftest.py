"""A real server for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from integration.runner.harness import RunnerTestbed, running_testbed


@pytest.fixture
async def testbed(tmp_path: Path) -> AsyncIterator[RunnerTestbed]:
    async with running_testbed(tmp_path) as testbed:
        yield testbed
