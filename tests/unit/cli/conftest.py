from __future__ import annotations

import pytest

from support.processes.in_process import Admit


@pytest.fixture
def admit(capsys: pytest.CaptureFixture[str]) -> Admit:
    return Admit(capsys)
