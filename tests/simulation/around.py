"""The configuration that a write was made under, as it is in the bucket."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Manifests(NamedTuple):
    """By name; LocalQueues by namespace and name."""

    queues: Mapping[str, Any]
    checks: Mapping[str, Any]
    flavors: Mapping[str, Any]
    locals: Mapping[tuple[str, str], Any]
