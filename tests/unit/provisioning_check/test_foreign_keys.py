"""Keys of the bucket that no object of the provisioning check can have."""

from __future__ import annotations

from typing import Any, cast

import pytest

from admittance.provisioning.observed_state import ObservedState
from admittance.provisioning_check.bucket_watch import BucketWatch
from admittance.runtime.bus.bucket import Entry
from admittance.runtime.telemetry import object_faults


@pytest.mark.parametrize(
    "key",
    [
        "workload.x",
        "workload.a.b.c",
        "provisioningrequest.x",
        "provisioningrequest.a.b.c",
        "admissioncheck.a.b",
        "flavor",
    ],
)
def test_a_key_of_a_wrong_form_is_set_aside_and_not_reported_as_a_bug(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded: list[object] = []
    monkeypatch.setattr(
        object_faults.faults, "record", lambda *recorded_fault: recorded.append(recorded_fault)
    )
    observed = ObservedState()
    watch = BucketWatch(cast(Any, None), observed, lambda: None, lambda: None)
    watch._read_batch([Entry(key, b"{}", 1)])
    watch._on_objects_loaded(1)
    assert not recorded
    assert not watch.needed.is_set(), "it counts as no request that was deleted by hand"
    assert not (observed.workloads or observed.records or observed.checks)
