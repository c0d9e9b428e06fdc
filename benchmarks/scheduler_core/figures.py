"""The figures by name. Units are in the names."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from admittance.scheduling.state.config import Config, FairSharing

from .answering import candidates, classes, listing
from .deciding import among, arrivals, decisions, explaining, memory
from .living import contended, living
from .searching import SHAPES, in_vain, preempting


class Figure(NamedTuple):
    """How it is found, and how often."""

    run: Callable[[], float]
    runs: int = 3


PREEMPTING: Final = Config(preemption=True)
SHARES: Final = Config(preemption=True, fair_sharing=FairSharing())

FIGURES: Final[dict[str, Figure]] = {
    # First, while the process has no memory to use again.
    "bytesPerPendingWorkload": Figure(lambda: memory(30, 199_000), 1),
    "decisionMicroseconds30": Figure(lambda: decisions(30, 12_000)[0]),
    "decisionMicroseconds1000": Figure(lambda: decisions(1_000, 12_000)[0]),
    "decisionMicroseconds3000": Figure(lambda: decisions(3_000, 12_000)[0]),
    "decisionWithEchoMicroseconds30": Figure(lambda: decisions(30, 12_000)[1]),
    "decisionWithEchoMicroseconds3000": Figure(lambda: decisions(3_000, 12_000)[1]),
    "arrivalMicroseconds30": Figure(lambda: arrivals(30, 12_000)),
    "contendedMicroseconds30": Figure(lambda: contended(30, PREEMPTING)),
    "contendedMicroseconds3000": Figure(lambda: contended(3_000, PREEMPTING)),
    "contendedWithoutPreemptionMicroseconds30": Figure(
        lambda: contended(30, Config(preemption=False))
    ),
    "contendedSharesMicroseconds30": Figure(lambda: contended(30, SHARES)),
    "livingMicroseconds": Figure(lambda: living(PREEMPTING)),
    "livingWithoutPreemptionMicroseconds": Figure(lambda: living(Config(preemption=False))),
    "livingSharesMicroseconds": Figure(lambda: living(SHARES)),
    "admissionMicrosecondsAmong1000": Figure(lambda: among(1_000)),
    "admissionMicrosecondsAmong200000": Figure(lambda: among(200_000), 1),
    "explainMilliseconds100000": Figure(lambda: explaining(30, 100_000), 1),
    "explainMilliseconds100000Among1000": Figure(lambda: candidates(1_000, 100_000), 1),
    "explainSharesMilliseconds100000Among1000": Figure(
        lambda: candidates(1_000, 100_000, fair=True), 1
    ),
    "explainMillisecondsOf10000Classes": Figure(lambda: classes(10_000), 1),
    "pendingMillisecondsFirst1000Of100000": Figure(lambda: listing(100_000, local=False), 1),
    "pendingMillisecondsLocalQueueOf100000": Figure(lambda: listing(100_000, local=True), 1),
    "searchInVainMillisecondsOwnQueue": Figure(lambda: in_vain(1_000)),
    "searchInVainMillisecondsOneLender": Figure(lambda: in_vain(1_000, own=False)),
}


def _searches() -> dict[str, Figure]:
    found: dict[str, Figure] = {}
    for shape, arguments in SHAPES.items():
        for victims in (20, 500):
            run: Any = partial(preempting, 1_000, victims, **arguments)  # type: ignore[arg-type]
            found[f"{shape}Milliseconds{victims}of1000"] = Figure(run, 5)
    return found


FIGURES.update(_searches())
