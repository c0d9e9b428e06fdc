"""Metrics of leader election: the domains that an instance leads, and how long the bus takes to
acknowledge heartbeats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from admittance.runtime.leader.leader_elector import LeaderElector
from admittance.runtime.telemetry.metrics import Definition, Gauges, Labels, gauge

_SERVICE: Final = ("service",)
LED: Final = gauge(
    "led_domains",
    "Domains that the instance leads: of a service with one leader 1, or 0 on a standby",
    _SERVICE,
)
TAKES: Final = Definition(
    "leader_epochs", "counter", "Epochs with which the instance took a domain over", _SERVICE
)
ROUND_TRIP: Final = gauge(
    "bus_round_trip_seconds",
    "How long the bus took to acknowledge the last heartbeat of the instance",
    _SERVICE,
)
UNREAD: Final = gauge(
    "unread_facts",
    "What the leader has not processed yet: facts of the log; for the variant-controller facts "
    "that had no effect yet",
    _SERVICE,
)
LEADER_METRICS: Final = (LED, TAKES, ROUND_TRIP, UNREAD)


def leader_metrics(
    elector: LeaderElector, service: str, lag: Callable[[], int | None] = lambda: None
) -> Gauges:
    """The metrics of one instance. ``lag``: what its leader has not processed yet; None: this
    instance does not lead, or its service has no such number."""

    def read() -> dict[str, dict[Labels, float]]:
        labels = (service,)
        found: dict[str, dict[Labels, float]] = {
            LED.name: {labels: len(tuple(elector.lease.leads()))},
            TAKES.name: {labels: elector.takes},
        }
        if elector.round_trip is not None:
            found[ROUND_TRIP.name] = {labels: elector.round_trip}
        unread = lag()
        if unread is not None:
            found[UNREAD.name] = {labels: unread}
        return found

    return Gauges(LEADER_METRICS, read)
