"""``python -m admittance.forecast_service``: runs the forecast service alone."""

from __future__ import annotations

import sys

from admittance.forecast_service import SERVICE
from admittance.runtime.process.service_process import run_service

if __name__ == "__main__":
    sys.exit(run_service(SERVICE))
