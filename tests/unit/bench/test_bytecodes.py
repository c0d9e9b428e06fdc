"""A workload takes about as many bytecodes of Python as recorded."""

from __future__ import annotations

import pytest
from benchmarks.bytecodes import measured, recorded, version

LARGEST_CHANGE = 0.03


def test_a_workload_takes_as_many_bytecodes_as_recorded() -> None:
    figures = recorded().get(version())
    if figures is None:
        pytest.skip(f"no counts are recorded for Python {version()}: `make bytecodes` records them")
    now = measured()
    change = now["all"] / figures["all"] - 1
    assert abs(change) <= LARGEST_CHANGE, (
        f"{change:+.1%}: if that is right, record it with `make bytecodes`. "
        f"Now {now}, recorded {figures}"
    )
