"""``python -m admittance.provider_aws [CLASS]``: this service alone."""

from __future__ import annotations

import sys

from admittance.provider_aws.shell import SERVICE, run
from admittance.runtime.service import main

if __name__ == "__main__":
    (*names,) = sys.argv[1:2]
    sys.exit(main(SERVICE, run, provisioning_class=names[0] if names else None))
