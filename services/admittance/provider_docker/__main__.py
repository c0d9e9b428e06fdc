"""``python -m admittance.provider_docker``: this service alone."""

from __future__ import annotations

import sys

from admittance.provider_docker.shell import SERVICE, run
from admittance.runtime.service import main

if __name__ == "__main__":
    sys.exit(main(SERVICE, run))
