"""Output of commands: tables for people, JSON and YAML for programs, names for pipes.

Standard output carries answers only; notes go to standard error. Colours, progress and tables cut
to the width are for terminals. Without a terminal columns are padded with spaces and nothing is
cut. Help and completion import this module, so its imports are few.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Final, NamedTuple

from admittance.client.errors import one_line
from admittance.runtime.process.progress import draw

BOLD: Final = "1"
DIM: Final = "2"
BAD: Final = "31"
GOOD: Final = "32"
WAITS: Final = "33"
BUSY: Final = "36"

STYLES: Final = {
    word: style
    for style, words in {
        GOOD: "Running Admitted Ready True created yes ok passed",
        BUSY: "QuotaReserved changed",
        WAITS: "Evicting Pending Backoff Retry False deleted",
        BAD: "Rejected Failed FailedToStart no failed wrong",
        DIM: "Finished Deactivated unchanged",
    }.items()
    for word in words.split()
}
"""Colours of words that fill a whole cell."""

NOTHING: Final = "-"
UNKNOWN: Final = "?"

_uncut: ContextVar[bool] = ContextVar("uncut", default=False)


class Column(NamedTuple):
    """A column of a table. ``wide``: shown with ``-o wide`` only. ``right``: numbers, aligned to
    the right. ``spare``: left out if the terminal is too narrow to show all names in full.
    """

    title: str
    wide: bool = False
    right: bool = False
    spare: bool = False


def columns_of(*titles: str) -> tuple[Column, ...]:
    """Columns from their titles; a leading ``+`` marks a wide column, ``~`` a spare column, ``#`` a
    column of numbers.
    """
    return tuple(
        Column(
            title.lstrip("+~#"),
            wide=title.startswith("+"),
            right="#" in title[:2],
            spare=title.startswith("~"),
        )
        for title in titles
    )


class Table(NamedTuple):
    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]

    def narrowed(self, wide: bool) -> Table:
        """The table without its wide columns, unless ``wide``."""
        return self if wide else self._without([column.wide for column in self.columns])

    def without_spare(self) -> Table:
        """The table without its spare columns."""
        return self._without([column.spare for column in self.columns])

    def _without(self, dropped: Sequence[bool]) -> Table:
        shown = [index for index, drop in enumerate(dropped) if not drop]
        return Table(
            [self.columns[index] for index in shown],
            [[row[index] for index in shown] for row in self.rows],
        )


def pairs(values: Mapping[str, Any]) -> str:
    """A mapping as text, like ``a=1, b=2``."""
    return ", ".join(f"{key}={value}" for key, value in values.items())


def is_terminal() -> bool:
    """Whether standard output is a terminal."""
    return sys.stdout.isatty()


def styled(text: str, style: str) -> str:
    """``text`` in a style, such as `BAD`, if standard output is a terminal; in an empty style, or
    with the variable NO_COLOR, the text alone."""
    if not (text and style and is_terminal()):
        return text
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return f"\x1b[{style}m{text}\x1b[0m"


def clean(text: str) -> str:
    """``text`` without control characters, since stored text must not control the terminal."""
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)


def flush() -> None:
    """Flushes standard output, so that a program that reads the pipe gets each line at once."""
    sys.stdout.flush()


def plain_of(value: Any) -> Any:
    """A Struct as dicts and lists, as programs get it."""
    import msgspec

    return msgspec.json.decode(msgspec.json.encode(value))


def say(text: str) -> None:
    """Prints one line of the answer."""
    sys.stdout.write(f"{text}\n")


def facts(pairs: Sequence[tuple[str, str]]) -> None:
    """Prints ``Title:  value`` lines; empty values are left out."""
    shown = [(title, value) for title, value in pairs if value]
    width = max(len(title) for title, _ in shown) + 1
    for title, value in shown:
        style = STYLES.get(value, "")
        say(f"{styled(f'{title}:'.ljust(width), BOLD)} {styled(clean(value), style)}")


def section(title: str, table: Table, *, indent: int = 0) -> None:
    """Prints a table under its title; nothing if it is empty."""
    if table.rows:
        say(f"\n{' ' * indent}{title}")
        show_table(table, indent=indent + 2)


def outcome(subject: str, word: str) -> None:
    """Prints ``subject word``, the outcome for one object."""
    say(f"{subject} {styled(word, STYLES.get(word, ''))}")


def note(text: str) -> None:
    """Prints one line on standard error."""
    sys.stdout.flush()
    sys.stderr.write(f"{clean(one_line(text))}\n")


def error(text: str) -> None:
    """Prints one error on standard error."""
    note(f"error: {text}")


def warn(text: str) -> None:
    """Prints one warning on standard error."""
    note(f"warning: {text}")


class Progress:
    """Progress of a wait: one line on a terminal, else one line on standard error per change."""

    def __init__(self, subject: str) -> None:
        self._subject = subject
        self._drawn = False

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._drawn:
            draw("")

    def say(self, state: str) -> None:
        """Shows ``state`` as the new state of the wait."""
        if sys.stderr.isatty():
            draw(f"{self._subject} {styled(state, STYLES.get(state, ''))}")
            self._drawn = True
        else:
            note(f"{self._subject} {state}")


def cut_nothing() -> None:
    """Turns off the cutting of tables to the terminal width for this call."""
    _uncut.set(True)


def show_table(table: Table, *, wide: bool = False, indent: int = 0) -> None:
    """Prints ``table``; on a terminal coloured, and cut to the terminal's width unless ``wide``."""
    narrow = table.narrowed(wide or _uncut.get())
    shown = Table(narrow.columns, [[clean(cell) for cell in row] for row in narrow.rows])
    if is_terminal():
        uncut = wide or _uncut.get()
        _show_coloured(shown, indent, None if uncut else terminal_width() - indent)
    else:
        for line in aligned(shown):
            say(" " * indent + line)


