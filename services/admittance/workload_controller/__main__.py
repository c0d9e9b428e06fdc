"""``python -m admittance.workload_controller``: runs the workload-controller alone."""

from __future__ import annotations

import sys

from admittance.runtime.process.service_process import run_service
from admittance.workload_controller import SERVICE

if __name__ == "__main__":
    sys.exit(run_service(SERVICE))
