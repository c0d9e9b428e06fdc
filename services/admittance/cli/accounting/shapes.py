"""The output formats of commands about the past, which have CSV, too."""

from __future__ import annotations

from typing import Final

from admittance.cli.commands.declare import GLOBAL, option
from admittance.cli.support.options import Call
from admittance.client.errors import BadInput

SHAPES: Final = ("table", "wide", "json", "yaml", "csv")
output_option: Final = option(
    f"--output -o {'|'.join(SHAPES)}", "Output format. Default: a table", section=GLOBAL
)


def shape_of(output: str | None, call: Call) -> str:
    """The output format of the call. Raises BadInput."""
    shape = output or str(call.output)
    if shape not in SHAPES:
        raise BadInput(f'-o "{shape}" is not one of {", ".join(SHAPES)}')
    return shape