def widen(widths: list[int], table: Table) -> None:
    """Makes ``widths`` wide enough for ``table``, in place."""
    cells = [[column.title for column in table.columns], *table.rows]
    widths += [0] * (len(table.columns) - len(widths))
    for row in cells:
        for index, cell in enumerate(row):
            widths[index] = max(widths[index], len(cell))


def aligned(table: Table, widths: list[int] | None = None) -> Iterable[str]:
    """The lines of ``table``, its columns padded with spaces, with three spaces between columns."""
    if widths is None:
        widths = []
        widen(widths, table)
    for row in ([column.title for column in table.columns], *table.rows):
        padded = (
            cell.rjust(width) if column.right else cell.ljust(width)
            for cell, width, column in zip(row, widths, table.columns, strict=True)
        )
        yield "   ".join(padded).rstrip()


def terminal_width() -> int:
    """The width of the terminal in characters, or the value of the variable COLUMNS."""
    # The module is slow to import.
    from shutil import get_terminal_size

    return get_terminal_size().columns


def _show_coloured(table: Table, indent: int, room: int | None) -> None:
    """Prints the lines of `aligned` coloured, each of at most ``room`` characters; ``room`` None:
    uncut.
    """
    widths: list[int] = []
    gap = GAPS[0]
    if room is not None:
        table, widths, gap = fitted_table(table, room)
    else:
        widen(widths, table)
    titles = [column.title for column in table.columns]
    for number, row in enumerate([titles, *table.rows]):
        line = " " * indent
        blank = 0
        for cell, width, column in zip(row, widths, table.columns, strict=True):
            short = (cut_middle if number and column.title in NAMED else cut)(cell, width)
            before = width - len(short) if column.right else 0
            shown = styled(short, STYLES.get(cell, "") if number else BOLD)
            line += " " * (blank + before) + shown
            blank = width - len(short) - before + gap
        say(line.rstrip())


