"""When a budget's week began, and when it turns. Pure: the time is an argument."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


def week_of(now: datetime, weekday: str, at: str, zone: str) -> tuple[datetime, datetime]:
    """The week that now is in, both ends in UTC; the end is the next one's beginning.

    It turns at the wall clock's time, so that a week in which clocks are moved is an hour longer or
    shorter. Raises ValueError where weekday, at or zone is none.
    """
    where = zone_of(zone)
    turn = time.fromisoformat(at)
    if weekday.lower() not in DAYS:
        raise ValueError(f"resetWeekday {weekday!r} is no day of the week")
    local = now.astimezone(where)
    days = (local.weekday() - DAYS.index(weekday.lower())) % 7
    begin = datetime.combine(local.date() - timedelta(days=days), turn, tzinfo=where)
    if begin > local:
        begin -= timedelta(days=7)
    return begin.astimezone(UTC), (begin + timedelta(days=7)).astimezone(UTC)


def zone_of(name: str) -> tzinfo:
    """The time zone of that name. Raises ValueError."""
    if name == "UTC":
        return UTC  # also where the machine has no list of time zones
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, OSError):
        raise ValueError(f"timezone {name!r} is not known here") from None
