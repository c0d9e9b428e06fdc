"""``python -m admittance.retry_timer``: runs the retry-timer alone."""

from __future__ import annotations

import sys

from admittance.retry_timer import SERVICE
from admittance.runtime.process.service_process import run_service

if __name__ == "__main__":
    sys.exit(run_service(SERVICE))
