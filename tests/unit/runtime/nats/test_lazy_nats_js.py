"""A command does not load `nats.js`; code that needs it finds it."""

from __future__ import annotations

import subprocess
import sys

import pytest

CONNECTION = "import sys, admittance.runtime.bus.bus, nats; "
LOADED = "sys.stdout.write(str('nats.js.client' in sys.modules))"


def printed(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", CONNECTION + code + LOADED],
        check=True,
        capture_output=True,
        text=True,
    ).stdout


def test_a_connection_does_not_load_nats_js() -> None:
    assert printed("") == "False"


@pytest.mark.parametrize(
    "use",
    [
        "nats.js.JetStreamContext(None); ",
        "nats.js.api.Header.STATUS; ",
        "from nats.js import JetStreamContext; ",
        "import nats.js.errors; ",
        "from nats.js.api import Header; ",
    ],
)
def test_nats_js_is_loaded_when_used(use: str) -> None:
    assert printed(use) == "True"
