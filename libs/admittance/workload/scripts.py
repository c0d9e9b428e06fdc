"""The name of the script that a workload runs: workloads of one user with the same script run for
about the same time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Final

import msgspec

from admittance.events.reader import BROKEN

SUFFIXES: Final = frozenset({".py", ".sh", ".bash", ".r", ".jl", ".pl", ".rb", ".js", ".lua", ".m"})
"""The suffixes of files that are scripts, in small letters."""
LENGTH_MAX: Final = 100
SHELLS: Final = frozenset({"sh", "bash", "dash", "zsh", "ksh"})
SHELL_COMMAND: Final = "-c"


def script_of_command(command: Sequence[str]) -> str:
    """The name of the first script in the command, else of the Python module after ``-m``, else of
    the program; "": there is no command. The command line of a shell is searched too."""
    if not command:
        return ""
    program = PurePosixPath(command[0]).name
    if program in SHELLS and SHELL_COMMAND in command[:-1]:
        inner = command[command.index(SHELL_COMMAND) + 1].split()
        return script_of_command(inner[:1000]) or script_of_command(command[:1])
    for word in command:
        path = PurePosixPath(word)
        if path.suffix.lower() in SUFFIXES:
            return path.name[:LENGTH_MAX]
    if "-m" in command[:-1]:
        return command[command.index("-m") + 1][:LENGTH_MAX]
    return program[:LENGTH_MAX]


class _Part(msgspec.Struct, frozen=True, gc=False):
    """Base of the parts of a spec that have the command; other fields are skipped."""


class _Container(_Part, frozen=True, gc=False):
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()


class _PodSpec(_Part, frozen=True, gc=False):
    containers: tuple[_Container, ...] = ()


class _Template(_Part, frozen=True, gc=False):
    spec: _PodSpec = _PodSpec()


class _PodSet(_Part, frozen=True, gc=False):
    template: _Template = _Template()


class _Spec(_Part, frozen=True, gc=False, rename="camel"):
    pod_sets: tuple[_PodSet, ...] = ()


_decode: Final = msgspec.json.Decoder(_Spec).decode


def script_of(spec: bytes | msgspec.Raw) -> str:
    """The script of the first container of a stored spec; "": it has no command, or cannot be
    read, which other readers report."""
    try:
        pod_sets = _decode(spec).pod_sets
    except BROKEN:
        return ""
    for pod_set in pod_sets:
        for container in pod_set.template.spec.containers:
            return script_of_command((*container.command, *container.args))
    return ""
