"""``python -m admittance.variant_controller``: this service alone."""

from __future__ import annotations

import sys

from admittance.runtime.service import main
from admittance.variant_controller.shell import SERVICE, run

if __name__ == "__main__":
    sys.exit(main(SERVICE, run))
