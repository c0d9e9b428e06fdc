"""The dashboard of checks: delays, clamps, controllers."""

from __future__ import annotations

from typing import Final

from tools.dashboards.grafana import Dashboard, Panel, Query, each, in_range, per_minute, quantiles

RECOMMENDED_DELAY_SECONDS: Final = 3_600
"""The longest delay that docs/check-flow.md recommends for a check that guesses."""
UNADMITTED: Final = "admittance_unadmitted_workloads"
CHECK: Final = '{check=~"$check"}'

BOARD: Final = Dashboard(
    "admittance-checks",
    "Admittance / checks and retries",
    "Which checks are slow, how often and how long they delay workloads, and whether their "
    "controllers are alive.",
    [
        Panel(
            "Controllers",
            "1: the controller can judge. 0: its heartbeats are missing, or the AdmissionCheck is "
            "inactive for another reason, and queues that name it reserve no quota.",
            each(f"admittance_admission_check_active{CHECK}", "check, controller", function="max"),
            kind="stat",
            width=24,
            height=4,
            red_from=1,
            red_below=True,
        ),
        Panel(
            "Workloads that wait for checks",
            "They hold quota.",
            each(
                f'{UNADMITTED}{{reason="UnsatisfiedChecks"}}',
                "cluster_queue",
            ),
            stacked=True,
        ),
        Panel(
            "From reservation to the verdict Ready",
            "How long each check takes.",
            quantiles("admittance_check_ready_wait_time_seconds", "check", CHECK),
            unit="s",
        ),
        Panel(
            "From reservation to admission",
            "What all checks of a workload cost together.",
            quantiles("admittance_admission_checks_wait_time_seconds", "cluster_queue"),
            unit="s",
        ),
        Panel(
            "Retries per minute",
            "Verdicts Retry, and checks without a verdict in time.",
            per_minute(f"admittance_check_retries_total{CHECK}", "check"),
        ),
        Panel(
            "Delays of retries",
            "The red line is the recommended maximum of one hour for a delay that is guessed.",
            [
                *quantiles("admittance_check_retry_delay_seconds", "check", CHECK),
                Query(f"vector({RECOMMENDED_DELAY_SECONDS})", "recommended maximum"),
            ],
            unit="s",
            red_from=RECOMMENDED_DELAY_SECONDS,
        ),
        Panel(
            "Delays beyond the recommended maximum",
            "The part of all delays that are longer than an hour.",
            [
                Query(
                    "1 - sum by (check) (increase(admittance_check_retry_delay_seconds_bucket"
                    f'{{le="{RECOMMENDED_DELAY_SECONDS}", check=~"$check"}}[$__range]))'
                    " / sum by (check) "
                    f"(increase(admittance_check_retry_delay_seconds_count{CHECK}[$__range]))",
                    "{{check}}",
                )
            ],
            unit="percentunit",
            kind="bargauge",
        ),
        Panel(
            "Answers of programs",
            "From the arrival of a request at a check controller or provider to its answer.",
            quantiles("admittance_program_answer_seconds", "program"),
            unit="s",
            width=8,
        ),
        Panel(
            "Open requests of programs",
            "Requests that a check controller or provider has not acknowledged yet.",
            each("admittance_program_open_requests", "program"),
            width=8,
        ),
        Panel(
            "Failures of programs, per minute",
            "Calls of the function of a check or provider that raised an error.",
            per_minute("admittance_program_failures_total", "program"),
            width=8,
        ),
        Panel(
            "Clamped delays",
            "Delays that were cut to `ADMIT_CHECK_DELAY_SECONDS`, in the shown time.",
            in_range(f"admittance_clamped_retry_delays_total{CHECK}", "check, controller"),
            kind="bargauge",
            width=8,
            red_from=1,
        ),
        Panel(
            "Rejections per minute",
            "Workloads that a check rejected for good.",
            per_minute(f"admittance_check_rejections_total{CHECK}", "check"),
            width=8,
        ),
        Panel(
            "Verdicts without effect, per minute",
            "Stale: about an earlier reservation. BadDelay, BadUpdates and Undecodable are errors "
            "of the controller.",
            per_minute("admittance_stale_check_updates_total", "check, why"),
            width=8,
        ),
    ],
    {"check": "admittance_admission_check_active"},
)
