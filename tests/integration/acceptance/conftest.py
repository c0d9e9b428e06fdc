"""One stage for all scenarios of this folder."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from integration.acceptance.stage import Stage


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def the_stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    stage = await Stage(tmp_path_factory.mktemp("stage")).start()
    yield stage
    await stage.stop()


@pytest_asyncio.fixture(loop_scope="package")
async def stage(the_stage: Stage) -> AsyncIterator[Stage]:
    """The stage, and afterwards whether every revision kept the invariants of a life."""
    yield the_stage
    await the_stage.end_scenario()
    broken, the_stage.broken = the_stage.broken, []
    assert broken == []
