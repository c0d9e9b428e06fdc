"""An exception of a core that concerned one object. The core goes on with all other objects, and
its service records the exception (`admittance.runtime.telemetry.object_faults`)."""

from __future__ import annotations

from typing import NamedTuple


class ObjectError(NamedTuple):
    """``step``: what failed, such as ``nominate``; ``about``: the object, such as ``workload
    team/train``."""

    step: str
    about: str
    error: Exception
