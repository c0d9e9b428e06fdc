"""How Debian's Chromium is started for tests, pictures and measurements of the web page."""

from __future__ import annotations

from typing import Final

FLAGS: Final = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"),
)
"""Without the sandbox it runs as root, too; it calls no server of its makers."""
