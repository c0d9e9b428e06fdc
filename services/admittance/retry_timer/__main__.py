"""``python -m admittance.retry_timer``: this service alone."""

from __future__ import annotations

import sys

from admittance.retry_timer.shell import SERVICE, run
from admittance.runtime.service import main

if __name__ == "__main__":
    sys.exit(main(SERVICE, run))
