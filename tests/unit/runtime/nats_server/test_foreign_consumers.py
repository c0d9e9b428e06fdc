"""Which consumers with a name of Admittance are foreign."""

from __future__ import annotations

from typing import Any

import pytest

from admittance.runtime.bus.durables import foreign_reason

OURS = {"ack_policy": "all"}


def test_a_consumer_of_a_leader_is_not_foreign() -> None:
    assert foreign_reason(OURS, 7, 100, 100) == ""


@pytest.mark.parametrize(
    ("config", "generation", "floor"),
    [
        pytest.param({"ack_policy": "explicit"}, 7, 0, id="acknowledged one by one"),
        pytest.param({"ack_policy": "none"}, 7, 0, id="never acknowledged"),
        pytest.param({**OURS, "deliver_subject": "x"}, 7, 0, id="pushed"),
        pytest.param(OURS, 101, 0, id="of an epoch behind the end of the log"),
        pytest.param(OURS, 7, 101, id="begins behind the end of the log"),
    ],
)
def test_a_consumer_that_no_leader_makes_is_foreign(
    config: dict[str, Any], generation: int, floor: int
) -> None:
    assert "delete it" in foreign_reason(config, generation, floor, 100)
