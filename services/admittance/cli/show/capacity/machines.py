"""Tables about runners and their machines."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from admittance.cli.support.output import NOTHING, columns_of, pairs
from admittance.cli.support.times import age
from admittance.client.requests.machines import READY
from admittance.client.requests.objects import BucketObject, conditions_of, field
from admittance.placement.machines.failed_hooks import HOOKS_FAILED
from admittance.placement.machines.known_runners import NAME_CONFLICT

COLUMNS: Final = columns_of(
    *("NAME", "READY", "#CPU", "#MEMORY", "DEVICES", "IN USE", "AGE", "VERSION"),
    *("+HOST", "+EXECUTOR", "+LABELS", "+TAINTS", "+MESSAGE"),
)
_WORDS: Final = {"True": "yes", "False": "no"}


def row(stored: BucketObject, now: datetime) -> tuple[str, ...]:
    """The row of a runner in a table."""
    plain = stored.plain()
    capacity = amounts(plain, "capacity")
    return (
        stored.name,
        ready_text(plain),
        capacity.get("cpu", NOTHING),
        capacity.get("memory", NOTHING),
        listed({name: capacity[name] for name in capacity if name not in ("cpu", "memory")}),
        listed(amounts(plain, "inUse")),
        age(stored.created(), now),
        str(field(plain, "status", "version", default="")) or NOTHING,
        str(field(plain, "status", "host", default="")) or NOTHING,
        ",".join(field(plain, "status", "executors", default=())) or NOTHING,
        pairs(field(plain, "metadata", "labels", default={})) or NOTHING,
        ",".join(taints(plain)) or NOTHING,
        "; ".join(_row_messages(plain)) or NOTHING,
    )


def ready_text(plain: Mapping[str, Any]) -> str:
    """Whether the machine takes jobs, such as ``yes`` or ``yes,cordoned``."""
    ready = _condition(plain, READY)
    words = [_WORDS.get(str(ready.get("status", "")), "unknown")]
    if field(plain, "spec", "unschedulable", default=False):
        words.append("cordoned")
    if field(plain, "spec", "drain") is not None:
        words.append("drained")
    return ",".join(words)


def amounts(plain: Mapping[str, Any], name: str) -> Mapping[str, str]:
    """The quantities by resource in a field of the status."""
    written: Mapping[str, str] = field(plain, "status", name, default={})
    return written


def listed(quantities: Mapping[str, str]) -> str:
    """The quantities in one cell of a table."""
    return ",".join(f"{name}={quantities[name]}" for name in quantities) or NOTHING


def taints(plain: Mapping[str, Any]) -> list[str]:
    """The taints as the option ``--taint`` writes them."""
    return [
        f"{taint.get('key')}{'=' if taint.get('value') else ''}{taint.get('value', '')}"
        f":{taint.get('effect')}"
        for taint in field(plain, "spec", "taints", default=())
    ]


def _row_messages(plain: Mapping[str, Any]) -> list[str]:
    """The reason of a drain that a person gave, and what is wrong."""
    reason, said = field(plain, "spec", "drain", "reason", default=""), messages(plain)
    return [f"drained: {reason}", *said] if reason and reason not in said else said


def messages(plain: Mapping[str, Any]) -> list[str]:
    """What is wrong with the runner or its machine, one sentence each."""
    said = [str(message) for message in field(plain, "status", "messages", default=())]
    for kind in (HOOKS_FAILED, NAME_CONFLICT):
        condition = _condition(plain, kind)
        if condition.get("status") == "True":
            said.insert(0, str(condition.get("message", "")))
    return said


def _condition(plain: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    return next((each for each in conditions_of(plain) if each.get("type") == kind), {})
