"""The minute of the README works word for word, for a person without a configuration."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from support import readme_minute

pytestmark = pytest.mark.bus


def test_commands_of_the_minute_work(tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    readme_minute.play(readme_minute.person(tmp_path, path), tmp_path)
