"""`SyncClient` has the methods and docstrings of `Client`, and importing the package is cheap."""

from __future__ import annotations

import subprocess
import sys

from tools.sync_client import NAMES, formatted, target, written

from admittance.client import Client, Job, SyncClient, SyncJob


def test_the_sync_client_is_made_from_the_client() -> None:
    for name in NAMES:
        assert target(name).read_text() == formatted(written(name), target(name))


def test_the_sync_client_has_every_method_of_the_client() -> None:
    for made_from, other in ((Client, SyncClient), (Job, SyncJob)):
        public = {name for name in dir(made_from) if not name.startswith("_")}
        assert public == {name for name in dir(other) if not name.startswith("_")}
        for name in public:
            assert getattr(made_from, name).__doc__ == getattr(other, name).__doc__


def test_commands_import_the_package_without_the_client_of_the_bus() -> None:
    program = "import admittance.client.errors, sys; print('nats' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"
