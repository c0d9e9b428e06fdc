"""The dashboard of the services: leaders, lag, bus, dead letters."""

from __future__ import annotations

from typing import Final

from tools.dashboards.grafana import (
    Dashboard,
    Panel,
    Query,
    each,
    in_range,
    per_minute,
    quantiles,
    quantiles_of,
)

BOARD: Final = Dashboard(
    "admittance-system",
    "Admittance / system",
    "Whether the services are alive, lead, keep up with the log, and what they set aside.",
    [
        Panel(
            "Processes",
            "1: Prometheus reaches the admin port.",
            each('up{job="admittance"}', "instance", function="max"),
            kind="stat",
            width=24,
            height=5,
            red_from=1,
            red_below=True,
        ),
        Panel(
            "Led domains",
            "A service with one leader leads 1 domain; schedulers share the domains of queues. "
            "With 0 nothing of the service's work is done.",
            each("admittance_led_domains", "service"),
            width=8,
        ),
        Panel(
            "Changes of leaders",
            "Epochs with which instances took domains over, per minute.",
            per_minute("admittance_leader_epochs_total", "service"),
            width=8,
        ),
        Panel(
            "Versions",
            "How many processes run which version.",
            each("admittance_build_info", "version, python"),
            kind="bargauge",
            width=8,
        ),
        Panel(
            "Unread facts",
            "What the leaders have not processed yet: the lag behind the log.",
            each("admittance_unread_facts", "service", function="max"),
        ),
        Panel(
            "Round trip of the bus",
            "How long the bus took to acknowledge a heartbeat.",
            each("admittance_bus_round_trip_seconds", "service", function="max"),
            unit="s",
        ),
        Panel(
            "Facts per second",
            "Facts of the log that were applied.",
            [Query("sum(rate(admittance_commit_facts_sum[$__rate_interval]))", "facts")],
            width=8,
        ),
        Panel(
            "Facts per commit",
            "The mean size of a batch.",
            [
                Query(
                    "sum(rate(admittance_commit_facts_sum[$__rate_interval]))"
                    " / sum(rate(admittance_commit_facts_count[$__rate_interval]))",
                    "facts",
                )
            ],
            width=8,
        ),
        Panel(
            "Duration of a commit",
            "From reading a batch of facts to the last write.",
            quantiles_of(
                "sum by (le) (rate(admittance_commit_duration_seconds_bucket[$__rate_interval]))"
            ),
            unit="s",
            width=8,
        ),
        Panel(
            "Commit conflicts per minute",
            "Workloads that another writer had changed before a commit.",
            [Query("60 * sum(rate(admittance_commit_conflicts_total[$__rate_interval]))")],
            width=8,
        ),
        Panel(
            "Dead letters, in the shown time",
            "Messages on the log that are no valid fact.",
            in_range("admittance_dead_letters_total", "reason"),
            kind="bargauge",
            width=8,
            red_from=1,
        ),
        Panel(
            "Refused requests of people, per minute",
            "By the reason of the refusal.",
            per_minute("admittance_refused_user_requests_total", "reason"),
            width=8,
        ),
        Panel(
            "Duration of a scheduling attempt",
            "One cycle of a domain.",
            quantiles("admittance_admission_attempt_duration_seconds", "result"),
            unit="s",
        ),
        Panel(
            "Facts of families without effect",
            "Facts that the variant-controller repeats; more than 0 for minutes means that they "
            "are not applied.",
            [Query("sum(admittance_family_facts_without_effect)", "facts")],
            red_from=1,
        ),
        Panel(
            "Exported spans per minute",
            "Spans of traces that the receiver has taken from the telemetry service. Without that "
            "service the panels about traces are empty.",
            [Query("60 * sum(rate(admittance_traces_spans_exported_total[$__rate_interval]))")],
            width=8,
        ),
        Panel(
            "Dropped spans, in the shown time",
            "not_taken: the receiver refused them or did not answer. queue_full: the receiver does "
            "not take the earlier ones.",
            in_range("admittance_traces_spans_dropped_total", "reason"),
            kind="bargauge",
            width=8,
            red_from=1,
        ),
        Panel(
            "Failed exports per minute",
            "Requests that the receiver of traces refused, or did not answer in time.",
            [Query("60 * sum(rate(admittance_traces_export_failures_total[$__rate_interval]))")],
            width=8,
        ),
        Panel(
            "Facts that the telemetry service has not read",
            "The lag of the telemetry service behind the log.",
            [Query("max(admittance_traces_unread_facts)", "facts")],
        ),
        Panel(
            "Open traces",
            "Sampled workloads that the telemetry service keeps in memory until they end.",
            [Query("sum(admittance_traces_open)", "workloads")],
        ),
    ],
)
