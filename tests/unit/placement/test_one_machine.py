"""Workloads of several pods and pod sets are placed on one machine, or not at all."""

from __future__ import annotations

import pytest

from admittance.placement.one_machine import place_on_one, together
from admittance.placement.shortage import Shortage
from support.machines import Machines, a_group, a_machine, a_request, placed


@pytest.mark.parametrize(
    ("groups", "on"),
    [
        ([a_group(3, gpus=2)], "large"),
        ([a_group(2, gpus=2)], "small"),
        # Alone each pod set would go to the machine that it leaves the least on.
        ([a_group(1, gpus=4, name="a"), a_group(1, cpu=60, name="b")], "large"),
        ([a_group(2, gpus=2, name="a"), a_group(2, gpus=2, name="b")], "large"),
        ([a_group(1, gpus=8, name="a"), a_group(1, gpus=1, name="b")], ""),
        ([a_group(5, gpus=2)], ""),
    ],
)
def test_all_pods_are_on_one_machine_or_on_none(groups: list[object], on: str) -> None:
    machines = Machines(a_machine("small", gpus=4, cpu=8), a_machine("large", gpus=8))
    request = together(a_request("ns/w", *groups))  # type: ignore[arg-type]
    found = place_on_one(request, machines.index)
    if not on:
        assert isinstance(found, Shortage)
        assert "one machine" in found.message or "together" in found.message
    else:
        assert {runner for runner, _ in placed(found)} == {on}
