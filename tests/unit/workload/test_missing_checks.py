"""A queue may name a check before it exists; its controller is asked when the check is created."""

from __future__ import annotations

from typing import Any

from admittance.events.facts import CheckRequested
from admittance.workload.check_rows import row_of

from living import Life


def asked(life: Life) -> list[str]:
    return [one.check for one in life.asked if isinstance(one, CheckRequested)]


def message(life: Life, check: str) -> str:
    row = row_of(life.stored("w").status.admission_checks, check)
    assert row is not None
    return row.message


def test_a_check_created_after_the_reservation_is_requested_then() -> None:
    life = Life()
    life.check("first")
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
    life.queue("cq", **spec, admissionChecks=["first"])
    life.submit("w", "cq")
    life.settle()
    assert asked(life) == ["first"]
    life.queue("cq", **spec, admissionChecks=["first", "later"])
    assert asked(life) == ["first"]
    assert message(life, "later") == "AdmissionCheck later doesn't exist"
    life.check("later")
    assert asked(life) == ["first", "later"]
    assert message(life, "later") == ""
    # Once is enough, whatever else is changed.
    life.check("later")
    life.queue("cq", **spec, admissionChecks=["first", "later"])
    assert asked(life) == ["first", "later"]
    for check in ("first", "later"):
        life.verdict("w", check, "Ready")
    life.settle()
    assert life.phase("w") == "Admitted"
