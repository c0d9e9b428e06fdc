"""``python -m admittance.provisioning_check``: runs the provisioning check alone."""

from __future__ import annotations

import sys

from admittance.runtime.process.startup import run_service

if __name__ == "__main__":
    sys.exit(run_service("admittance.provisioning_check.service"))
