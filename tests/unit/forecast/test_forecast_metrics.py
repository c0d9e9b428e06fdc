"""The metrics of forecasts."""

from __future__ import annotations

from admittance.forecast.arrivals import Arrivals
from admittance.forecast.forecast import Memory
from admittance.forecast.run_times import RunTimes
from admittance.forecast_service.forecast_metrics import ForecastMetrics
from admittance.runtime.telemetry.metrics import text_of


def test_the_share_of_good_forecasts_is_shown_once_forecasts_were_compared() -> None:
    memory = Memory(RunTimes(), Arrivals(begin=0.0))
    metrics = ForecastMetrics()
    metrics.plays.add(())
    metrics.cpu.add((), 0.5)

    def shown() -> list[str]:
        text = b"".join(text_of(metrics.metrics(lambda: {"tree": memory}, lambda: 12.0))).decode()
        return [line for line in text.splitlines() if not line.startswith("#")]

    common = [
        "admittance_forecast_plays_total 1",
        "admittance_forecast_cpu_seconds_total 0.5",
        "admittance_forecast_age_seconds 12.0",
    ]
    assert shown() == [*common, "admittance_forecast_compared 0"]
    memory.compared, memory.inside = 4, 3
    assert shown() == [
        *common,
        "admittance_forecast_compared 4",
        "admittance_forecast_inside_share 0.75",
    ]
