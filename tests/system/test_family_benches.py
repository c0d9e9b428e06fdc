"""The benchmarks of families, with small numbers, measure the running system."""

from __future__ import annotations

import re

import pytest
from benchmarks import families, upgrade

pytestmark = pytest.mark.bus


async def test_families_are_counted_by_what_they_cost() -> None:
    family = await families.measured_cost(20, 3, 2, 0, None)
    assert family.decisions >= 1
    assert family.messages > 10  # a parent, three variants, and what becomes of them
    assert family.per_second > 0
    assert family.summary.startswith("20 families: all admitted after ")


@pytest.mark.parametrize("checks", [0, 1])
async def test_every_upgrade_is_one_of_a_job_that_ran(checks: int) -> None:
    [line] = await upgrade.measured(families=4, checks=checks, nats=None)
    assert re.match(rf"4 upgrades, {checks} checks: .* p50 [\d.]+ ms, p99 [\d.]+ ms", line)
