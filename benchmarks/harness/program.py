"""The command line of a benchmark: its options, its event loop, and the lines that it prints."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import Any, Final, NamedTuple

from admittance.bench.run import loop_factory
from admittance.client.errors import ClientError
from admittance.runtime.errors import AdmittanceError

BASELINE: Final = Path(__file__).parents[1] / "baseline.yaml"


class Option(NamedTuple):
    """An option of a benchmark, ``--a-name``, or an argument that may be left out, ``name``. Its
    type is that of ``default``, unless ``kind`` states it. ``least``, ``most``: the range of a
    number; ``above``: it must be greater."""

    flag: str
    default: Any
    help: str = ""
    kind: Callable[[str], Any] | None = None
    least: float = -inf
    most: float = inf
    above: float = -inf

    @property
    def name(self) -> str:
        """The name of the argument that gets the value."""
        return self.flag.removeprefix("--").replace("-", "_")

    def add_to(self, parser: argparse.ArgumentParser) -> None:
        """Adds the option to a parser."""
        if isinstance(self.default, bool):
            parser.add_argument(self.flag, action="store_true", help=self.help)
            return
        more: dict[str, Any] = {} if self.flag.startswith("--") else {"nargs": "?"}
        kind = self.kind or type(self.default)
        parser.add_argument(self.flag, type=kind, default=self.default, help=self.help, **more)

    def problem(self, value: Any) -> str:
        """The problem of the value; "": none."""
        if not isinstance(value, int | float):
            return ""
        if value <= self.above:
            return f"{self.flag} must be greater than {self.above:g}"
        if value < self.least:
            return f"{self.flag} must be at least {self.least:g}"
        return f"{self.flag} must be at most {self.most:g}" if value > self.most else ""


NATS: Final = Option("--nats", None, "a running system instead of an embedded one", kind=str)
SEED: Final = Option("--seed", 1, "what happens when")
CHECKS_MAX: Final = 8
"""The most admission checks of a ClusterQueue."""


def run_program(
    measure: Callable[..., Coroutine[Any, Any, list[str]]], about: str | None, *options: Option
) -> None:
    """Runs a benchmark as a program: ``measure`` gets each option by its name, and returns the
    lines to print. ``about``: the docstring of its module. An error is one line, with exit status
    1."""
    first, _, rest = (about or "").partition("\n")
    parser = argparse.ArgumentParser(
        description=first, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for option in options:
        option.add_to(parser)
    given = vars(parser.parse_args())
    for option in options:
        if problem := option.problem(given[option.name]):
            parser.error(problem)
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            lines = runner.run(measure(**given))
    except (AdmittanceError, ClientError) as error:
        sys.exit(str(error))
    sys.stdout.write("\n".join([*lines, ""]))


@contextmanager
def kept_folder(prefix: str, keep: Path | None) -> Iterator[Path]:
    """The folder ``keep``, which stays; without one a temporary folder."""
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        yield keep
        return
    with tempfile.TemporaryDirectory(prefix=prefix) as name:
        yield Path(name)


def tell(line: str) -> None:
    """Prints what a benchmark does while it runs."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
