"""batch/v1 Job: its shape. How it becomes a workload: `admittance.api.from_job`."""

from __future__ import annotations

from typing import Any

from admittance.api.limits import Natural, Positive
from admittance.api.meta import ObjectMeta, Strict
from admittance.api.pods import PodTemplate


class JobSpec(Strict, frozen=True, kw_only=True):
    """``parallelism`` None is 1; ``completions`` None: as many as there are pods."""

    parallelism: Natural | None = None
    completions: Natural | None = None
    backoff_limit: Natural | None = None
    active_deadline_seconds: Positive | None = None
    suspend: bool | None = None
    template: PodTemplate
    # Kept, not read.
    backoff_limit_per_index: Any = None
    completion_mode: Any = None
    managed_by: Any = None
    manual_selector: Any = None
    max_failed_indexes: Any = None
    pod_failure_policy: Any = None
    pod_replacement_policy: Any = None
    selector: Any = None
    success_policy: Any = None
    ttl_seconds_after_finished: Any = None


class Job(Strict, frozen=True, kw_only=True):
    api_version: str = "batch/v1"
    kind: str = "Job"
    metadata: ObjectMeta = ObjectMeta()
    spec: JobSpec
    status: Any = None
