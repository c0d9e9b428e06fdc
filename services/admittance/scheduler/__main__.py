"""``python -m admittance.scheduler``: runs the scheduler as the only service of the process."""

from __future__ import annotations

import sys

from admittance.runtime.process.startup import run_service

if __name__ == "__main__":
    sys.exit(run_service("admittance.scheduler.service"))
