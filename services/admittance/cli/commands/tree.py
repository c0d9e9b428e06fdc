"""The tree of commands. One call imports and builds only the commands that its words name, since
all commands together take longer than most commands run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from inspect import getdoc
from typing import Any, Final

import typer

from admittance.cli.commands.parameters import Command, CommandGroup

COMMANDS: Final[Mapping[str, Sequence[str]]] = {
    "objects": ("apply", "get", "describe", "delete", "simulate"),
    "workloads": ("submit", "wait", "explain", "events", "logs"),
    "lifecycle": (
        *("stop", "cancel", "activate", "hold", "release", "finish", "approve", "deny"),
        "priority",
    ),
    "system": (
        *("up", "serve", "doctor", "bench", "replay", "check-test", "provider-test", "token"),
        "completion",
    ),
    "auth": ("auth",),
    "context": ("context",),
}
"""For each module of this package the names that its `register` adds to the program, in the order
of the help."""


def add_commands(app: typer.Typer, words: Sequence[str]) -> None:
    """Adds to app the commands that occur in words. If the first word is not a command, adds all
    commands, without their parameters: then the program shows their names only.
    """
    known = {name for names in COMMANDS.values() for name in names}
    meant = known.intersection(words[: words.index("--")] if "--" in words else words)
    first = words[0] if words else ""
    named = meant if first.startswith("-") or first in known else set()
    for module, names in COMMANDS.items():
        if not named or named.intersection(names):
            import_module(f"admittance.cli.commands.{module}").register(app)
    for group in app.registered_groups:
        group.cls = CommandGroup
    for info in _commands(app):
        info.cls = Command
        # Joins the lines of each paragraph: typer would print the line breaks of the docstring.
        paragraphs = (getdoc(info.callback) or "").split("\n\n")
        info.help = "\n\n".join(" ".join(one.split()) for one in paragraphs)
    if named:
        app.registered_commands = [
            info for info in app.registered_commands if _name_of(info) in named
        ]
        app.registered_groups = [info for info in app.registered_groups if str(info.name) in named]
    else:
        for info in app.registered_commands:
            info.name, info.callback = _name_of(info), lambda: None


def _commands(group: typer.Typer) -> Iterator[Any]:
    """The commands of the group and of the groups in it."""
    yield from group.registered_commands
    for info in group.registered_groups:
        if info.typer_instance is not None:
            yield from _commands(info.typer_instance)


def _name_of(info: Any) -> str:
    return str(info.name or info.callback.__name__.replace("_", "-"))
