"""``python -m admittance.provisioning_check``: this service alone."""

from __future__ import annotations

import sys

from admittance.provisioning_check.shell import SERVICE, run
from admittance.runtime.service import main

if __name__ == "__main__":
    sys.exit(main(SERVICE, run))
