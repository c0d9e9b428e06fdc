"""What the forecast service counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from admittance.forecast.forecast import Memory
from admittance.runtime.telemetry.metrics import Counter, Definition, Gauges, Labels, Metric, gauge

AGE: Final = gauge(
    "forecast_age_seconds", "Age of the oldest forecast that is given; 0: there is none"
)
COMPARED: Final = gauge(
    "forecast_compared", "Forecasts that were compared with the start of their workload"
)
INSIDE: Final = gauge(
    "forecast_inside_share", "Share of the compared forecasts with the start between p10 and p90"
)
GAUGES: Final = (AGE, COMPARED, INSIDE)


class ForecastMetrics:
    """``plays`` counts the forecasts of trees, ``cpu`` the CPU time that they took."""

    def __init__(self) -> None:
        self.plays = Counter("forecast_plays", "Forecasts of a cohort tree that were made", ())
        self.cpu = Counter("forecast_cpu_seconds", "CPU time of the forecasts", ())

    @property
    def definitions(self) -> list[Definition]:
        """All metrics of the service."""
        return [*self.plays.definitions, *self.cpu.definitions, *GAUGES]

    def gauges(
        self, memories: Callable[[], Mapping[str, Memory]], age: Callable[[], float]
    ) -> Gauges:
        """The gauges. ``memories``: by tree; ``age``: of the oldest forecast."""

        def read() -> dict[str, dict[Labels, float]]:
            known = list(memories().values())
            compared = sum(each.compared for each in known)
            values: dict[str, dict[Labels, float]] = {
                AGE.name: {(): age()},
                COMPARED.name: {(): compared},
            }
            if compared:
                values[INSIDE.name] = {(): sum(each.inside for each in known) / compared}
            return values

        return Gauges(GAUGES, read)

    def metrics(
        self, memories: Callable[[], Mapping[str, Memory]], age: Callable[[], float]
    ) -> tuple[Metric, ...]:
        """What the admin port shows."""
        return (self.plays, self.cpu, self.gauges(memories, age))
