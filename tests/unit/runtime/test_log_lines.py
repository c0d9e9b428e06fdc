"""A log line is written whatever values it has."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from admittance.runtime.telemetry.logs import _json


@pytest.mark.parametrize(
    "value",
    [pytest.param("\ud800", id="half a character"), pytest.param({1: "\udfff"}, id="inside")],
)
def test_values_that_json_cannot_contain_are_escaped(value: Any) -> None:
    line = msgspec.json.decode(_json({"event": "message_dead_lettered", "reason": value}))
    assert "message_dead_lettered" in line["event"]
    assert "\\ud" in line["reason"]
