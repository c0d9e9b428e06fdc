"""``python -m admittance.telemetry``: runs the telemetry service alone."""

from __future__ import annotations

import sys

from admittance.runtime.process.startup import run_service

if __name__ == "__main__":
    sys.exit(run_service("admittance.telemetry.service"))
