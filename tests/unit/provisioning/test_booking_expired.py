"""An expired booking is of no use to a workload that has not started."""

from __future__ import annotations

import pytest

from admittance.events import provisioning as facts
from unit.provisioning.test_requests_follow import Story


@pytest.mark.parametrize("kind", [facts.BookingExpired, facts.ProvisioningFailed])
def test_an_expired_booking_retries_a_workload_that_is_not_admitted(
    kind: type[facts.ProvisioningStatus],
) -> None:
    """For instance a variant that waits until another variant has stopped."""
    story = Story()
    story.reserved()
    story.apply_status(facts.Provisioned)
    story.reserved(state="Ready")

    story.apply_status(kind)

    assert story.last[0] == "Retry"
