"""Which variables of the submitter's environment a job gets. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from admittance.api.fields.names import variable_error
from admittance.client.arguments.spelling import IN_PYTHON, Spelling
from admittance.client.errors import BadInput

ALL: Final = "ALL"
NONE: Final = "NONE"
EVERYWHERE: Final = ("LANG", "LC_*", "TZ")
"""Patterns of the variables that a job gets by default, wherever it runs."""
SAME_MACHINE: Final = (
    *EVERYWHERE,
    *("PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "PYTHONPATH", "LD_LIBRARY_PATH"),
)
"""Patterns of the variables that a job gets by default if it runs in the submitter's folder as the
submitter's Unix user."""
SECRETS: Final = (
    *("*TOKEN*", "*SECRET*", "*PASSWORD*", "*PASSWD*", "*CREDENTIAL*", "*KEY*"),
    *("AWS_*", "SSH_*", "ADMIT_*"),
)
"""Patterns of variables that may be secrets, in capitals: `ALL` leaves them out."""
OF_THE_JOB: Final = (
    *("HOME", "USER", "LOGNAME", "SHELL", "PWD", "OLDPWD", "SHLVL", "_"),
    *("ADMITTANCE_*", "JOB_COMPLETION_INDEX"),
)
"""Patterns of variables that say where and as which Unix user a process runs: a job has its own, so
`ALL` leaves them out without a word."""
BYTES_MAX: Final = 64 << 10
"""The most bytes of a job's variables. Linux starts no program with a variable of 128 KiB."""
NAMED_MAX: Final = 3


class Exported(NamedTuple):
    """Variables that a job gets from the submitter's environment. ``left_out``: the names that
    `ALL` left out, since their values may be secrets or are no text."""

    variables: dict[str, str]
    left_out: tuple[str, ...] = ()


def exported(environ: Mapping[str, str], names: Sequence[str], default: Iterable[str]) -> Exported:
    """The variables that the job gets.

    ``names``: names of variables, `ALL`, or `NONE`; each item may have several, separated by
    commas. ``default``: patterns of the variables that it gets beside these, unless `NONE` is among
    them. Raises BadInput for a variable that is not set or that no container can have.
    """
    words = [word.strip() for name in names for word in name.split(",")]
    wanted = [word for word in words if word not in ("", ALL, NONE)]
    if names and not any(words):
        raise BadInput(f"--export {','.join(names)} names no variable")
    if ALL in words and NONE in words:
        raise BadInput(f"--export {ALL} and {NONE} contradict each other")
    patterns = () if NONE in words else tuple(default)
    taken, left_out = {}, []
    for name, value in environ.items():
        if name in wanted:
            continue
        if _matches(name, patterns):
            if _is_plain(name, value):
                taken[name] = value
        elif ALL in words and not _matches(name, OF_THE_JOB):
            if not _is_plain(name, value) or _matches(name.upper(), SECRETS):
                left_out.append(name)
            else:
                taken[name] = value
    for name in wanted:
        if error := variable_error(name):
            raise BadInput(f"--export: {error}")
        if name not in environ:
            raise BadInput(f"--export {name}: this variable is not set here")
        if not _is_plain(name, environ[name]):
            raise BadInput(f"--export {name}: its value is not a text of Unicode")
        taken[name] = environ[name]
    return Exported(taken, tuple(sorted(left_out)))


def check_environment(variables: Mapping[str, str], *, spelled: Spelling = IN_PYTHON) -> None:
    """Raises BadInput for names that no container can have, and for more than `BYTES_MAX`."""
    for name in variables:
        if error := variable_error(name):
            raise BadInput(f"{spelled.env} {error}")
    sizes = {name: len(f"{name}={value}".encode()) + 1 for name, value in variables.items()}
    if (size := sum(sizes.values())) > BYTES_MAX:
        largest = sorted(sizes, key=lambda name: -sizes[name])[:NAMED_MAX]
        named = ", ".join(f"{name} ({sizes[name]:,})" for name in largest)
        raise BadInput(
            f"{spelled.env}: the variables of the job have {size:,} bytes, at most {BYTES_MAX:,} "
            f"are allowed; the largest: {named}"
        )


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _is_plain(name: str, value: str) -> bool:
    """Whether a manifest can have the variable: UTF-8 cannot have the bytes of each value."""
    if variable_error(name):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
