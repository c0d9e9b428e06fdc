"""Objects of requests that are not live any more are orphans."""

from __future__ import annotations

from typing import Any

import pytest

from admittance.providers import builtin
from admittance.providers.builtin import ObjectSteps, OrphanSweep, StoredRequest
from admittance.providers.status_store import StoredStatus

ID = "u/c/1/1"
STEPS = ObjectSteps("provider")


def stored(status: str, id: str = ID) -> StoredStatus:
    return StoredStatus(id=id, namespace="ns", name="w", status=status)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        pytest.param(None, True, id="an unknown request"),
        pytest.param("", True, id="a new request"),
        pytest.param("cancelled", True, id="a cancelled request"),
        pytest.param("accepted", False, id="a request in progress, perhaps elsewhere"),
        pytest.param("provisioned", False, id="a provisioned request"),
        pytest.param("failed", False, id="a failed request, which will be cancelled"),
    ],
)
def test_an_object_is_an_orphan_of(status: str | None, expected: bool) -> None:
    bus: Any = None
    request = stored(status) if status is not None else None
    assert OrphanSweep(bus, STEPS, ()).is_orphan(ID, request) is expected
    assert not OrphanSweep(bus, STEPS, (), in_progress={ID}).is_orphan(ID, request)
    only_cancelled = OrphanSweep(bus, STEPS, (), only_cancelled=True)
    assert only_cancelled.is_orphan(ID, request) is (status == "cancelled")


async def test_a_sweep_removes_the_orphans_among_the_listed_objects(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    requests = {
        id: StoredRequest("class", stored(status, id))
        for id, status in (("a", "cancelled"), ("b", "provisioned"))
    }

    async def read(*_: Any) -> dict[str, StoredRequest]:
        return requests

    monkeypatch.setattr(builtin, "stored_requests", read)
    bus: Any = None
    removed: list[str] = []

    async def remove(id: str) -> None:
        removed.append(id)

    listed = [(id, lambda id=id: remove(id)) for id in ("a", "b", "unknown", "here")]
    sweep = OrphanSweep(bus, STEPS, ["class"], in_progress=["here"])
    assert await sweep.sweep(listed) == requests

    assert removed == ["a", "unknown"]
