"""Which checks can be asked, and what the rows of the others say.

A check is asked when its AdmissionCheck is there, and the object that it names in ``parameters``.
Until then its row waits, Pending, and says why: so whoever takes over finds in the rows which
checks are still to be asked.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from admittance.api.workload import CheckState
from admittance.workload.check_rows import Rows
from admittance.workload.stored import Say
from admittance.workload.transition_context import Occasion

_ABSENT: Final = "AdmissionCheck {} doesn't exist"
_UNASKED: Final = "AdmissionCheck {} is not asked: "


def unaskable(name: str, at: Occasion) -> str:
    """Why a check of that name cannot be asked, a sentence; "": it can."""
    rules = at.around.check(name)
    if rules is None:
        return _ABSENT.format(name)
    return _UNASKED.format(name) + rules.missing if rules.missing else ""


def explained(rows: Rows, at: Occasion) -> tuple[Rows, set[str]]:
    """The rows, of which those that cannot be asked say so; and the names of those that said so and
    can be asked by now."""
    found, come = [], set()
    for row in rows:
        why = unaskable(row.name, at) if row.state == "Pending" else ""
        message = row.message
        if why and (not message or _tells_why(row)):
            message = why
        elif not why and _tells_why(row):
            # From now on it may judge, for as long as its timeout says.
            row = replace(row, last_transition_time=at.now)  # noqa: PLW2901
            message = ""
            come.add(row.name)
        found.append(replace(row, message=message) if message != row.message else row)
    return tuple(found), come


def _tells_why(row: CheckState) -> bool:
    return row.message == _ABSENT.format(row.name) or row.message.startswith(
        _UNASKED.format(row.name)
    )


def requests(names: Iterable[str], at: Occasion) -> tuple[Say, ...]:
    """What asks those checks; nothing is said to one that cannot be asked."""
    return tuple(
        Say(what="check_requested", detail=name) for name in names if not unaskable(name, at)
    )
