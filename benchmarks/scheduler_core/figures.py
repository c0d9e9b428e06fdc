"""The figures by name. Units are in the names."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from admittance.scheduling.state.config import CohortFairSharing, Config

from .decisions import (
    admission_microseconds,
    arrival_microseconds,
    bytes_per_workload,
    decision_microseconds,
    explain_milliseconds,
)
from .preemption import SHAPES, futile_search_milliseconds, preemption_milliseconds
from .queries import (
    explain_classes_milliseconds,
    explain_preemptor_milliseconds,
    pending_milliseconds,
)
from .virtual_run import baseline_microseconds, contended_microseconds


class Figure(NamedTuple):
    """A function that measures the figure, and how often it runs."""

    run: Callable[[], float]
    runs: int = 3


PREEMPTING: Final = Config(preemption=True)
SHARES: Final = Config(preemption=True, fair_sharing=CohortFairSharing())

FIGURES: Final[dict[str, Figure]] = {
    # The first figure, while the process has no freed memory that it could use again.
    "bytesPerPendingWorkload": Figure(lambda: bytes_per_workload(30, 199_000), 1),
    "decisionMicroseconds30": Figure(lambda: decision_microseconds(30, 12_000)[0]),
    "decisionMicroseconds1000": Figure(lambda: decision_microseconds(1_000, 12_000)[0]),
    "decisionMicroseconds3000": Figure(lambda: decision_microseconds(3_000, 12_000)[0]),
    "decisionWithEchoMicroseconds30": Figure(lambda: decision_microseconds(30, 12_000)[1]),
    "decisionWithEchoMicroseconds3000": Figure(lambda: decision_microseconds(3_000, 12_000)[1]),
    "arrivalMicroseconds30": Figure(lambda: arrival_microseconds(30, 12_000)),
    "contendedMicroseconds30": Figure(lambda: contended_microseconds(30, PREEMPTING)),
    "contendedMicroseconds3000": Figure(lambda: contended_microseconds(3_000, PREEMPTING)),
    "contendedWithoutPreemptionMicroseconds30": Figure(
        lambda: contended_microseconds(30, Config(preemption=False))
    ),
    "contendedSharesMicroseconds30": Figure(lambda: contended_microseconds(30, SHARES)),
    "livingMicroseconds": Figure(lambda: baseline_microseconds(PREEMPTING)),
    "livingWithoutPreemptionMicroseconds": Figure(
        lambda: baseline_microseconds(Config(preemption=False))
    ),
    "livingSharesMicroseconds": Figure(lambda: baseline_microseconds(SHARES)),
    "admissionMicrosecondsAmong1000": Figure(lambda: admission_microseconds(1_000)),
    "admissionMicrosecondsAmong200000": Figure(lambda: admission_microseconds(200_000), 1),
    "explainMilliseconds100000": Figure(lambda: explain_milliseconds(30, 100_000), 1),
    "explainMilliseconds100000Among1000": Figure(
        lambda: explain_preemptor_milliseconds(1_000, 100_000), 1
    ),
    "explainSharesMilliseconds100000Among1000": Figure(
        lambda: explain_preemptor_milliseconds(1_000, 100_000, fair=True), 1
    ),
    "explainMillisecondsOf10000Classes": Figure(lambda: explain_classes_milliseconds(10_000), 1),
    "pendingMillisecondsFirst1000Of100000": Figure(
        lambda: pending_milliseconds(100_000, local=False), 1
    ),
    "pendingMillisecondsLocalQueueOf100000": Figure(
        lambda: pending_milliseconds(100_000, local=True), 1
    ),
    "searchInVainMillisecondsOwnQueue": Figure(lambda: futile_search_milliseconds(1_000)),
    "searchInVainMillisecondsOneLender": Figure(
        lambda: futile_search_milliseconds(1_000, own=False)
    ),
}


def _searches() -> dict[str, Figure]:
    figures: dict[str, Figure] = {}
    for shape, arguments in SHAPES.items():
        for victims in (20, 500):
            search: Any = preemption_milliseconds
            run = partial(search, 1_000, victims, **arguments)
            figures[f"{shape}Milliseconds{victims}of1000"] = Figure(run, 5)
    return figures


FIGURES.update(_searches())
