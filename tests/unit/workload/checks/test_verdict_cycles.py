"""A verdict names the cycle of its request."""

from __future__ import annotations

from typing import Any

import pytest

from support.cores.stepped_cores import SteppedCores
from support.cores.stepped_scheduler import groups


@pytest.mark.parametrize("verdict", [{"state": "Rejected"}, {"state": "Retry"}])
def test_a_verdict_of_cycle_minus_one_is_stale(verdict: dict[str, Any]) -> None:
    cores = SteppedCores()
    cores.check("c")
    cores.queue("cq", resourceGroups=groups(default="1"), admissionChecks=["c"])
    cores.submit("w", "cq", "2")
    cores.settle()
    cores.verdict("w", "c", cycle=-1, requeue_after_seconds=60, **verdict)
    assert cores.phase("w") == "Pending"
    assert cores.stored("w").status.admission_cycle == 0
