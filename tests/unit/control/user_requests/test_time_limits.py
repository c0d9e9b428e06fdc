"""The time limit of a workload, its own or that of its queue, and what an admission says of it."""

from __future__ import annotations

import pytest

from admittance.api.fields.warning_signal import BadWarning, WarningSignal, noted_warning
from admittance.events.facts import Admitted
from admittance.workload.stored import head
from support.builders import NOON
from support.cores.timed_cores import TimedCores, cores_with_queue


def ends(cores: TimedCores, name: str) -> list[float | None]:
    """When the time of each admission of the workload is over, in seconds since noon."""
    admissions = [
        fact for fact in cores.published if isinstance(fact, Admitted) and fact.name == name
    ]
    return [fact.ends_at and (fact.ends_at - NOON).total_seconds() for fact in admissions]


def test_a_workload_without_a_time_limit_has_that_of_its_queue() -> None:
    cores = cores_with_queue(nominal="4", defaultMaximumExecutionTimeSeconds=100)
    cores.submit("own", "cq", maximumExecutionTimeSeconds=30)
    cores.submit("queues", "cq")
    cores.go()
    limits = [head(cores.stored(name)).maximum_execution_time_seconds for name in ("own", "queues")]
    assert limits == [30, 100]
    start = cores.seconds()
    assert (ends(cores, "own"), ends(cores, "queues")) == ([start + 30], [start + 100])
    cores.advance(31)
    assert (cores.phase("own"), cores.phase("queues")) == ("Deactivated", "Admitted")


def test_an_admission_says_when_the_time_that_is_left_is_over() -> None:
    cores = cores_with_queue(nominal="1", preemption={"withinClusterQueue": "LowerPriority"})
    cores.submit("w", "cq", maximumExecutionTimeSeconds=100)
    cores.submit("free", "cq", priority=-1)
    cores.go()
    start = cores.seconds()
    cores.advance(40)
    cores.submit("urgent", "cq", priority=5)
    cores.go()
    cores.finish("urgent")
    cores.go()
    again = cores.seconds()
    assert ends(cores, "w") == [start + 100, pytest.approx(again + 60, abs=2)]
    admissions = [fact for fact in cores.published if isinstance(fact, Admitted)]
    assert [fact.restarts for fact in admissions if fact.name == "w"] == [0, 1]
    cores.finish("w")
    cores.go()
    assert ends(cores, "free") == [None]


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("USR1@120", WarningSignal("USR1", 120)),
        ("SIGTERM@1", WarningSignal("TERM", 1)),
        ("KILL@9", None),
        ("USR1", None),
        ("USR1@", None),
        ("USR1@0", None),
        ("USR1@1m", None),
        ("USR1@" + "9" * 400, None),
        ("@5", None),
    ],
)
def test_a_warning_names_a_signal_and_seconds(text: str, warning: WarningSignal | None) -> None:
    annotations = {"admittance.dev/warning-signal": text}
    if warning is not None:
        assert noted_warning(annotations) == warning
    else:
        with pytest.raises(BadWarning):
            noted_warning(annotations)
    assert noted_warning({}) is None
