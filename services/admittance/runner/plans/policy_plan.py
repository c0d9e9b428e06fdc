"""The part of a plan that says when pods run again and how the job ends: made from the policy of
the job, for `admittance.runner.jobs.job_policy`. Pure."""

from __future__ import annotations

from typing import Final

import msgspec

from admittance.api.pods import PodTemplate
from admittance.api.workload import (
    BACKOFF_LIMIT,
    BadPolicy,
    JobPolicy,
    PodFailureRule,
    SuccessRule,
    indexes_of,
    noted_policy,
)
from admittance.job_rules.rules import CannotRun

POD_DELAYS: Final = (10.0, 360.0)
"""Seconds before a new pod starts after a failure: the first delay, which doubles with each further
failure in a row, and the longest; as in Kubernetes."""

RESTART_DELAYS: Final = (10.0, 300.0)
"""The same for a container that starts again in its pod."""


class FailureRulePlan(msgspec.Struct, frozen=True, kw_only=True):
    """``inside``: whether the rule matches the ``values``, or all other exit codes. ``container``
    "": the rule matches any container."""

    action: str
    values: tuple[int, ...]
    inside: bool = msgspec.field(name="in")
    container: str = ""


class SuccessRulePlan(msgspec.Struct, frozen=True, kw_only=True):
    """``count``: how many of the ``indexes`` must succeed; None: of all indexes."""

    count: int
    indexes: tuple[tuple[int, int], ...] | None = None


class PolicyPlan(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The policy of one pod set. ``backoff_limit``: how many pods or containers may fail; None: any
    number. ``per_index`` and ``max_failed``: how often one index may fail, and how many indexes.
    ``restart``: whether a failed container starts again in its pod. ``pod_deadline``: the most
    seconds of one pod. ``delays``: see `POD_DELAYS`.
    """

    backoff_limit: int | None = None
    per_index: int | None = None
    max_failed: int | None = None
    restart: bool = False
    work_queue: bool = False
    failure_rules: tuple[FailureRulePlan, ...] = ()
    success_rules: tuple[SuccessRulePlan, ...] = ()
    pod_deadline: float = 0.0
    delays: tuple[float, float] = POD_DELAYS


def policy_plan(name: str, template: PodTemplate, completions: int) -> PolicyPlan | None:
    """The policy of the pod set ``name``; None: its first failure fails the job. Raises CannotRun.

    A pod template that says ``OnFailure`` and carries no policy has Kubernetes' default limit.
    """
    policy = job_policy(name, template)
    restart = template.spec.restart_policy == "OnFailure"
    seconds = template.spec.active_deadline_seconds
    if policy is None and not restart and seconds is None:
        return None
    if policy is None:
        policy = JobPolicy(backoff_limit=BACKOFF_LIMIT if restart else 0)
    limit = policy.backoff_limit
    if limit is None and policy.backoff_limit_per_index is None:
        limit = BACKOFF_LIMIT
    failure = policy.pod_failure_policy
    success = policy.success_policy
    try:
        success_rules = tuple(
            _success_rule(rule, completions) for rule in (success.rules if success else ())
        )
    except ValueError as error:
        raise CannotRun(f"pod set {name}: successPolicy: {error}") from error
    return PolicyPlan(
        backoff_limit=limit,
        per_index=policy.backoff_limit_per_index,
        max_failed=policy.max_failed_indexes,
        restart=restart,
        work_queue=policy.work_queue,
        failure_rules=tuple(
            rule for one in (failure.rules if failure else ()) if (rule := _failure_rule(one))
        ),
        success_rules=success_rules,
        pod_deadline=float(max(0, seconds or 0)),
        delays=RESTART_DELAYS if restart else POD_DELAYS,
    )


def job_policy(name: str, template: PodTemplate) -> JobPolicy | None:
    """The policy that the template of the pod set ``name`` carries. Raises CannotRun."""
    try:
        return noted_policy(template.metadata.annotations)
    except BadPolicy as error:
        raise CannotRun(f"pod set {name}: the policy of its job {error}") from error


def _failure_rule(rule: PodFailureRule) -> FailureRulePlan | None:
    codes = rule.on_exit_codes
    if codes is None:
        return None  # pods have no conditions here
    return FailureRulePlan(
        action=rule.action,
        values=codes.values,
        inside=codes.operator == "In",
        container=codes.container_name or "",
    )


def _success_rule(rule: SuccessRule, completions: int) -> SuccessRulePlan:
    indexes = None
    among = completions
    if rule.succeeded_indexes is not None:
        indexes = tuple(indexes_of(rule.succeeded_indexes))
        among = sum(high - low + 1 for low, high in indexes)
    return SuccessRulePlan(count=rule.succeeded_count or among, indexes=indexes)
