"""The services that ship, in many random lives of jobs with a budget: no promise is broken."""

from __future__ import annotations

import pytest

from simulation.hunting.hunt import Part, check, parts_of_suite


@pytest.mark.parametrize("part", parts_of_suite("budgeted"), ids=str)
def test_whatever_fails_every_promise_is_kept(part: Part) -> None:
    check(part)
