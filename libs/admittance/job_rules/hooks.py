"""What a runner runs on its machine before and after each job: ``--prolog`` and ``--epilog``."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from admittance.api.fields import units
from admittance.runtime.errors import SetupError

VARIABLES: Final[Mapping[str, str]] = {
    "prolog": "ADMIT_PROLOG",
    "epilog": "ADMIT_EPILOG",
    "prolog_timeout": "ADMIT_PROLOG_TIMEOUT",
}
"""For each field of `HookTexts` the environment variable that has its value."""
OPTIONS: Final[Mapping[str, str]] = {
    "prolog": "--prolog",
    "epilog": "--epilog",
    "prolog_timeout": "--prolog-timeout",
}
DEFAULT_SECONDS: Final = 300.0
SECONDS_MAX: Final = 86_400.0


class JobHooks(msgspec.Struct, frozen=True, kw_only=True):
    """The commands that a runner runs as its own Unix user, by ``/bin/sh -c``; "": none.
    ``prolog``: before the first pod of a job starts. ``epilog``: after the last process of the job
    has ended. ``seconds``: how long each may take."""

    prolog: str = ""
    epilog: str = ""
    seconds: float = DEFAULT_SECONDS

    @property
    def any(self) -> bool:
        """Whether there is a prolog or an epilog."""
        return bool(self.prolog or self.epilog)


class HookTexts(msgspec.Struct, frozen=True, kw_only=True):
    """The texts of options; "": the option was not given."""

    prolog: str = ""
    epilog: str = ""
    prolog_timeout: str = ""


def hooks_of(texts: HookTexts, env: Mapping[str, str]) -> JobHooks:
    """The hooks that the options name; one without an option comes from its environment variable.
    Raises SetupError for a wrong value."""
    given = {name: getattr(texts, name) or env.get(VARIABLES[name], "") for name in VARIABLES}
    return JobHooks(
        prolog=_command("prolog", given["prolog"].strip()),
        epilog=_command("epilog", given["epilog"].strip()),
        seconds=_seconds(given["prolog_timeout"].strip()),
    )


def _command(name: str, text: str) -> str:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise SetupError(f"{_shown(name)} {text}: {error}") from None
    if not words:
        return ""
    program = Path(words[0])
    if program.is_absolute() and not (program.is_file() and os.access(program, os.X_OK)):
        raise SetupError(f"{_shown(name)}: {program} is not a program that the runner may execute")
    return text


def _seconds(text: str) -> float:
    if not text:
        return DEFAULT_SECONDS
    try:
        seconds = float(units.seconds(f"{text}s" if text.isdecimal() else text))
    except units.BadDuration as error:
        raise SetupError(f"{_shown('prolog_timeout')}: {error}") from None
    if not 1 <= seconds <= SECONDS_MAX:
        raise SetupError(f"{_shown('prolog_timeout')} {text}: it must be between 1s and 24h")
    return seconds


def _shown(name: str) -> str:
    return f"{OPTIONS[name]} ({VARIABLES[name]})"
