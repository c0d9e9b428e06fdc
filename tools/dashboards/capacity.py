"""The dashboard of capacity: requests to providers, and the jobs of runners."""

from __future__ import annotations

from typing import Final

from tools.dashboards.grafana import Dashboard, Panel, each, number, quantiles

NOMINAL: Final = "admittance_cluster_queue_nominal_quota"
HELD: Final = "admittance_cluster_queue_resource_reservation"
PROVISIONING: Final = '{controller="kueue.x-k8s.io/provisioning-request"}'

BOARD: Final = Dashboard(
    "admittance-capacity",
    "Admittance / capacity",
    "Which capacity is asked for, obtained and lost, and what runs on it.",
    [
        Panel(
            "Capacity requests",
            "By their state.",
            each("admittance_capacity_requests", "provisioning_class, state"),
            stacked=True,
        ),
        Panel(
            "Requests without capacity",
            "Requests that failed, expired or lost their capacity, and are tried again.",
            each(
                'admittance_capacity_requests{state=~"Failed|BookingExpired|CapacityRevoked"}',
                "provisioning_class, state",
            ),
            red_from=1,
        ),
        Panel(
            "From reservation to capacity",
            "How long the provisioning check takes.",
            quantiles("admittance_check_ready_wait_time_seconds", "check", PROVISIONING),
            unit="s",
        ),
        number(
            "Unusable answers",
            "Answers of providers that became dead letters, in the shown time.",
            "sum(increase(admittance_unusable_capacity_answers_total[$__range]))",
            red_from=1,
        ),
        number(
            "Quota freed without a report",
            "Quota freed although no runner said that the job had stopped, in the shown time.",
            "sum(increase(admittance_forced_releases_total[$__range]))",
            red_from=1,
        ),
        Panel(
            "Held quota by flavor",
            "What workloads hold, and the nominal quota, of all queues.",
            [
                *each(HELD, "flavor, resource"),
                *each(NOMINAL, "flavor, resource", "{{flavor}} {{resource}} nominal"),
            ],
        ),
        Panel(
            "Jobs of runners",
            "By the stage of their run.",
            each("admittance_runner_jobs", "instance, stage"),
            stacked=True,
        ),
        Panel(
            "Start slots of runners",
            "Without a free slot an admitted job waits until other jobs have started.",
            each("admittance_runner_start_slots", "instance, state"),
            stacked=True,
        ),
        Panel(
            "From admission to ready pods",
            "How long jobs take to start.",
            quantiles("admittance_admitted_until_ready_wait_time_seconds", "cluster_queue"),
            unit="s",
        ),
    ],
)
