"""``python -m admittance.provider_aws [CLASS]``: runs the EC2 provider alone."""

from __future__ import annotations

import sys
from typing import Any

from admittance.provider_aws import SERVICE
from admittance.runtime.process.service_process import run_service


def _more(_: Any) -> dict[str, Any]:
    (*names,) = sys.argv[1:2]
    return {"provisioning_class": names[0] if names else None}


if __name__ == "__main__":
    sys.exit(run_service(SERVICE, _more))
