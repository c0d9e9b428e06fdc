"""A verdict names the cycle that it judged."""

from __future__ import annotations

from typing import Any

import pytest

from support.cores.scheduling_story import groups

from living import Life


@pytest.mark.parametrize("verdict", [{"state": "Rejected"}, {"state": "Retry"}])
def test_a_verdict_of_cycle_minus_one_is_stale(verdict: dict[str, Any]) -> None:
    life = Life()
    life.check("c")
    life.queue("cq", resourceGroups=groups(default="1"), admissionChecks=["c"])
    life.submit("w", "cq", "2")
    life.settle()
    life.verdict("w", "c", cycle=-1, requeue_after_seconds=60, **verdict)
    assert life.phase("w") == "Pending"
    assert life.stored("w").status.admission_cycle == 0
