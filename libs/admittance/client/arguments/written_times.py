"""Times and durations in the form that people write."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta

from admittance.client.errors import BadInput

_UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_PART = re.compile(r"(\d+(?:\.\d+)?)([dhms])")
_SPAN = re.compile(r"\A(?:\d+(?:\.\d+)?[dhms])+\Z")
_DAYS = re.compile(r"\A([0-9]+)d\Z")
_DATE = re.compile(r"\A[0-9]{4}-[0-9]{2}-[0-9]{2}\Z")
_NUMBER = re.compile(r"\A\d+(?:\.\d+)?\Z")


def seconds_of(text: str, option: str) -> float:
    """The seconds of a text like ``90``, ``90s``, ``1h30m`` or ``2d``. Raises BadInput, which names
    ``option``, for any other text.
    """
    word = text.strip().lower()
    if _NUMBER.match(word):
        return float(word)
    if _SPAN.match(word):
        return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(word))
    raise BadInput(f'{option} "{text}" is not a duration; write 90, 90s, 5m, 1h30m or 2d')


def whole_seconds(text: str, option: str) -> int:
    """As `seconds_of`, for an option that counts whole seconds, 1 or more."""
    seconds = seconds_of(text, option)
    if not seconds.is_integer() or seconds < 1:
        raise BadInput(f'{option} "{text}" must be a whole number of seconds, at least 1')
    return int(seconds)


def moment_of(text: str, option: str, now: datetime) -> datetime:
    """The moment of a text: a duration before now, or an ISO 8601 time. Raises BadInput for a text
    that is neither.

    A time without a zone is in UTC, like every time that is printed.
    """
    word = text.strip()
    if _NUMBER.match(word) or _SPAN.match(word.lower()):
        try:
            return now - timedelta(seconds=seconds_of(word, option))
        except OverflowError:
            raise BadInput(f'{option} "{text}" is too far in the past') from None
    try:
        moment = datetime.fromisoformat(word)
    except ValueError:
        raise BadInput(
            f'{option} "{text}" is neither a duration (10m, 2h) nor a time (2026-02-07T00:10:00Z)'
        ) from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def past_moment(text: str, option: str, now: datetime) -> int | datetime:
    """A moment of the past: a sequence of the log, or what `moment_of` takes. Raises BadInput."""
    word = text.strip()
    if word.isascii() and word.isdigit() and len(word) < 19:
        return int(word)
    return moment_of(text, option, now)


def moment_after(text: str, option: str, now: datetime) -> datetime:
    """The moment after the duration that the text names. Raises BadInput."""
    try:
        return now + timedelta(seconds=seconds_of(text, option))
    except OverflowError:
        raise BadInput(f'{option} "{text}" is too far in the future') from None


def day_of_text(text: str, option: str, now: datetime) -> date:
    """The day of a text, in UTC: a date, or whole days before now. Raises BadInput for any other
    text, also for a part of a day."""
    word = text.strip()
    try:
        if match := _DAYS.match(word.lower()):
            return (now.astimezone(UTC) - timedelta(days=int(match[1]))).date()
        if _DATE.match(word):
            return date.fromisoformat(word)
    except OverflowError:
        raise BadInput(f'{option} "{text}" is too far in the past') from None
    except ValueError:
        pass  # Such as 2026-02-31.
    raise BadInput(
        f'{option} "{text}" is not a day; write 2026-11-26, or 7d for the day seven days ago'
    )
