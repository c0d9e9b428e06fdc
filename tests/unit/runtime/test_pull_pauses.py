"""When a pull consumer looks whether the server is silent."""

from __future__ import annotations

import pytest

from admittance.runtime.bus.pull_consumer import look_after


@pytest.mark.parametrize(
    ("quiet", "want"), [(0.0, 2.5), (1.0, 1.5), (1.5, 1.0), (2.0, 1.0), (2.5, 1.0), (60.0, 1.0)]
)
def test_a_consumer_looks_when_the_silence_may_be_too_long(quiet: float, want: float) -> None:
    assert look_after(1.0, quiet) == want
    assert look_after(0.5, quiet / 2) == want / 2
