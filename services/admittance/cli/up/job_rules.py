"""What the runner of `admit up` and `admit serve` may start."""

from __future__ import annotations

import os
from typing import Final

from admittance.cli.up.lock import ADMIN
from admittance.runner.jobs.job_rules import EVERY, UNKNOWN, JobRules
from admittance.runner.jobs.rule_options import VARIABLES, RuleTexts, rules_of

OWN_JOBS: Final = (f"user:{ADMIN}", UNKNOWN)
"""The jobs that a locked `admit up` runs as its own Unix user unless told otherwise: those of its
admin, and those from before the lock."""


def rules_of_server(texts: RuleTexts, *, executor: str, insecure: bool) -> JobRules:
    """The rules of the runner beside an embedded server. Without Unix users in options and
    variables, its own Unix user runs the jobs of its admin; with ``insecure`` all. Raises
    SetupError."""
    if not texts.run_as and not os.environ.get(VARIABLES["run_as"]):
        own = os.geteuid()
        keys = (EVERY,) if insecure else OWN_JOBS
        texts = texts._replace(run_as=tuple(f"{key}={own}" for key in keys))
    return rules_of(texts, os.environ, executor=executor)
