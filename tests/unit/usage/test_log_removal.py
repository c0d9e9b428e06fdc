"""How much of the log may be removed."""

from __future__ import annotations

from typing import Any

import pytest

from admittance.usage.retention import LogConsumer, LogSize, Removal, removal

MIB = 1 << 20
FULL = LogSize(bytes=120 * MIB, messages=120_000, first=1, last=120_000)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({"bound": 120 * MIB}, Removal(0), id="it is not larger than its bound"),
        pytest.param({}, Removal(40_000), id="down to four fifths of the bound"),
        pytest.param({"removed": 50_000}, Removal(90_000), id="behind what is removed"),
        pytest.param({"needed": 30_001}, Removal(30_000), id="not what sums need"),
        pytest.param({"needed": 1}, Removal(0), id="nothing is summed"),
        pytest.param(
            {"readers": [LogConsumer("check-a", 50_000), LogConsumer("check-b", 20_000)]},
            Removal(20_000, "check-b"),
            id="not what a reader has not read",
        ),
        pytest.param(
            {"bound": 50 * MIB, "readers": [LogConsumer("check-b", 20_000)]},
            Removal(80_000),
            id="at twice the bound no reader is waited for",
        ),
        pytest.param(
            {"size": LogSize(bytes=120 * MIB, messages=120_000, first=60_001, last=180_000)},
            Removal(100_000),
            id="the begin of the log is gone by age",
        ),
        pytest.param({"size": LogSize(0, 0, 1, 0)}, Removal(0), id="it is empty"),
    ],
)
def test_the_oldest_part_that_is_not_needed_is_removed(
    fields: dict[str, Any], expected: Removal
) -> None:
    given: dict[str, Any] = {
        "size": FULL,
        "bound": 100 * MIB,
        "removed": 0,
        "needed": 200_000,
        "readers": [],
    }
    assert removal(**(given | fields)) == expected
