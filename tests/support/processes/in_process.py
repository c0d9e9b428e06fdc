"""Command lines of `admit` in the process of the tests: the fixture ``admit`` of tests/unit/cli."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from admittance.cli.commands.program import invoke


class Said(NamedTuple):
    """The output of a command line, and its exit status."""

    status: int
    out: str
    err: str


class Admit:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *words: str) -> Said:
        """Runs a command line."""
        self._capsys.readouterr()
        status = invoke(words)
        return Said(status, *self._capsys.readouterr())

    def out(self, *words: str) -> str:
        """The standard output of a command line with the status 0."""
        said = self(*words)
        assert said.status == 0, said
        return said.out

    def err(self, status: int, *words: str) -> str:
        """The standard error of a command line with this status."""
        said = self(*words)
        assert said.status == status, said
        return said.err