def show_json(value: Any) -> None:
    """Prints ``value`` as indented JSON. The value may have Structs, JSON in `msgspec.Raw`, and
    plain values.
    """
    import msgspec

    say(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def show_value(value: Any, shape: str) -> bool:
    """Prints ``value`` if ``shape`` is ``json`` or ``yaml``; returns whether ``value`` was
    printed.
    """
    if shape == "json":
        show_json(value)
    elif shape == "yaml":
        show_yaml(value)
    else:
        return False
    return True


def show_json_line(value: Any) -> None:
    """Prints ``value`` as one line of JSON, for a stream of values."""
    import msgspec

    say(msgspec.json.encode(value).decode())


def show_yaml(value: Any) -> None:
    """Prints ``value`` as YAML; keys keep their order."""
    from admittance.client.wording.yaml_text import yaml_text

    sys.stdout.write(yaml_text(plain_of(value)))


NAMES: Final = frozenset({"NAME", "NAMESPACE", "WORKLOAD"})
"""Columns that are cut last, since people copy their text."""
NAMED: Final = NAMES | {"QUEUE", "CLUSTERQUEUE", "COHORT", "VARIANT", "CHECK", "TREE"}
"""Columns that are cut in the middle, since names often differ at their ends only."""

ELLIPSIS: Final = "…"
TITLE_MIN: Final = 4
TEXT_MIN: Final = 8
SPARE_MIN: Final = 20
NAME_MIN: Final = (20, 14)
"""The least widths of a column of names: names are cut to the first width before texts become
unreadable, and to the second width after that.
"""
GAPS: Final = (3, 2, 1)
"""Spaces between columns: 3 if the table then fits uncut, else 2; 1 if the table fits only then."""


def fitted_table(table: Table, room: int) -> tuple[Table, list[int], int]:
    """The table as it is printed, the width of each column, and the spaces between columns. Spare
    columns are left out if they would be cut to less than `SPARE_MIN` characters, or a name would
    be cut.
    """
    titles = [column.title for column in table.columns]
    widths, gap = fitted(titles, table.rows, room)
    least = [
        SPARE_MIN if column.spare else room if column.title in NAMES else 0
        for column in table.columns
    ]
    narrow = any(
        width < min(len(cell), enough)
        for row in table.rows
        for cell, width, enough in zip(row, widths, least, strict=True)
    )
    if narrow and any(column.spare for column in table.columns):
        return fitted_table(table.without_spare(), room)
    return table, widths, gap


def fitted(
    titles: Sequence[str], rows: Sequence[Sequence[str]], room: int
) -> tuple[list[int], int]:
    """The width of each column and the spaces between columns, for lines of at most ``room``
    characters.

    First titles that are wider than their column are cut, then the widest texts, then names. If
    lines are still too long after all cuts, they stay longer than ``room``.
    """
    contents = [max((len(row[at]) for row in rows), default=0) for at in range(len(titles))]
    widths = [max(len(title), have) for title, have in zip(titles, contents, strict=True)]
    for gap in GAPS[:2]:
        if sum(widths) + gap * (len(widths) - 1) <= room:
            return widths, gap
    gap = GAPS[1]
    left = room - gap * (len(widths) - 1)
    names = [at for at, title in enumerate(titles) if title in NAMES]
    texts = [at for at in range(len(titles)) if at not in names]
    everywhere = range(len(titles))
    shrink(widths, everywhere, [max(TITLE_MIN, have) for have in contents], left)
    shrink(widths, texts, [TEXT_MIN] * len(widths), left)
    shrink(widths, names, [NAME_MIN[0]] * len(widths), left)
    shrink(widths, texts, [TITLE_MIN] * len(widths), left)
    shrink(widths, names, [NAME_MIN[1]] * len(widths), left)
    if sum(widths) > left:
        gap = GAPS[-1]
        left = room - gap * (len(widths) - 1)
        shrink(widths, everywhere, [TITLE_MIN] * len(widths), left)
    return widths, gap


def shrink(widths: list[int], among: Sequence[int], least: Sequence[int], total: int) -> None:
    """Makes the widest columns narrower, in place, until the sum of all widths is ``total`` or each
    column has its least width. Short columns keep their width.
    """
    while sum(widths) > total:
        at = max((at for at in among if widths[at] > least[at]), key=widths.__getitem__, default=-1)
        if at < 0:
            return
        widths[at] -= 1


def cut(text: str, width: int) -> str:
    """``text`` in at most ``width`` characters, with an ellipsis where its end is missing."""
    return text if len(text) <= width else text[: width - 1] + ELLIPSIS


def cut_middle(text: str, width: int) -> str:
    """``text`` in at most ``width`` characters, with an ellipsis where its middle is missing."""
    if len(text) <= width:
        return text
    begin = (width - 1) // 2
    return text[:begin] + ELLIPSIS + text[len(text) - (width - 1 - begin) :]
