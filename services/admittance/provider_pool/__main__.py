"""``python -m admittance.provider_pool``: runs the pool provider alone."""

from __future__ import annotations

import sys

from admittance.provider_pool import SERVICE
from admittance.runtime.process.service_process import run_service

if __name__ == "__main__":
    sys.exit(run_service(SERVICE))
