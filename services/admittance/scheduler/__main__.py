"""``python -m admittance.scheduler``: runs the scheduler as the only service of the process."""

from __future__ import annotations

import sys

from admittance.runtime.process.service_process import run_service
from admittance.scheduler import SERVICE

if __name__ == "__main__":
    sys.exit(run_service(SERVICE))
