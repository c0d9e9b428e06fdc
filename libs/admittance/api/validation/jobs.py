"""Rules of Jobs, and of the policy of a job that a pod template carries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from admittance.api.fields.names import check_unique
from admittance.api.fields.problems import FORBIDDEN, NOT_SUPPORTED, REQUIRED, Problem, shown
from admittance.api.fields.warning_signal import WARNING_SIGNAL, BadWarning, noted_warning
from admittance.api.pods import PodTemplate
from admittance.api.validation.field_rules import field_problems
from admittance.api.workload import (
    JOB_CONTROLLER,
    JOB_POLICY,
    TTL_AFTER_FINISHED,
    BadPolicy,
    Job,
    JobPolicy,
    PodFailurePolicy,
    SuccessPolicy,
    indexes_of,
    noted_policy,
    policy_of,
)
from admittance.folders import SUBMITTED_FROM, BadFolder, noted_folder

EQUAL_PARALLELISM: Final = "kueue.x-k8s.io/job-completions-equal-parallelism"
"""Annotation of a Job: "true": with fewer pods than asked for, fewer must succeed."""


def check_job_spec(job: Job) -> list[Problem]:
    """The problems of a Job's own fields."""
    spec = job.spec
    problems: list[Problem] = []
    restart = spec.template.spec.restart_policy
    if not restart:
        message = "must be set: Never or OnFailure, as Kubernetes requires of a Job"
        problems.append(Problem("spec.template.spec.restartPolicy", message, REQUIRED))
    elif restart not in ("Never", "OnFailure"):
        message = f"must be Never or OnFailure, not {shown(restart)}"
        problems.append(Problem("spec.template.spec.restartPolicy", message, NOT_SUPPORTED))
    if spec.managed_by not in (None, JOB_CONTROLLER):
        message = (
            f"must be {JOB_CONTROLLER} or left out: {shown(spec.managed_by)} would run the job "
            "beside the runner"
        )
        problems.append(Problem("spec.managedBy", message, NOT_SUPPORTED))
    if spec.completion_mode == "Indexed" and spec.completions is None:
        message = "must be set while completionMode is Indexed"
        problems.append(Problem("spec.completions", message, REQUIRED))
    if spec.pod_failure_policy is not None and spec.pod_replacement_policy not in (None, "Failed"):
        message = "must be Failed while podFailurePolicy is set"
        problems.append(Problem("spec.podReplacementPolicy", message, NOT_SUPPORTED))
    written = job.metadata.annotations.get(EQUAL_PARALLELISM)
    field = f"metadata.annotations[{EQUAL_PARALLELISM}]"
    if written not in (None, "true", "false"):
        problems.append(Problem(field, f"must be true or false, not {shown(written)}"))
    elif written == "true" and spec.completions != (
        1 if spec.parallelism is None else spec.parallelism
    ):
        message = f"must equal parallelism while the annotation {EQUAL_PARALLELISM} is true"
        problems.append(Problem("spec.completions", message))
    problems += check_policy(policy_of(job), spec.template, "spec", spec.completions)
    return problems


def check_policy(
    policy: JobPolicy, template: PodTemplate, path: str, completions: int | None
) -> list[Problem]:
    """The problems of several fields of a policy together. ``completions`` None: not known."""
    problems: list[Problem] = []
    indexed = policy.completion_mode == "Indexed"
    restart = template.spec.restart_policy

    def need(field: str, *, is_set: bool, holds: bool, what: str) -> None:
        if is_set and not holds:
            problems.append(Problem(f"{path}.{field}", f"may only be set {what}", FORBIDDEN))

    per_index = policy.backoff_limit_per_index is not None
    need(
        "backoffLimitPerIndex",
        is_set=per_index,
        holds=indexed,
        what="while completionMode is Indexed",
    )
    need("successPolicy", is_set=policy.success_policy is not None, holds=indexed,
         what="while completionMode is Indexed")  # fmt: skip
    need("maxFailedIndexes", is_set=policy.max_failed_indexes is not None, holds=per_index,
         what="together with backoffLimitPerIndex")  # fmt: skip
    for field, is_set in (
        ("backoffLimitPerIndex", per_index),
        ("podFailurePolicy", policy.pod_failure_policy is not None),
    ):
        need(field, is_set=is_set, holds=restart != "OnFailure",
             what="while restartPolicy is Never")  # fmt: skip
    if policy.pod_failure_policy is not None:
        containers = [
            container.name
            for container in (*template.spec.init_containers, *template.spec.containers)
        ]
        problems += _failure_rules(
            policy.pod_failure_policy, f"{path}.podFailurePolicy", containers, per_index=per_index
        )
    if policy.success_policy is not None:
        problems += _success_rules(policy.success_policy, f"{path}.successPolicy", completions)
    return problems


