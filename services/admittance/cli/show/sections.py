"""Tables of `admit describe`: pod sets, conditions, usage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from admittance.api.units import parse, render
from admittance.cli.show import tables
from admittance.cli.show.objects import conditions_of, field
from admittance.cli.support.output import Column, Table
from admittance.cli.support.times import age
from admittance.events.requests import LocalUsage, QueueStatus


def pod_sets(plain: Mapping[str, Any]) -> Table:
    """Each pod set: its requests, its flavors and its command."""
    assigned = {
        one.get("name"): one
        for one in field(plain, "status", "admission", "podSetAssignments", default=[])
    }
    rows = []
    for pod_set in field(plain, "spec", "podSets", default=[]):
        name = pod_set.get("name", "main")
        containers = field(pod_set, "template", "spec", "containers", default=[])
        got = assigned.get(name) or {}
        rows.append(
            (
                name,
                str(pod_set.get("count", 1)),
                _requests(containers) or tables.NOTHING,
                ",".join(dict.fromkeys((got.get("flavors") or {}).values())) or tables.NOTHING,
                pairs(got.get("resourceUsage") or {}) or tables.NOTHING,
                _command(containers),
            )
        )
    columns = (
        Column("NAME"),
        Column("PODS", right=True),
        Column("REQUESTS PER POD"),
        Column("FLAVORS"),
        Column("USES IN ALL"),
        Column("COMMAND"),
    )
    return Table(columns, rows)


def _requests(containers: Sequence[Mapping[str, Any]]) -> str:
    """The requests of the containers."""
    each = [pairs(field(one, "resources", "requests", default={})) for one in containers]
    return " + ".join(asked for asked in each if asked)


def _command(containers: Sequence[Mapping[str, Any]]) -> str:
    if not containers:
        return tables.NOTHING
    words = [*(containers[0].get("command") or []), *(containers[0].get("args") or [])]
    text = " ".join(words) or str(containers[0].get("image", ""))
    return text if len(text) <= 60 else f"{text[:59]}…"


def conditions(plain: Mapping[str, Any], now: datetime) -> Table:
    """The conditions of any object."""
    rows = [
        (
            str(one.get("type", "")),
            str(one.get("status", "")),
            str(one.get("reason", "")) or tables.NOTHING,
            _since(one.get("lastTransitionTime"), now),
            str(one.get("message", "")),
        )
        for one in conditions_of(plain)
    ]
    columns = (
        Column("CONDITION"),
        Column("STATUS"),
        Column("REASON"),
        Column("SINCE"),
        Column("MESSAGE"),
    )
    return Table(columns, rows)


def _since(text: Any, now: datetime) -> str:
    try:
        return age(msgspec.convert(text, datetime, strict=False), now) if text else tables.NOTHING
    except msgspec.ValidationError:
        return tables.NOTHING


def usage_of(used: LocalUsage) -> str:
    """Usage of a LocalQueue, and the value by which it is ordered."""
    amounts = ", ".join(
        f"{resource} {float(parse(much)):.4g}"
        for resource, much in used.consumed.consumed_resources.items()
    )
    compared = tables.value_of(used)
    order = "goes last" if used.value is None else f"compared by {compared}"
    return f"{order} (consumed {amounts or 'nothing'}; weight {used.weight:g})"


def usage(counted: QueueStatus) -> Table:
    """Quota and usage of each flavor of a queue."""
    rows = [
        (
            one.flavor,
            one.resource,
            render(one.resource, one.nominal),
            render(one.resource, one.reserved),
            render(one.resource, one.admitted),
            render(one.resource, one.borrowed),
        )
        for one in counted.usage
    ]
    columns = (
        Column("FLAVOR"),
        Column("RESOURCE"),
        Column("NOMINAL", right=True),
        Column("RESERVED", right=True),
        Column("ADMITTED", right=True),
        Column("BORROWED", right=True),
    )
    return Table(columns, rows)


def pairs(values: Mapping[str, Any]) -> str:
    """``a=1, b=2``."""
    return ", ".join(f"{key}={value}" for key, value in values.items())
