"""A submitted command may ask for a warning, which must come after its start."""

from __future__ import annotations

import pytest

from admittance.api.fields.warning_signal import FIRST_SECONDS, WarningSignal
from admittance.client.arguments.spelling import IN_PYTHON
from admittance.client.errors import BadInput
from admittance.client.requests.submissions.commands import check_warning, warning_of
from admittance.runner.jobs.time_warnings import EARLIEST_SECONDS


@pytest.mark.parametrize(
    ("seconds", "of_queue", "said"),
    [
        (121, None, ""),
        (None, 121, ""),
        (None, None, ""),
        (120, 500, "signal USR1@120: the warning must come after the start of the job"),
    ],
)
def test_a_warning_comes_after_the_start_of_a_job_with_a_time_limit(
    seconds: int | None, of_queue: int | None, said: str
) -> None:
    cluster = {"spec": {"defaultMaximumExecutionTimeSeconds": of_queue}} if of_queue else {}
    try:
        check_warning(WarningSignal("USR1", 120), seconds, cluster, IN_PYTHON)
    except BadInput as error:
        assert said, error
        assert str(error).startswith(said)
    else:
        assert not said


@pytest.mark.parametrize(("seconds", "is_refused"), [(10, True), (11, False)])
def test_a_warning_that_no_run_would_get_is_refused(seconds: int, is_refused: bool) -> None:
    assert FIRST_SECONDS == EARLIEST_SECONDS
    try:
        check_warning(WarningSignal("USR1", 1), seconds, {}, IN_PYTHON)
    except BadInput as error:
        assert is_refused
        assert str(error) == (
            "signal USR1@1: no job is warned in its first 10 s, and this one may run 10 s"
        )
    else:
        assert not is_refused


def test_a_text_that_names_no_warning_is_refused() -> None:
    assert (warning_of(None), warning_of("usr1@5")) == (None, WarningSignal("USR1", 5))
    with pytest.raises(BadInput, match=r"^signal must be SIGNAL@SECONDS such as USR1@120, not "):
        warning_of("USR1@2m")
