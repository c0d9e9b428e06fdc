"""Problems of a manifest: a field and one sentence each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

INVALID: Final = "Invalid"
REQUIRED: Final = "Required"
NOT_SUPPORTED: Final = "NotSupported"
DUPLICATE: Final = "Duplicate"
FORBIDDEN: Final = "Forbidden"
NOT_FOUND: Final = "NotFound"
TOO_MANY: Final = "TooMany"
TOO_LONG: Final = "TooLong"
UNKNOWN: Final = "Unknown"
TYPE: Final = "TypeInvalid"


LINE_MAX: Final = 4_000
"""The most characters of a line about problems: the name of an unknown field may be as long as the
manifest, and the server refuses an answer that is too long."""


class Problem(NamedTuple):
    """One problem of a manifest. ``code``: the kind of problem, for programs; one of the constants
    from `INVALID` to `TYPE`.
    """

    field: str
    message: str
    code: str = INVALID

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


class ManifestError(ValueError):
    """An invalid manifest. The text of the error is one line: file, document, object, problems.

    ``others``: the errors of other documents in the same file. `lines` returns a line for each
    problem.
    """

    def __init__(
        self,
        problems: Sequence[Problem],
        *,
        source: str = "",
        document: str = "",
        about: str = "",
        others: Sequence[ManifestError] = (),
    ) -> None:
        self.problems: tuple[Problem, ...] = tuple(problems)
        self.source = source
        self.document = document
        self.about = about
        self.others: tuple[ManifestError, ...] = tuple(others)
        super().__init__(self._one_line())

    @property
    def where(self) -> str:
        """The place of the manifest with the problem, as far as known: ``file: document 2
        (ClusterQueue team-a)``."""
        place = " ".join(
            part for part in (self.document, f"({self.about})" if self.about else "") if part
        )
        return ": ".join(part for part in (self.source, place) if part)

    def lines(self) -> list[str]:
        """A line for each problem of each document."""
        where = self.where
        mine = [
            _line(f"{where}: {problem}" if where else str(problem)) for problem in self.problems
        ]
        return mine + [line for other in self.others for line in other.lines()]

    def _one_line(self) -> str:
        shown = "; ".join(str(problem) for problem in self.problems[:5])
        if len(self.problems) > 5:
            shown += f"; and {len(self.problems) - 5} more"
        if self.others:
            many = len(self.others)
            shown += f" (and {many} more document{'s are' if many > 1 else ' is'} wrong)"
        where = self.where
        return _line(f"{where}: {shown}" if where else shown)


def _line(text: str) -> str:
    """The text as one line of limited length, without control characters."""
    cut = text if len(text) <= LINE_MAX else f"{text[: LINE_MAX - 1]}…"
    return "".join(char if char.isprintable() else " " for char in cut)


def shown(value: object) -> str:
    """The value as text for a message, at most 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
