"""Progress of a long command: a line on a terminal, nothing in pipes and files."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.progress import Progress

PER_SECOND: Final = 2
"""How often the line is drawn again: a bar that costs CPU would slow down what it shows."""


class Steps:
    """The steps of the long command ``name``, on standard error if that is a terminal; the line
    goes away at the end. Any thread may report."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._bar: Progress | None = None

    def __enter__(self) -> Steps:
        if sys.stderr.isatty():
            # Only a terminal pays for the import.
            from rich.console import Console
            from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn
            from rich.progress import TimeElapsedColumn as Elapsed

            columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), Elapsed())
            console = Console(file=sys.stderr, highlight=False)
            self._bar = Progress(
                *columns, console=console, transient=True, refresh_per_second=PER_SECOND
            )
            self._bar.add_task(self._name, total=None)
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def begin(self, step: str, total: int = 0) -> None:
        """The next step begins. ``total``: how much `reach` will count; 0: unknown."""
        if self._bar is not None:
            from rich.markup import escape

            text = escape(f"{self._name} {step}")
            self._bar.reset(self._bar.task_ids[0], description=text, total=total or None)

    def reach(self, done: int) -> None:
        """``done`` of the step's total is done."""
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=done)


NO_STEPS: Final = Steps("")
"""Shows nothing."""
