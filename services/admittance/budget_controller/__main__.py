"""``python -m admittance.budget_controller``: runs the budget-controller alone."""

from __future__ import annotations

import sys

from admittance.budget_controller import SERVICE
from admittance.runtime.process.service_process import run_service

if __name__ == "__main__":
    sys.exit(run_service(SERVICE))
