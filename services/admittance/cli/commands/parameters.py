"""Converts the values of parameters, and the classes of commands that do so."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

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
