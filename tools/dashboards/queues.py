"""The dashboard of queues: usage, borrowed and lent quota, waits."""

from __future__ import annotations

from typing import Final

from tools.dashboards.grafana import (
    Dashboard,
    Panel,
    Query,
    each,
    number,
    per_minute,
    quantiles,
    quantiles_of,
)

PENDING: Final = "admittance_pending_workloads"
NOMINAL: Final = "admittance_cluster_queue_nominal_quota"
HELD: Final = "admittance_cluster_queue_resource_reservation"
USED: Final = "admittance_cluster_queue_resource_usage"
CELL: Final = "cohort, cluster_queue, flavor, resource"
CELLS: Final = '{cohort=~"$cohort", cluster_queue=~"$cluster_queue"}'
QUEUES: Final = '{cluster_queue=~"$cluster_queue"}'
BY_COHORT: Final = (
    "max by (cluster_queue, root_cohort) "
    '(admittance_cluster_queue_info{cluster_queue=~"$cluster_queue"})'
)
WAIT_OF_COHORT: Final = (
    "sum by (le, root_cohort) ("
    f"sum by (le, cluster_queue) (rate(admittance_admission_wait_time_seconds_bucket{QUEUES}"
    f"[$__rate_interval])) * on (cluster_queue) group_left (root_cohort) {BY_COHORT})"
)
BEYOND_NOMINAL: Final = (
    f"clamp_min(sum by ({CELL}) ({HELD}{CELLS}) - sum by ({CELL}) ({NOMINAL}{CELLS}), 0)"
)
UNUSED_NOMINAL: Final = (
    f"clamp_min(sum by ({CELL}) ({NOMINAL}{CELLS}) - sum by ({CELL}) ({HELD}{CELLS}), 0)"
)

BOARD: Final = Dashboard(
    "admittance-queues",
    "Admittance / queues",
    "How full the queues are, which queues borrow and lend, and how long workloads wait.",
    [
        number("Pending", "Workloads that wait for quota.", f"sum({PENDING}{QUEUES})"),
        number(
            "Admitted",
            "Admitted workloads that have not finished.",
            f"sum(admittance_admitted_active_workloads{QUEUES})",
        ),
        number(
            "Held by checks",
            "Workloads that hold quota and are not admitted yet.",
            f"sum(admittance_reserving_active_workloads{QUEUES})"
            f" - sum(admittance_admitted_active_workloads{QUEUES})",
        ),
        number(
            "Inactive queues",
            "ClusterQueues that admit no new workload.",
            'sum(admittance_cluster_queue_status{status!="active", '
            'cluster_queue=~"$cluster_queue"})',
            red_from=1,
        ),
        Panel(
            "Held quota of nominal",
            "Above 100 % the queue borrows.",
            [
                Query(
                    f"sum by (cluster_queue, resource) ({HELD}{CELLS})"
                    f" / sum by (cluster_queue, resource) ({NOMINAL}{CELLS})",
                    "{{cluster_queue}} {{resource}}",
                )
            ],
            unit="percentunit",
            red_from=1,
        ),
        Panel(
            "Usage against nominal quota",
            "Quota of admitted workloads, and the nominal quota. Cpu in cores.",
            [
                *each(f"{USED}{CELLS}", "cluster_queue, flavor, resource"),
                *each(
                    f"{NOMINAL}{CELLS}",
                    "cluster_queue, flavor, resource",
                    "{{cluster_queue}} {{flavor}} {{resource}} nominal",
                ),
            ],
        ),
        Panel(
            "Borrowed",
            "Quota that a queue holds beyond its nominal quota.",
            [Query(BEYOND_NOMINAL, "{{cluster_queue}} {{flavor}} {{resource}}")],
            stacked=True,
        ),
        Panel(
            "Lent and free to lend, by cohort",
            "Lent: what queues of the cohort hold beyond their nominal quota. Free: nominal quota "
            "that its owners do not hold. `admit describe cohort` shows the lenders of a queue.",
            [
                Query(
                    f"sum by (cohort, flavor, resource) ({BEYOND_NOMINAL})",
                    "{{cohort}} {{flavor}} {{resource}} lent",
                ),
                Query(
                    f"sum by (cohort, flavor, resource) ({UNUSED_NOMINAL})",
                    "{{cohort}} {{flavor}} {{resource}} free",
                ),
            ],
        ),
        Panel(
            "Cohorts: held quota of all quota",
            "Of each cohort with everything below it.",
            [
                Query(
                    "sum by (cohort, flavor, resource) "
                    '(admittance_cohort_subtree_resource_reservations{cohort=~"$cohort"})'
                    " / sum by (cohort, flavor, resource) "
                    '(admittance_cohort_subtree_quota{cohort=~"$cohort"})',
                    "{{cohort}} {{flavor}} {{resource}}",
                )
            ],
            unit="percentunit",
        ),
        Panel(
            "Pending workloads",
            "active: they compete; inadmissible: they were tried, and wait for a change.",
            each(f"{PENDING}{QUEUES}", "cluster_queue, status"),
            stacked=True,
        ),
        Panel(
            "Requests of pending workloads",
            "What the waiting workloads need, of all flavors together. Cpu in cores.",
            each(f"admittance_cluster_queue_resource_pending{QUEUES}", "cluster_queue, resource"),
        ),
        Panel(
            "Admissions per minute",
            "How fast the queues drain.",
            per_minute(f"admittance_admitted_workloads_total{QUEUES}", "cluster_queue"),
        ),
        Panel(
            "Wait until admission, by queue",
            "From the submission, or from the requeueing, to the admission.",
            quantiles("admittance_admission_wait_time_seconds", "cluster_queue", QUEUES),
            unit="s",
        ),
        Panel(
            "Wait until admission, by cohort",
            "The same for all queues below a root cohort.",
            quantiles_of(WAIT_OF_COHORT, "{{root_cohort}}"),
            unit="s",
        ),
        Panel(
            "LocalQueues with most pending workloads",
            "Which teams wait.",
            [
                Query(
                    "topk(10, sum by (namespace, name) (admittance_local_queue_pending_workloads))",
                    "{{namespace}}/{{name}}",
                )
            ],
            kind="bargauge",
        ),
        Panel(
            "Share in fair sharing",
            "How far each queue is beyond its nominal quota, by weight; only with fair sharing.",
            each(f"admittance_cluster_queue_weighted_share{QUEUES}", "cluster_queue"),
        ),
    ],
    {
        "cohort": "admittance_cluster_queue_nominal_quota",
        "cluster_queue": "admittance_cluster_queue_info",
    },
)
