"""A queue may name a check before it exists; its controller is asked when the check is created."""

from __future__ import annotations

from typing import Any

from admittance.events.facts import CheckRequested
from admittance.workload.check_rows import row_of
from support.cores.stepped_cores import SteppedCores


def asked(cores: SteppedCores) -> list[str]:
    return [one.check for one in cores.check_facts if isinstance(one, CheckRequested)]


def message(cores: SteppedCores, check: str) -> str:
    row = row_of(cores.stored("w").status.admission_checks, check)
    assert row is not None
    return row.message


def test_a_check_created_after_the_reservation_is_requested_then() -> None:
    cores = SteppedCores()
    cores.check("first")
    spec: dict[str, Any] = {
        "resourceGroups": [
            {
                "coveredResources": ["cpu"],
                "flavors": [
                    {"name": "default", "resources": [{"name": "cpu", "nominalQuota": "1"}]}
                ],
            }
        ]
    }
    cores.queue("cq", **spec, admissionChecks=["first"])
    cores.submit("w", "cq")
    cores.settle()
    assert asked(cores) == ["first"]
    cores.queue("cq", **spec, admissionChecks=["first", "later"])
    assert asked(cores) == ["first"]
    assert message(cores, "later") == "AdmissionCheck later doesn't exist"
    cores.check("later")
    assert asked(cores) == ["first", "later"]
    assert message(cores, "later") == ""
    # Once is enough, whatever else is changed.
    cores.check("later")
    cores.queue("cq", **spec, admissionChecks=["first", "later"])
    assert asked(cores) == ["first", "later"]
    for check in ("first", "later"):
        cores.verdict("w", check, "Ready")
    cores.settle()
    assert cores.phase("w") == "Admitted"
