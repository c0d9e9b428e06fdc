"""Which parameters a request may have, and for which pods it is made: by direct calls."""

from __future__ import annotations

import pytest

from admittance.api.fields.limits import PARAMETER_MAX, PARAMETERS_MAX
from admittance.api.workload import PodSet
from admittance.events.shapes import Admission, PodSetAssignment
from admittance.provisioning.new_request import (
    IncompleteReservation,
    assigned_pod_sets,
    parameters_error,
)


@pytest.mark.parametrize(
    ("parameters", "error"),
    [
        pytest.param({}, "", id="none"),
        pytest.param({str(n): "" for n in range(PARAMETERS_MAX)}, "", id="the most"),
        pytest.param(
            {str(n): "" for n in range(PARAMETERS_MAX + 1)},
            f"the request has {PARAMETERS_MAX + 1} parameters, "
            f"at most {PARAMETERS_MAX} are allowed",
            id="too many",
        ),
        pytest.param({"a": "x" * PARAMETER_MAX}, "", id="the longest value"),
        pytest.param({"x" * PARAMETER_MAX: ""}, "", id="the longest key"),
        pytest.param(
            {"a": "x" * (PARAMETER_MAX + 1)},
            f"parameter a has more than {PARAMETER_MAX} characters",
            id="a longer value",
        ),
        pytest.param(
            {"x" * (PARAMETER_MAX + 1): ""},
            f"parameter {'x' * 60} has more than {PARAMETER_MAX} characters",
            id="a longer key",
        ),
    ],
)
def test_parameters_have_limits(parameters: dict[str, str], error: str) -> None:
    assert parameters_error(parameters) == error


@pytest.mark.parametrize(
    ("count", "assigned", "expected"),
    [(2, 1, [1]), (1, 1, [1]), (1, 0, []), (0, 1, []), (0, None, []), (1, None, None)],
)
def test_capacity_is_asked_for_assigned_pods(
    count: int, assigned: int | None, expected: list[int] | None
) -> None:
    places = () if assigned is None else (PodSetAssignment(name="main", count=assigned),)
    admission = Admission(cluster_queue="cq", pod_set_assignments=places)
    pod_sets = [PodSet(name="main", count=count)]
    if expected is None:
        with pytest.raises(IncompleteReservation, match="pod set main has no assignment"):
            assigned_pod_sets(pod_sets, admission, ())
        return
    found = assigned_pod_sets(pod_sets, admission, ())
    assert [assignment.count for _, assignment in found] == expected
