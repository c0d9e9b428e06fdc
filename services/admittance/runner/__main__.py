"""``python -m admittance.runner``: runs one runner against the bus that the environment names."""

from __future__ import annotations

import os
import sys
from typing import Any

from admittance.runner import SERVICE
from admittance.runtime.process.service_process import run_service


def _more(_: Any) -> dict[str, Any]:
    from admittance.job_rules.machine_options import MachineTexts, machine_of_texts
    from admittance.job_rules.options import RuleTexts, rules_of
    from admittance.job_rules.runner_name import given_name
    from admittance.runtime.process.settings import choice

    executor = os.environ.get("ADMIT_EXECUTOR") or "local"
    return {
        "name": given_name(os.environ),
        "executor": executor,
        "given": machine_of_texts(MachineTexts(), os.environ),
        "rules": rules_of(RuleTexts(), os.environ, executor=executor),
        "detach_jobs": bool(choice(os.environ, "ADMIT_DETACH_JOBS", {"1": True, "0": False})),
    }


if __name__ == "__main__":
    sys.exit(run_service(SERVICE, _more))
