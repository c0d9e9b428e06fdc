"""Rules of a Job that is to become a workload."""

from __future__ import annotations

from typing import Final

from admittance.api.job import Job
from admittance.api.problems import REQUIRED, Problem, shown
from admittance.api.validate_meta import (
    check_metadata,
    object_name,
)
from admittance.api.validate_pods import check_template
from admittance.api.workload import (
    QUEUE_LABEL,
)

MIN_PARALLELISM: Final = "kueue.x-k8s.io/job-min-parallelism"
"""Annotation of a Job: it may start with as few pods as this."""


MAX_SECONDS_LABEL: Final = "kueue.x-k8s.io/max-exec-time-seconds"
"""Label of a Job: how long it may be admitted in all."""


def pods_of(job: Job) -> int:
    """How many pods of a job run at once."""
    parallelism = 1 if job.spec.parallelism is None else job.spec.parallelism
    completions = job.spec.completions
    return parallelism if completions is None else min(parallelism, completions)


def check_job(job: Job) -> list[Problem]:
    """Everything that is wrong with a Job that is to become a workload."""
    found = check_metadata(job.metadata, namespaced=True, kind="Job", generated=True)
    queue = job.metadata.labels.get(QUEUE_LABEL, "")
    if not queue:
        message = "must be set: it names the LocalQueue that the job goes to"
        found.append(Problem(f"metadata.labels[{QUEUE_LABEL}]", message, REQUIRED))
    else:
        found += object_name(queue, f"metadata.labels[{QUEUE_LABEL}]")
    written = job.metadata.annotations.get(MIN_PARALLELISM)
    if written is not None:
        count = pods_of(job)
        if not written.isascii() or not written.isdecimal() or not 0 < int(written[:12]) < count:
            message = f"must be a number from 1 to {count - 1}, not {shown(written)}"
            found.append(Problem(f"metadata.annotations[{MIN_PARALLELISM}]", message))
    limit = job.metadata.labels.get(MAX_SECONDS_LABEL)
    if limit is not None and not (limit.isascii() and limit.isdecimal() and int(limit[:12]) > 0):
        message = f"must be a number of seconds, not {shown(limit)}"
        found.append(Problem(f"metadata.labels[{MAX_SECONDS_LABEL}]", message))
    return found + check_template(job.spec.template, "spec.template")
