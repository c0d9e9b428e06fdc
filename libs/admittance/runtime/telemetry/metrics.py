"""Counters, histograms and gauges, and their text for Prometheus.

Counting changes one value of a dict. The text of a histogram's series is kept until the series
changes. Gauges are read when Prometheus scrapes them, in a thread of their own
(`runtime/process/admin.py`). The number of series is bounded, whatever the labels are.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, islice
from typing import Final, NamedTuple

from admittance.runtime.errors import SetupError

PREFIX: Final = "admittance_"
SERIES_MAX: Final = 2_000
"""The most series of one counter or histogram. Series with further label values are counted
together under `OTHER`.
"""
GAUGES_MAX: Final = 50_000
"""The most series of one gauge; a gauge has series for existing objects only."""
OTHER: Final = "other"
SECONDS: Final = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600, 14_400, 86_400, 604_800)
"""Upper bounds, in seconds, of a histogram's buckets."""
SIZES: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000)
"""Upper bounds of the buckets of a histogram that counts sizes."""
READ_TRIES: Final = 10
"""How many times a gauge is read again if its service changed a dict during the reading."""

Labels = tuple[str, ...]


class Definition(NamedTuple):
    """One metric. ``name``: the name of the metric without the prefix of all metrics, and without
    ``_total``. ``kind``: whether the metric is a counter, a histogram or a gauge.
    """

    name: str
    kind: str
    about: str
    labels: Labels

    @property
    def full_name(self) -> str:
        """The metric's name without the prefix, as Prometheus stores it."""
        return f"{self.name}_total" if self.kind == "counter" else self.name


class Metric(ABC):
    """A source of series of one or several metrics."""

    definitions: tuple[Definition, ...]

    @abstractmethod
    def series(self, prefix: str) -> Iterable[tuple[Definition, Iterable[str]]]:
        """Returns for each definition its lines of text; names begin with the prefix."""


class Counter(Metric):
    """A growing number for each combination of labels.

    A series that begins with the value 1 has no increase for Prometheus, so the first event would
    be missed. Series that are known before their first event begin with 0: ``start`` has their
    labels, `begin` adds others, and a counter without labels begins with 0 by itself.
    """

    def __init__(
        self, name: str, about: str, labels: Sequence[str], start: Iterable[Labels] = ()
    ) -> None:
        self.definition = Definition(name, "counter", about, tuple(labels))
        self.definitions = (self.definition,)
        self.values: dict[Labels, float] = dict.fromkeys(start if labels else ((),), 0)
        self._other = (OTHER,) * len(self.definition.labels)

    def add(self, labels: Labels, amount: float = 1) -> None:
        """Adds the amount to the series with these labels."""
        if labels not in self.values and len(self.values) >= SERIES_MAX:
            labels = self._other
        self.values[labels] = self.values.get(labels, 0) + amount

    def begin(self, labels: Labels) -> None:
        """Shows the series with these labels, with 0 if nothing was counted yet."""
        self.add(labels, 0)

    def series(self, prefix: str) -> Iterable[tuple[Definition, Iterable[str]]]:
        return [(self.definition, _lines(prefix, self.definition, self.values.copy()))]


class _SeriesText(NamedTuple):
    """The text of one series of a histogram. ``state``: the numbers that the text shows; ``pairs``:
    the labels as text."""

    state: tuple[float, ...]
    pairs: str
    text: str


class Histogram(Metric):
    """Counts durations by length, or other amounts by size, for each combination of labels.
    ``bounds``: the upper bounds of the buckets. A histogram without labels begins with 0."""

    def __init__(
        self,
        name: str,
        about: str,
        labels: Sequence[str],
        bounds: Sequence[float] = SECONDS,
    ) -> None:
        self._bounds = bounds
        self.definition = Definition(name, "histogram", about, tuple(labels))
        self.definitions = (self.definition,)
        self.values: dict[Labels, list[float]] = {}
        self._other = (OTHER,) * len(self.definition.labels)
        self._texts: tuple[str, dict[Labels, _SeriesText]] = "", {}
        if not labels:
            self.values[()] = self._empty()

    def observe(self, labels: Labels, amount: float) -> None:
        """Counts one duration, in seconds, or one other amount."""
        counts = self.values.get(labels)
        if counts is None:
            if len(self.values) >= SERIES_MAX:
                labels = self._other
            counts = self.values.setdefault(labels, self._empty())
        counts[bisect_left(self._bounds, amount)] += 1
        counts[-1] += amount

    def _empty(self) -> list[float]:
        # A series has one element for each bucket, one for longer durations, and the sum. The
        # counts are ints, because the text of an int is made faster.
        return [*[0] * (len(self._bounds) + 1), 0.0]

    def series(self, prefix: str) -> Iterable[tuple[Definition, Iterable[str]]]:
        return [(self.definition, self._lines(f"{prefix}{self.definition.name}"))]

    def _lines(self, name: str) -> Iterator[str]:
        named = self.definition.labels
        comma = "," if named else ""
        bounds = [*map(str, self._bounds), "+Inf"]
        # All lines of a series are made by one format string and one insertion of the labels,
        # because separate lines would take four times as long.
        form = "".join(f'{name}_bucket{{{_PAIRS}{comma}le="{bound}"}} %s\n' for bound in bounds)
        form += f"{name}_count{{{_PAIRS}}} %s\n{name}_sum{{{_PAIRS}}} %s\n"
        if self._texts[0] != name:
            self._texts = name, {}
        texts = self._texts[1]
        for labels, kept in self.values.copy().items():
            state = tuple(kept)
            # Most series are the same as at the last scrape, and their text is kept.
            known = texts.get(labels)
            if known is None or known.state != state:
                pairs = _pairs(named, labels) if known is None else known.pairs
                *counts, total = state
                sums = [*accumulate(counts)]
                lines = form % (*sums, sums[-1], total)
                known = texts[labels] = _SeriesText(state, pairs, lines.replace(_PAIRS, pairs))
            yield known.text


