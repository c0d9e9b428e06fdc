"""The dashboard of reasons: why workloads wait, and which are preempted."""

from __future__ import annotations

from typing import Final

from tools.dashboards.grafana import Dashboard, Panel, Query, each, in_range, per_minute, quantiles

PENDING: Final = "admittance_pending_workloads"
UNADMITTED: Final = "admittance_unadmitted_workloads"
QUEUES: Final = '{cluster_queue=~"$cluster_queue"}'

BOARD: Final = Dashboard(
    "admittance-waits",
    "Admittance / why it waits",
    "Why workloads are not admitted, which queues are blocked, and which workloads are preempted.",
    [
        Panel(
            "Reasons of waiting workloads",
            "NoReservation: without quota, for the cause that follows. UnsatisfiedChecks: with "
            "quota, before a check. `admit explain workload NAME` says more about one workload.",
            each(f"{UNADMITTED}{QUEUES}", "reason, underlying_cause"),
            stacked=True,
        ),
        Panel(
            "Reasons by queue",
            "The same for each queue, at the moment.",
            each(f"{UNADMITTED}{QUEUES}", "cluster_queue, reason, underlying_cause"),
            kind="bargauge",
        ),
        Panel(
            "Top blocked queues",
            "Workloads that were tried and wait for a change.",
            [
                Query(
                    f"topk(10, sum by (cluster_queue) "
                    f'({PENDING}{{status="inadmissible", cluster_queue=~"$cluster_queue"}}))',
                    "{{cluster_queue}}",
                )
            ],
            kind="bargauge",
            width=8,
        ),
        Panel(
            "Top blocked LocalQueues",
            "Workloads that are not admitted.",
            [
                Query(
                    "topk(10, sum by (namespace, name) "
                    "(admittance_local_queue_unadmitted_workloads))",
                    "{{namespace}}/{{name}}",
                )
            ],
            kind="bargauge",
            width=8,
        ),
        Panel(
            "Queues that admit nothing",
            "pending: stopped, or a flavor or a check is missing or inactive; terminating: it is "
            "being deleted. `admit describe clusterqueue NAME` says why.",
            each(
                "admittance_cluster_queue_status"
                '{status!="active", cluster_queue=~"$cluster_queue"}',
                "cluster_queue, status",
            ),
            kind="bargauge",
            width=8,
            red_from=1,
        ),
        Panel(
            "Preemptions per minute, by rule",
            "The rule that allowed the preemption.",
            per_minute("admittance_preempted_workloads_total", "reason"),
            width=8,
        ),
        Panel(
            "Preemptions per minute, by queue",
            "The ClusterQueue that preempted.",
            per_minute(
                'admittance_preempted_workloads_total{preempting_cluster_queue=~"$cluster_queue"}',
                "preempting_cluster_queue",
            ),
            width=8,
        ),
        Panel(
            "Evictions per minute",
            "Why admitted workloads, or those with a reservation, lost their quota.",
            per_minute(f"admittance_evicted_workloads_total{QUEUES}", "reason, underlying_cause"),
            width=8,
        ),
        Panel(
            "From eviction to free quota",
            "How long evicted jobs keep their quota while they stop.",
            quantiles("admittance_workload_eviction_latency_seconds", "reason", QUEUES),
            unit="s",
        ),
        Panel(
            "Workloads evicted at least once",
            "In the shown time, by queue and reason.",
            in_range(f"admittance_evicted_workloads_once_total{QUEUES}", "cluster_queue, reason"),
            kind="bargauge",
        ),
        Panel(
            "Scheduling attempts per minute",
            "success: a workload got quota; inadmissible: none did.",
            per_minute("admittance_admission_attempts_total", "result"),
        ),
        Panel(
            "Families by state",
            "Workloads with variants.",
            each("admittance_families", "state"),
            stacked=True,
        ),
        Panel(
            "Migrations per minute",
            "Families that moved to a better variant.",
            per_minute(f"admittance_migrations_total{QUEUES}", "cluster_queue, from, to"),
        ),
        Panel(
            "Open preemption gates",
            "Families in which a variant may preempt now.",
            each(f"admittance_preemption_gate_open{QUEUES}", "cluster_queue"),
        ),
        Panel(
            "Starts inside their forecast",
            "Share of the starts that came between p10 and p90 of their forecast. It should be at "
            "least 75 %.",
            [Query("min(admittance_forecast_inside_share)", "inside")],
            width=8,
            unit="percentunit",
        ),
        Panel(
            "Age of the oldest forecast",
            "How old the oldest expected start is that commands and pages show. A forecast of more "
            "than ten minutes is not shown.",
            [Query("max(admittance_forecast_age_seconds)", "age")],
            width=8,
            unit="s",
        ),
        Panel(
            "CPU of forecasts, per minute",
            "CPU seconds of the plays in a minute: at most 5 while starts are asked for, else 0.",
            [
                Query(
                    "60 * sum(rate(admittance_forecast_cpu_seconds_total[$__rate_interval]))", "CPU"
                )
            ],
            width=8,
            unit="s",
        ),
    ],
    {"cluster_queue": "admittance_cluster_queue_info"},
)
