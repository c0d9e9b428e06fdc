"""Marks of tests that need more than Python and a nats-server, with the reason to skip them."""

from __future__ import annotations

import os
import shutil

import pytest

needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root acts as other Unix users and gives files away"
)
needs_jq = pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