_PAIRS: Final = "\0"
"""The place of the labels in the prepared text of a histogram's series; the labels are inserted
there.
"""


Read = Callable[[], Mapping[str, Mapping[Labels, float]]]


class Gauges(Metric):
    """Numbers that ``read`` returns at a scrape, by the name of the gauge and its labels.

    ``read`` runs in another thread than the service, so it must change nothing. A dict that the
    service changes during the reading makes ``read`` raise RuntimeError; then the gauge is read
    again.
    """

    def __init__(self, definitions: Iterable[Definition], read: Read) -> None:
        self.definitions = tuple(definitions)
        self._read = read

    def series(self, prefix: str) -> Iterable[tuple[Definition, Iterable[str]]]:
        by_name = self._found()
        return [
            (definition, _lines(prefix, definition, by_name.get(definition.name, {})))
            for definition in self.definitions
        ]

    def _found(self) -> Mapping[str, Mapping[Labels, float]]:
        for _ in range(READ_TRIES - 1):
            try:
                return self._read()
            except RuntimeError:
                continue
        return self._read()


def gauge(name: str, about: str, labels: Sequence[str] = ()) -> Definition:
    """The definition of a gauge."""
    return Definition(name, "gauge", about, tuple(labels))


# The text. ------------------------------------------------------------------------------


def text_of(metrics: Iterable[Metric], prefix: str = PREFIX) -> list[bytes]:
    """The metrics in the text format of Prometheus, in pieces: one for each name. Series of one
    name that come from several metrics stand together, as the format demands.

    No piece is longer than a few megabytes, because the interpreter lock is kept while a string is
    joined or encoded.
    """
    heads: dict[str, str] = {}
    lines: dict[str, list[str]] = {}
    for metric in metrics:
        for definition, series_lines in metric.series(prefix):
            name = f"{prefix}{definition.full_name}"
            heads.setdefault(
                name,
                f"# HELP {name} {_escaped(definition.about)}\n# TYPE {name} {definition.kind}\n",
            )
            lines.setdefault(name, []).extend(series_lines)
    return ["".join((head, *lines[name])).encode() for name, head in heads.items()]


def _lines(prefix: str, definition: Definition, values: Mapping[Labels, float]) -> list[str]:
    name = f"{prefix}{definition.full_name}"
    inside = ",".join(f'{label}="%s"' for label in definition.labels)
    form = f"{name}{{{inside}}} %s\n" if inside else f"{name} %s\n"
    kept = islice(values.items(), GAUGES_MAX)
    # All label values are searched together for characters to escape, because names of objects
    # never have such characters.
    if _SPECIAL.search("".join(chain.from_iterable(values))) is None:
        return [form % (*labels, value) for labels, value in kept]
    return [form % (*_plain(labels), value) for labels, value in kept]


def _pairs(names: Labels, values: Labels) -> str:
    return ",".join(
        [f'{name}="{value}"' for name, value in zip(names, _plain(values), strict=True)]
    )


_SPECIAL: Final = re.compile(r'["\\\n]')


def _plain(labels: Labels) -> Labels:
    """The values of labels as the text format spells them. Names of objects stay as they are."""
    if _SPECIAL.search("".join(labels)) is None:
        return labels
    return tuple(_escaped(value).replace('"', '\\"') for value in labels)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


_PREFIX: Final = re.compile(r"\A[a-zA-Z_][a-zA-Z0-9_]*\Z")


def prefix_of(text: str) -> str:
    """Returns the prefix of metrics. Raises SetupError for one that Prometheus does not allow."""
    if not _PREFIX.match(text):
        raise SetupError(
            f"the prefix of metrics must be letters, digits and _, and begin with no digit, "
            f"not {text!r}"
        )
    return text
