"""A runner with a login that may not do its work says what to do."""

from __future__ import annotations

import structlog

from admittance.runner.runs.publisher import DENIED, retry
from admittance.runtime.errors import AccessDenied


async def test_a_login_without_the_rights_of_a_runner_is_explained() -> None:
    errors = iter([AccessDenied("not allowed")])

    async def ask() -> int:
        for error in errors:
            raise error
        return 7

    with structlog.testing.capture_logs() as logs:
        assert await retry(ask) == 7
    assert logs[0]["do"] == DENIED
