"""A booking that has expired is of no use to who has not started, whatever he waits for."""

from __future__ import annotations

import pytest

from admittance.events import provisioning as facts
from unit.provisioning_check.test_requests_follow import Story


@pytest.mark.parametrize("kind", [facts.BookingExpired, facts.ProvisioningFailed])
def test_who_has_passed_all_checks_and_is_not_admitted_yet_is_retried(
    kind: type[facts.ProvisioningStatus],
) -> None:
    """Such as a variant whose sibling has to stop before."""
    story = Story()
    story.reserved()
    story.says(facts.Provisioned)
    story.reserved(state="Ready")

    story.says(kind)

    assert story.last[0] == "Retry"
