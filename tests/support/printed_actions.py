"""The command and the line of Python that a button of the web page prints, as the program reads
them."""

from __future__ import annotations

import ast
import inspect
import shlex
from typing import Any

import click

from admittance.cli.table import LazyCommands
from admittance.client import Client
from admittance.web.views.actions import Ask

VALUE = "7"
"""Stands where the value of the action stands."""


def parameters_of_command(ask: Ask) -> dict[str, Any]:
    """The parameters that ``admit`` reads from the command. Raises `click.UsageError` for one that
    it refuses."""
    words = shlex.split(ask.command.replace("{}", VALUE))
    group = LazyCommands("admit")
    command = group.get_command(click.Context(group), words[1])
    assert command is not None
    return command.make_context(words[1], words[2:]).params


def arguments_of_call(ask: Ask) -> dict[str, Any]:
    """The arguments, by name, with which the line calls a method of `Client`."""
    tree = ast.parse(ask.python.replace("{}", VALUE))
    [call] = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    assert isinstance(call.func, ast.Attribute)
    given = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
    places = [ast.literal_eval(word) for word in call.args]
    method = getattr(Client, call.func.attr)
    return dict(inspect.signature(method).bind(None, *places, **given).arguments)
