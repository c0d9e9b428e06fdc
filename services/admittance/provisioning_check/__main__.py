"""``python -m admittance.provisioning_check``: runs the provisioning check alone."""

from __future__ import annotations

import sys

from admittance.provisioning_check import SERVICE
from admittance.runtime.process.service_process import run_service

if __name__ == "__main__":
    sys.exit(run_service(SERVICE))
