"""The dashboard of machines: what runners offer, what is placed there, and what waits for them."""

from __future__ import annotations

from typing import Final

from tools.dashboards.grafana import Dashboard, Panel, Query, each, per_minute, quantiles_of

ALLOCATED: Final = 'sum by (resource) (admittance_runner_allocated{runner=~"$runner"})'
CAPACITY: Final = 'sum by (resource) (admittance_runner_capacity{runner=~"$runner"})'
USED: Final = 'sum by (resource) (admittance_runner_in_use{runner=~"$runner"})'

BOARD: Final = Dashboard(
    "admittance-machines",
    "Admittance / machines",
    "What the machines of runners have, what is placed on them, and which workloads lack one.",
    [
        Panel(
            "Runners",
            "By their state. Lost: the runner does not say that it is alive.",
            each("admittance_runners", "state", function="max"),
            kind="stat",
            width=24,
            height=5,
        ),
        Panel(
            "Allocated part of capacity",
            "What placed workloads and jobs that still run hold, of what the machines have.",
            [Query(f"{ALLOCATED} / {CAPACITY}", "{{resource}}")],
            unit="percentunit",
            width=8,
        ),
        Panel(
            "Used part of capacity",
            "What the running jobs have asked for, as runners report it. Less than allocated: "
            "workloads wait for another check, or for their runner.",
            [Query(f"{USED} / {CAPACITY}", "{{resource}}")],
            unit="percentunit",
            width=8,
        ),
        Panel(
            "Free devices",
            "Devices that no workload holds, or parts of them, of each machine.",
            [
                Query(
                    'sum by (runner, resource) (admittance_runner_capacity{runner=~"$runner"}'
                    ' - admittance_runner_allocated{runner=~"$runner"}'
                    " and on (runner, resource) admittance_runner_device_allocated)",
                    "{{runner}} {{resource}}",
                )
            ],
            width=8,
        ),
        Panel(
            "Workloads that lack a machine",
            "They hold quota. Room: other jobs must end. Size and all others: no machine suits, "
            "whatever ends. PreemptionRequired: preempted jobs have not stopped yet.",
            each("admittance_placement_waiting_workloads", "reason"),
            stacked=True,
        ),
        Panel(
            "Reasons for which machines were lacking, per minute",
            "How often workloads began to lack a machine.",
            per_minute("admittance_placement_shortages_total", "reason"),
        ),
        Panel(
            "From quota to a machine",
            "From the reserved quota, or the last change of another check, until the workload is "
            "placed.",
            quantiles_of(
                "sum by (le) (rate(admittance_placement_wait_time_seconds_bucket"
                "[$__rate_interval]))"
            ),
            unit="s",
        ),
        Panel(
            "Verdicts per minute",
            "Retry gives quota back after two minutes without a machine, and moves the jobs of "
            "machines that are lost or drained.",
            per_minute("admittance_placement_verdicts_total", "state"),
        ),
        Panel(
            "Jobs by device",
            "How many jobs each device has. 0: it is idle; more than 1: it is shared.",
            each(
                'admittance_runner_device_jobs{runner=~"$runner"}',
                "runner, resource, device",
                function="max",
            ),
            kind="bargauge",
            width=24,
        ),
    ],
    {"runner": "admittance_runner_ready"},
)
