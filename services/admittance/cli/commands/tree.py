"""The tree of commands, and how the values of their parameters are converted. One call imports and
builds only the commands that its words name, since all commands together take longer than most
commands run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from inspect import getdoc
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from admittance.cli.support.errors import BadInput
from admittance.cli.support.options import Output


class _Conversion:
    """Converts the values of one parameter. Values that need no conversion are returned unchanged:
    typer would import pydantic to convert them, which takes longer than most commands run.
    """

    def __init__(self, param: Any) -> None:
        self._annotation = param.type_descriptor.annotation

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        if self._annotation is str and isinstance(value, str):
            return value
        if self._annotation == list[str] and not isinstance(value, str):
            return list(value)
        if self._annotation is Output and value in list(Output):
            return Output(value)
        if self._annotation in (int, float):
            with suppress(ValueError, OverflowError):
                number = self._annotation(value)
                low, high = param.min, param.max
                if (low is None or low <= number) and (high is None or number <= high):
                    return number
            if not ctx.resilient_parsing:
                raise BadInput(_range_error(param, value, whole=self._annotation is int))
        # Typer converts values of types that `_Conversion` does not know, and reports their errors.
        param._runtime_param = None
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)


def _range_error(param: Any, value: Any, *, whole: bool) -> str:
    """The error text for a number outside the range of an option."""
    low, high = param.min, param.max
    limits = "" if low is None else f", at least {low:g}"
    if low is not None and high is not None:
        limits = f" from {low:g} to {high}"
    number = "a whole number" if whole else "a number"
    return f'{max(param.opts, key=len)} "{value}" must be {number}{limits}'


class _QuickParameters:
    """Gives each parameter a `_Conversion`. If a later typer ignores `_runtime_param`, typer
    converts all values itself, which is slower.
    """

    def get_params(self, ctx: Any) -> list[Any]:
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if getattr(param, "_runtime_param", None) is None:
                param._runtime_param = _Conversion(param)
        return params


class Command(_QuickParameters, TyperCommand):
    """The class of every command of ``admit``: a typer command with parameters that are parsed
    quickly."""


class CommandGroup(_QuickParameters, TyperGroup):
    """A group of commands, such as the program ``admit`` itself."""


COMMANDS: Final[Mapping[str, Sequence[str]]] = {
    "objects": ("apply", "get", "describe", "delete", "simulate"),
    "workloads": ("submit", "wait", "explain", "events", "trace", "logs", "usage"),
    "lifecycle": (
        *("stop", "cancel", "activate", "hold", "release", "finish", "approve", "deny"),
        "priority",
    ),
    "system": (
        *("up", "serve", "doctor", "bench", "replay", "check-test", "provider-test", "token"),
        "completion",
    ),
    "backup": ("backup", "restore"),
    "auth": ("auth",),
    "context": ("context",),
}
"""For each module of this package the names that its `register` adds to the program, in the order
of the help."""


def add_commands(app: typer.Typer, words: Sequence[str]) -> None:
    """Adds to ``app`` the commands that occur in ``words``. If the first word is not a command,
    adds all commands, without their parameters: then the program shows their names only.
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
