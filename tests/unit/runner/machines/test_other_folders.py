"""The folders that other runners announce."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from admittance.events.subjects import ANNOUNCED_RUNNERS
from admittance.runner.host.other_folders import OtherFolders
from admittance.runtime.bus.bucket import Entry

UNREADABLE = (b"", b"no JSON", b'{"root": 1}', b"\xff", b'{"root":"/r","x":' + b"[" * 100_000)


class Machine:
    """A machine that tells which folders it is asked to search."""

    def find_run(self, roots: dict[str, str], key: str) -> Any:
        return roots, key


@pytest.mark.parametrize("value", UNREADABLE, ids=range(len(UNREADABLE)))
async def test_an_announcement_that_cannot_be_read_changes_nothing(value: bytes) -> None:
    folder = SimpleNamespace(runner="me")
    others = OtherFolders(cast(Any, None), cast(Any, Machine()), cast(Any, folder))
    entries = [("a", b'{"root":"/a"}'), ("b", value), ("c", b'{"root":"/c"}')]
    others.learn([Entry(f"{ANNOUNCED_RUNNERS}.{runner}", data, 1) for runner, data in entries])
    others.loaded.set()
    assert await others.find("ns.w") == ({"a": "/a", "c": "/c"}, "ns.w")
