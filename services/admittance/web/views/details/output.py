"""The output of pods as text for a page: the last lines, without what a terminal would act on."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from admittance.events.shapes import PodLog
from admittance.web.paths import logs_path
from admittance.web.views.words import Link

READS_OUTPUT: Final = frozenset({"", "admin", "viewer", "user", "owner"})
"""The roles that may read the output of jobs; "": the server has no users."""
LINES: Final = 200
LINES_MAX: Final = 2000
CHOICES: Final = (200, 500, LINES_MAX)
LINE_MAX: Final = 2000
"""The most characters of a line that are shown."""
KEPT_MAX: Final = 1 << 19
"""The most characters of one pod that are kept while its output is read."""
PODS_MAX: Final = 20
"""The most pods that one page shows."""

_ESCAPES: Final = re.compile(
    # Sequences of a terminal: control sequences, strings such as titles and links, and others.
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)"
    r"|\x1b[ -/]*[0-~]",
    re.MULTILINE,
)
_CONTROLS: Final = {
    **{code: "\ufffd" for code in (*range(32), *range(127, 160)) if chr(code) not in "\t\n"},
    # What turns the direction of text could make a line say something else than it does.
    **dict.fromkeys((*range(8234, 8239), *range(8294, 8298)), "�"),
}


class PodText(msgspec.Struct, frozen=True, kw_only=True):
    """The end of the output of a pod. ``note``: what is missing before it, "" for nothing."""

    pod: str
    text: str
    note: str = ""


class OutputView(msgspec.Struct, frozen=True, kw_only=True):
    """The output of a run. ``why``: why there is none, "": there is; ``follows``: whether more may
    come; ``more``: how many pods are left out. ``choices``: other numbers of lines, and earlier
    runs."""

    title: str
    namespace: str
    name: str
    pods: tuple[PodText, ...]
    why: str = ""
    follows: bool = False
    more: int = 0
    lines: int = LINES
    choices: tuple[Link, ...] = ()


class Tails:
    """The ends of the outputs of pods, from pieces in order; memory is bounded."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.is_running = False
        self._cut: set[str] = set()
        self._short: set[str] = set()

    def add(self, piece: PodLog) -> None:
        """Adds what comes next of a pod."""
        self.is_running = self.is_running or piece.running
        if piece.cut:
            self._cut.add(piece.pod)
        if piece.short:
            self._short.add(piece.pod)
        text = self.texts.get(piece.pod, "") + piece.text
        if len(text) > 2 * KEPT_MAX:
            text = text[-KEPT_MAX:]
            self._short.add(piece.pod)
        self.texts[piece.pod] = text

    def pods(self, lines: int) -> tuple[PodText, ...]:
        """The last lines of each pod, the pods by name."""
        named = sorted(self.texts, key=_natural)[:PODS_MAX]
        return tuple(self._pod(pod, lines) for pod in named)

    def _pod(self, pod: str, lines: int) -> PodText:
        note = ""
        if pod in self._cut:
            note = "The runner has removed output before this."
        if pod in self._short:
            note = "The lines before this are too long to show."
        return PodText(pod=pod, text=shown(self.texts[pod], lines), note=note)


def shown(text: str, lines: int) -> str:
    """The last lines of a text, as a terminal would leave them: without its sequences, and of a
    line that was written over the last state. Long lines are cut; other control characters are
    replaced."""
    last = _last(text, lines)
    return "\n".join(_line(line) for line in _ESCAPES.sub("", last).split("\n"))


def _last(text: str, lines: int) -> str:
    at = len(text.removesuffix("\n"))
    for _ in range(lines):
        at = text.rfind("\n", 0, at)
        if at < 0:
            return text
    return text[at + 1 :]


def _line(line: str) -> str:
    state = line.removesuffix("\r").rpartition("\r")[2]
    more = len(state) - LINE_MAX
    cut = f"{state[:LINE_MAX]} … {more:,} more characters" if more > 0 else state
    return cut.translate(_CONTROLS)


def _natural(pod: str) -> tuple[str, int]:
    """Pods of a set by their index as a number."""
    name, _, index = pod.rpartition("-")
    return (name, int(index)) if index.isascii() and index.isdigit() else (pod, 0)


def build(
    namespace: str,
    name: str,
    tails: Tails,
    *,
    why: str = "",
    lines: int = LINES,
    previous: int = 0,
    restarts: int = 0,
    follows: bool = False,
) -> OutputView:
    """The view of the output of a run. ``previous``: how many runs back; ``restarts``: how many
    runs the workload had before its newest one; ``follows``: whether the run goes on."""
    run = f", {previous} run{'s' if previous > 1 else ''} back" if previous else ""
    return OutputView(
        title=f"Output of {name}{run}",
        namespace=namespace,
        name=name,
        pods=tails.pods(lines),
        why=why,
        follows=follows,
        more=max(0, len(tails.texts) - PODS_MAX),
        lines=lines,
        choices=tuple(_choices(namespace, name, lines, previous, restarts)),
    )


def _choices(namespace: str, name: str, lines: int, previous: int, restarts: int) -> Iterable[Link]:
    def path(**given: int) -> str:
        chosen: Mapping[str, int] = {"lines": lines, "previous": previous} | given
        return logs_path(namespace, name, **chosen)

    for count in CHOICES:
        if count != lines:
            yield Link(f"{count:,} lines", path(lines=count))
    if previous < restarts:
        yield Link("Earlier run", path(previous=previous + 1))
    if previous:
        yield Link("Later run", path(previous=previous - 1))


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """The block on the page of a workload: the last lines of the first pod. ``why``: why there are
    none; ``others``: how many further pods have output; ``all``: the page with all of it."""

    pod: PodText | None
    why: str
    others: int
    all: Link
    follows: bool


def output_of(
    namespace: str, name: str, tails: Tails, why: str, lines: int, *, follows: bool
) -> Output:
    """The block with the last lines."""
    pods = tails.pods(lines)
    return Output(
        pod=pods[0] if pods else None,
        why=why,
        others=max(0, len(tails.texts) - 1),
        all=Link("All output", logs_path(namespace, name)),
        follows=follows,
    )
