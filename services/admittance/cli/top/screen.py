"""The screen of `admit top`, made with Textual, which only this command imports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Input, Static

from admittance.cli.support import times
from admittance.cli.support.output import STYLES, Column, Table, widen
from admittance.cli.top import lines
from admittance.cli.top.answers import Answers
from admittance.cli.top.lines import Choice, Order, Row
from admittance.client.errors import ClientError, one_line
from admittance.client.requests.queues.overview import QueueOverview
from admittance.runtime import clock
from admittance.runtime.errors import AdmittanceError

COLOURS: Final = {"31": "red", "32": "green", "33": "yellow", "36": "cyan", "2": "dim"}
"""The styles of `output.STYLES` as names."""
ORDERS: Final = {
    "o": Order.QUEUE,
    "n": Order.NAME,
    "p": Order.PRIORITY,
    "t": Order.TIME,
    "u": Order.USER,
}
HELP: Final = """\
up, down, tab    choose a workload, of those that run or that wait
enter, e         explain the workload
c                cancel the workload: it ends, and is kept for `admit activate` or `admit delete`
o n p t u        order: as tried, by name, priority, time, user; again: reversed
/                show only rows with these words; escape shows all
r                read again now
q                quit
"""


class TextScreen(ModalScreen[None]):
    """A text over the screen, until escape or q is pressed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter,e", "dismiss", "Back"),
    ]

    def __init__(self, title: str, text: str) -> None:
        super().__init__()
        self._title, self._text = title, text

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(self._title, markup=False, classes="title")
            yield Static(self._text, markup=False)
        yield Footer()


