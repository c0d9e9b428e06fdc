"""``python -m admittance.scheduler``: this service alone."""

from __future__ import annotations

import sys

from admittance.runtime.service import main
from admittance.scheduler.shell import run

if __name__ == "__main__":
    sys.exit(main("scheduler", run))
