"""``python -m admittance.telemetry``: runs the telemetry service alone."""

from __future__ import annotations

import sys

from admittance.runtime.process.service_process import run_service
from admittance.telemetry import SERVICE

if __name__ == "__main__":
    sys.exit(run_service(SERVICE))
