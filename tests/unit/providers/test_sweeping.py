"""What a provider finds belongs to a request, or to nobody."""

from __future__ import annotations

import pytest

from admittance.providers.builtin import is_orphan
from admittance.providers.status_store import StoredStatus


@pytest.mark.parametrize(
    ("status", "wanted"),
    [
        pytest.param(None, True, id="of which nothing was ever said"),
        pytest.param("", True, id="that was only heard"),
        pytest.param("cancelled", True, id="that was taken back"),
        pytest.param("accepted", False, id="that is worked on, perhaps elsewhere"),
        pytest.param("provisioned", False, id="that is in use"),
        pytest.param("failed", False, id="whose cancellation is on its way"),
    ],
)
def test_what_belongs_to_a_request_is_nobodys(status: str | None, wanted: bool) -> None:
    said = (
        StoredStatus(id="u/c/1/1", namespace="ns", name="w", status=status)
        if status is not None
        else None
    )
    assert is_orphan(said) is wanted
