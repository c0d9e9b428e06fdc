"""``python -m admittance.placement_service``: runs placement alone."""

from __future__ import annotations

import sys

from admittance.placement_service import SERVICE
from admittance.runtime.process.service_process import run_service

if __name__ == "__main__":
    sys.exit(run_service(SERVICE))
