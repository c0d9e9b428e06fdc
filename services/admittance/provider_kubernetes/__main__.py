"""``python -m admittance.provider_kubernetes``: runs the Kubernetes provider alone."""

from __future__ import annotations

import sys

from admittance.provider_kubernetes import SERVICE
from admittance.runtime.process.service_process import run_service

if __name__ == "__main__":
    sys.exit(run_service(SERVICE))