class Confirmation(ModalScreen[bool]):
    """A question that y answers with yes, and n or escape with no."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "Yes"),
        Binding("n,escape,q", "answer(False)", "No"),
    ]

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        yield Static(self._question, markup=False, classes="title")
        yield Footer()

    def action_answer(self, yes: bool) -> None:
        self.dismiss(yes)


class TopScreen(App[None]):
    """The queues, what runs and what waits. ``seen``: the first answer. ``every``: seconds between
    two readings."""

    CSS = """
    #head { color: $text-muted; }
    .title { text-style: bold; }
    #queues, #running_title, #waiting_title { margin-top: 1; }
    #running { height: auto; max-height: 45%; }
    #waiting { height: 1fr; }
    #words { display: none; }
    TextScreen > VerticalScroll, Confirmation > Static {
        margin: 1 2; padding: 1 2; background: $panel;
    }
    """
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("e", "explain", "Explain"),
        Binding("c", "cancel", "Cancel"),
        Binding("o", "order('o')", "Order: o n p t u"),
        *(Binding(key, f"order('{key}')", show=False) for key in ORDERS if key != "o"),
        Binding("slash", "words", "Filter"),
        Binding("escape", "all_rows", show=False),
        Binding("r", "read", "Read again"),
        Binding("question_mark", "help", "Keys"),
        Binding("q", "quit", "Quit"),
        Binding("ctrl+c", "quit", show=False, priority=True),
    ]

    def __init__(self, answers: Answers, seen: QueueOverview, *, every: float) -> None:
        super().__init__()
        self._answers, self._seen, self._every = answers, seen, every
        self._read_at = clock.now()
        self._is_reading = False
        self._trouble = ""
        self._choice = Choice()
        self._rows: dict[str, Sequence[Row]] = {}

    def compose(self) -> ComposeResult:
        yield Static(id="head", markup=False)
        yield Static(id="queues", markup=False)
        for part in ("running", "waiting"):
            yield Static(id=f"{part}_title", markup=False, classes="title")
            yield DataTable[Text](id=part, cursor_type="row")
        yield Input(placeholder="words of the rows to show", id="words")
        yield Footer()

    def on_mount(self) -> None:
        self._show()
        self.query_one("#running" if self._seen.running else "#waiting").focus()
        self.set_interval(self._every, self.action_read)

    # What is shown. ---------------------------------------------------------------------

    def _show(self) -> None:
        seen, now = self._seen, clock.now()
        several = self._answers.question.namespace is None
        self._line("head", f"{self._answers.place} · {self._choice.sentence()} · {self._age()}")
        self._line("queues", lines.queue_lines(seen))
        holding = lines.chosen(seen.running, self._choice)
        self._fill("running", lines.running(holding, now, several=several), holding)
        pending = lines.chosen(seen.waiting, self._choice)
        self._fill("waiting", lines.waiting(pending, now, several=several), pending)
        for part, what, shown, read, total in (
            ("running", "Running", holding, seen.running, seen.running_total),
            ("waiting", "Waiting", pending, seen.waiting, seen.waiting_total),
        ):
            title = lines.title(what, len(shown), len(read), total)
            self._line(f"{part}_title", title)

    def _age(self) -> str:
        if self._trouble:
            return f"read {times.age(self._read_at, clock.now())} ago: {self._trouble}"
        return f"{self._read_at:%H:%M:%S} UTC"

    def _line(self, part: str, text: str) -> None:
        self.query_one(f"#{part}", Static).update(text)

    def _fill(self, part: str, table: Table, rows: Sequence[Row]) -> None:
        """Shows the rows; the chosen workload stays chosen."""
        widget = self._table(part)
        chosen, at = self._row(part), widget.cursor_row
        widget.clear(columns=True)
        widths: list[int] = []
        widen(widths, table)
        for column, width in zip(table.columns, widths, strict=True):
            widget.add_column(_cell(column.title, column), width=width)
        for cells in table.rows:
            widget.add_row(*map(_cell, cells, table.columns))
        self._rows[part] = rows
        if chosen is not None:
            same = (row for row, each in enumerate(rows) if _key(each) == _key(chosen))
            widget.move_cursor(row=next(same, at), animate=False)

    def _table(self, part: str) -> DataTable[Text]:
        return self.query_one(f"#{part}", DataTable)

    def _row(self, part: str) -> Row | None:
        """The chosen row of a part; None: the part has no rows."""
        rows, at = self._rows.get(part, ()), self._table(part).cursor_row
        return rows[at] if 0 <= at < len(rows) else None

    def _chosen(self) -> Row | None:
        part = self.focused.id if isinstance(self.focused, DataTable) else None
        row = self._row(part or "waiting")
        if row is None:
            self.notify("no workload is chosen; tab goes to the other part", severity="warning")
        return row

    # Keys. ------------------------------------------------------------------------------

    @work
    async def action_read(self) -> None:
        """Reads the queues again, unless they are being read."""
        if self._is_reading:
            return
        self._is_reading = True
        try:
            self._seen = await self._answers.read()
            self._read_at, self._trouble = clock.now(), ""
        except (ClientError, AdmittanceError) as error:
            self._trouble = one_line(str(error))
        finally:
            self._is_reading = False
        self._show()

    def action_order(self, key: str) -> None:
        self._choice = self._choice.by(ORDERS[key])
        self._show()

    def action_words(self) -> None:
        words = self.query_one("#words", Input)
        words.styles.display = "block"
        words.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        self._choice = self._choice._replace(words=event.value.strip())
        self._show()

    def on_input_submitted(self) -> None:
        self._leave_words()

    def action_all_rows(self) -> None:
        self.query_one("#words", Input).value = ""
        self._leave_words()

    def _leave_words(self) -> None:
        self.query_one("#words", Input).styles.display = "none"
        self._table("running" if self._rows["running"] else "waiting").focus()

    def action_help(self) -> None:
        self.push_screen(TextScreen("Keys", HELP))

    def on_data_table_row_selected(self) -> None:
        self.action_explain()

    @work
    async def action_explain(self) -> None:
        """Shows why the chosen workload waits or runs."""
        row = self._chosen()
        if row is None:
            return
        try:
            text = await self._answers.explain(row)
        except (ClientError, AdmittanceError) as error:
            self.notify(one_line(str(error)), severity="error", markup=False)
            return
        await self.push_screen(TextScreen(row.name, text))

    @work
    async def action_cancel(self) -> None:
        """Stops the chosen workload after a confirmation."""
        row = self._chosen()
        if row is None:
            return
        what = "array" if row.elements else "workload"
        if not await self.push_screen_wait(Confirmation(f"Cancel {what} {row.name}?")):
            return
        try:
            outcome = await self._answers.cancel(row)
        except (ClientError, AdmittanceError) as error:
            self.notify(one_line(str(error)), severity="error", markup=False)
            return
        self.notify(outcome, markup=False)
        self.action_read()


def _key(row: Row) -> tuple[str, str]:
    return row.namespace, row.name


def _cell(text: str, column: Column) -> Text:
    colour = COLOURS.get(STYLES.get(text, ""), "")
    return Text(text, style=colour, no_wrap=True, justify="right" if column.right else "left")
