"""Tables about budgets: what is used of them, and what waits for them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from admittance.cli.support import output
from admittance.cli.support.output import NOTHING, UNKNOWN, Table, columns_of
from admittance.cli.support.times import age
from admittance.client.arguments.times import span, stamp
from admittance.client.requests.objects import BucketObject, field

COLUMNS: Final = columns_of(
    *("NAME", "PER", "WINDOW", "#LIMIT", "UNIT", "MOST USED", "#WAITING", "NEXT WINDOW", "AGE"),
    *("+LIMITS", "+CHECKS"),
)
NO_CHECK: Final = "no AdmissionCheck names it"


def row(stored: BucketObject, now: datetime) -> tuple[str, ...]:
    """The row of a budget in a table."""
    plain = stored.plain()
    spec, status = field(plain, "spec", default={}), field(plain, "status")
    limits = spec.get("limits") or {}
    return (
        stored.name,
        str(spec.get("per", NOTHING)),
        str(spec.get("window", NOTHING)),
        str(spec.get("limit", NOTHING)),
        str(spec.get("unit", NOTHING)),
        UNKNOWN if status is None else _most_used(status),
        UNKNOWN if status is None else str(status.get("waitingTotal", 0)),
        _next_window(status, now) or NOTHING,
        age(stored.created(), now),
        ",".join(f"{name}={limit}" for name, limit in sorted(limits.items())) or NOTHING,
        ",".join((status or {}).get("checks", ())) or NOTHING,
    )


def _most_used(status: Mapping[str, Any]) -> str:
    """The account that has used the greatest part of its limit, like ``team-a 88 of 100``."""
    if not status.get("checks"):
        return NO_CHECK
    if not status.get("accounts"):
        return "nothing"
    first = status["accounts"][0]
    ahead = first.get("ahead")
    return f"{_named(first)} {_used_of(first)}" + (f", {ahead:g} ahead" if ahead else "")


def _named(account: Mapping[str, Any]) -> str:
    return account["name"] or "jobs without a user"


def _used_of(account: Mapping[str, Any]) -> str:
    used, limit = account.get("used", 0), account.get("limit")
    return f"{used:.12g}" if limit is None else f"{used:.12g} of {limit:.12g}"


def _next_window(status: Mapping[str, Any] | None, now: datetime) -> str:
    end = (
        datetime.fromisoformat(status["windowEnd"]) if status and status.get("windowEnd") else None
    )
    return "" if end is None else f"in {span((end - now).total_seconds())}"


def facts(stored: BucketObject, now: datetime) -> list[tuple[str, str]]:
    """The lines of a description about the window."""
    status = field(stored.plain(), "status")
    if status is None:
        return []
    if not status.get("checks"):
        return [("Checks", f"none: {NO_CHECK}, so it limits nothing")]
    end = datetime.fromisoformat(status["windowEnd"])
    return [
        ("Checks", ", ".join(status["checks"])),
        ("Window", f"since {stamp(datetime.fromisoformat(status['windowBegin']))}"),
        ("Next window", f"{stamp(end)} ({_next_window(status, now)})"),
    ]


def show_state(stored: BucketObject) -> None:
    """Prints the accounts of a budget, and what waits for it."""
    status = field(stored.plain(), "status", default={})
    accounts, waiting = status.get("accounts", ()), status.get("waiting", ())
    output.section("Accounts", _accounts(accounts))
    output.section("Waiting", _waiting(waiting))
    for shown, total, what in (
        (accounts, status.get("accountsTotal", 0), "accounts"),
        (waiting, status.get("waitingTotal", 0), "waiting workloads"),
    ):
        if total > len(shown):
            output.note(f"{total - len(shown):,} more {what}")


def _accounts(accounts: list[Mapping[str, Any]]) -> Table:
    rows = []
    for account in accounts:
        used, ahead, limit = account.get("used", 0), account.get("ahead", 0), account.get("limit")
        rows.append(
            (
                _named(account),
                f"{used:.12g}",
                f"{ahead:.12g}",
                NOTHING if limit is None else f"{limit:.12g}",
                NOTHING if limit is None else f"{max(0, limit - used - ahead):.12g}",
            )
        )
    return Table(columns_of("ACCOUNT", "#USED", "#CHARGED AHEAD", "#LIMIT", "#LEFT"), rows)


def _waiting(waiting: list[Mapping[str, Any]]) -> Table:
    rows = [
        (
            f"{wait['namespace']}/{wait['name']}",
            stamp(datetime.fromisoformat(wait["until"])) if wait.get("until") else "for a verdict",
        )
        for wait in waiting
    ]
    return Table(columns_of("WORKLOAD", "ASKED AGAIN"), rows)
