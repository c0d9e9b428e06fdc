"""``python -m admittance.workload_controller``: this service alone."""

from __future__ import annotations

import sys

from admittance.runtime.service import main
from admittance.workload_controller.shell import run

if __name__ == "__main__":
    sys.exit(main("workload-controller", run))