def _failure_rules(
    policy: PodFailurePolicy, path: str, containers: Sequence[str], *, per_index: bool
) -> list[Problem]:
    problems: list[Problem] = []
    for i, rule in enumerate(policy.rules):
        field = f"{path}.rules[{i}]"
        codes = rule.on_exit_codes
        if (codes is None) == (not rule.on_pod_conditions):
            message = "must have one of onExitCodes and onPodConditions"
            problems.append(Problem(field, message, REQUIRED))
        if rule.action == "FailIndex" and not per_index:
            message = "may be FailIndex only together with backoffLimitPerIndex"
            problems.append(Problem(f"{field}.action", message, FORBIDDEN))
        if codes is None:
            continue
        problems += check_unique(list(map(str, codes.values)), f"{field}.onExitCodes.values")
        if codes.operator == "In" and 0 in codes.values:
            message = "must not have 0, which is no failure"
            problems.append(Problem(f"{field}.onExitCodes.values", message))
        if codes.container_name is not None and codes.container_name not in containers:
            message = f"no container has the name {shown(codes.container_name)}"
            problems.append(Problem(f"{field}.onExitCodes.containerName", message, NOT_SUPPORTED))
    return problems


def _success_rules(policy: SuccessPolicy, path: str, completions: int | None) -> list[Problem]:
    problems: list[Problem] = []
    for i, rule in enumerate(policy.rules):
        field = f"{path}.rules[{i}]"
        most = completions
        if rule.succeeded_indexes is None and rule.succeeded_count is None:
            message = "must have succeededIndexes or succeededCount"
            problems.append(Problem(field, message, REQUIRED))
        if rule.succeeded_indexes is not None:
            try:
                indexes = indexes_of(rule.succeeded_indexes)
            except ValueError as error:
                problems.append(Problem(f"{field}.succeededIndexes", str(error)))
                continue
            most = sum(high - low + 1 for low, high in indexes)
            if completions is not None and indexes[-1][1] >= completions:
                message = f"must be below completions {completions}, not {indexes[-1][1]}"
                problems.append(Problem(f"{field}.succeededIndexes", message))
        if rule.succeeded_count is not None and most is not None and rule.succeeded_count > most:
            message = f"must not exceed {most}, not {rule.succeeded_count}"
            problems.append(Problem(f"{field}.succeededCount", message))
    return problems


def check_noted_policy(template: PodTemplate, path: str) -> list[Problem]:
    """The problems of the policy in a pod template's annotation."""
    if JOB_POLICY not in template.metadata.annotations:
        return []
    field = f"{path}.metadata.annotations[{JOB_POLICY}]"
    try:
        policy = noted_policy(template.metadata.annotations)
    except BadPolicy as error:
        return [Problem(field, str(error))]
    if policy is None:
        return []
    inside = [
        problem._replace(field=f"{field}.{problem.field}") for problem in field_problems(policy)
    ]
    return inside or check_policy(policy, template, field, None)


def check_noted_folder(template: PodTemplate, path: str) -> list[Problem]:
    """The problems of the folder of a submission in a pod template's annotation."""
    try:
        noted_folder(template.metadata.annotations)
    except BadFolder as error:
        return [Problem(f"{path}.metadata.annotations[{SUBMITTED_FROM}]", str(error))]
    return []


def check_noted_warning(template: PodTemplate, path: str) -> list[Problem]:
    """The problems of the warning signal in a pod template's annotation."""
    try:
        noted_warning(template.metadata.annotations)
    except BadWarning as error:
        return [Problem(f"{path}.metadata.annotations[{WARNING_SIGNAL}]", str(error))]
    return []


def check_ttl(annotations: dict[str, str]) -> list[Problem]:
    """The problems of the annotation `TTL_AFTER_FINISHED`."""
    written = annotations.get(TTL_AFTER_FINISHED)
    if written is None or (written.isascii() and written.isdecimal() and len(written) <= 10):
        return []
    field = f"metadata.annotations[{TTL_AFTER_FINISHED}]"
    return [Problem(field, f"must be a number of seconds, not {shown(written)}")]
